//! The end of a machine, asked for or not.

use std::time::Duration;

use domain::lifecycle::Phase;
use storage::Durability;

use super::{Driver, Running};
use crate::error::NodeError;

/// How long after its connections a machine process that ends may be seen to have ended.
pub(crate) const DEATH_TIMEOUT: Duration = Duration::from_millis(500);

impl Driver {
    /// A failed operation may have failed because the machine ended under it; then that is what callers see next.
    pub(super) async fn notice_death(&mut self) {
        let Some(running) = &self.running else { return };
        if let Ok(exit) = tokio::time::timeout(Duration::ZERO, running.vm.exited()).await {
            self.machine_ended(exit.reason).await;
        }
    }

    /// What a caller is told of a failure: where the machine ended under the operation, that, and not how the operation noticed.
    pub(super) async fn or_death<T>(&mut self, outcome: Result<T, NodeError>) -> Result<T, NodeError> {
        let noticed = matches!(outcome, Err(NodeError::Control(_) | NodeError::Guest { .. }));
        let Some(running) = self.running.as_ref().filter(|_| noticed) else { return outcome };
        let Ok(exit) = tokio::time::timeout(DEATH_TIMEOUT, running.vm.exited()).await else {
            return outcome;
        };
        self.machine_ended(exit.reason.clone()).await;
        Err(NodeError::Died { id: self.record.id.clone(), reason: exit.reason })
    }

    pub(super) async fn machine_ended(&mut self, reason: String) {
        tracing::warn!(sandbox.id = %self.record.id, "the machine of sandbox {} ended: {reason}", self.record.id);
        if let Some(running) = self.running.take() {
            running.meter.ask_last().await;
            self.give_up(running).await;
        }
        self.record.died = Some(reason);
        if let Err(error) = self.enter(Phase::Died, Durability::Synced) {
            tracing::error!(sandbox.id = %self.record.id, %error, "the death of sandbox {} could not be written down", self.record.id);
        }
    }

    /// The sandbox does not come back to the network it had before it fell asleep.
    pub(super) fn forget_network(&mut self) {
        if let Some(resting) = self.resting.take() {
            resting.forget(&self.shared.network);
        }
    }

    /// Gives back what a machine that has ended held on the host.
    pub(super) async fn give_up(&self, running: Running) {
        let Running { resources, pin, .. } = running;
        resources.leave(&self.shared.network).await;
        drop(pin);
        self.shared.snapshots.collect();
    }

    /// Ends the machine of a sandbox that has fallen asleep. Its network waits for a while for the sandbox to come back.
    pub(super) async fn end_asleep(&mut self) {
        let Some(Running { vm, resources, pin, link, meter }) = self.asleep.take() else { return };
        drop(link);
        meter.ask_last().await;
        vm.kill().await;
        self.resting = Some(resources.rest(&self.shared.network));
        drop(pin);
        self.shared.snapshots.collect();
    }
}
