//! What a sandbox has besides its machine: volumes and a network policy.

use std::time::Duration;

use domain::lifecycle::Phase;
use network::Policy;
use storage::Durability;

use super::Driver;
use crate::error::NodeError;
use crate::volumes::{AttachMode, any_writable};

/// How long a guest that is about to be removed may take to write out what it has in memory for its volumes.
const FLUSH_PATIENCE: Duration = Duration::from_secs(10);

impl Driver {
    /// Written down first, so that it holds whenever the guest runs.
    pub(super) async fn set_network_policy(&mut self, policy: Policy) -> Result<(), NodeError> {
        let mut next = self.record.clone();
        next.network = policy;
        next.write(&self.directory, Durability::Unsynced)
            .map_err(NodeError::host("write down the network policy"))?;
        self.record = next;
        self.publish();
        if let Some(running) = &self.running {
            self.shared.network.set_policy(running.berth.slot, policy).await?;
        }
        Ok(())
    }

    /// A volume that grew while nobody could be told is told now; for one that did not, nothing happens.
    pub(super) async fn tell_volume_sizes(&self) -> Result<(), NodeError> {
        let Some(running) = &self.running else { return Ok(()) };
        for (slot, attachment) in self.record.volumes.iter().enumerate() {
            if attachment.mode == AttachMode::ReadWrite {
                let bytes = self.shared.volumes.look(&attachment.volume)?.bytes;
                running.vm.grow_volume(slot, bytes).await?;
            }
        }
        Ok(())
    }

    /// What a user wrote to a volume and did not flush should be there for the next sandbox, and a file system that was mounted
    /// should look unmounted, so that it can be read without being mended first. A guest that does not answer loses what it had
    /// in memory only, as in a power cut.
    pub(super) async fn seal_volumes(&self) {
        let link = self.running.as_ref().and_then(|running| running.link.as_ref());
        let Some(link) = link.filter(|_| self.record.phase == Phase::Running) else { return };
        if !any_writable(&self.record.volumes) {
            return;
        }
        let id = &self.record.id;
        match tokio::time::timeout(FLUSH_PATIENCE, link.seal_volumes()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(sandbox.id = %id, %error, "sandbox {id} did not flush its volumes");
            }
            Err(_) => tracing::warn!(sandbox.id = %id, "sandbox {id} did not flush its volumes in time"),
        }
    }
}
