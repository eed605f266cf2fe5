//! What the devices of a node's machines have carried: asked of one machine, or of all that there are.
//!
//! Only what a machine has more than when it was last asked is added to the node's total, so that never goes down, and a machine that ends
//! leaves in it what it was last known to have. Nobody is woken: who sleeps has no machine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use machine::{Counters, Vm};

use crate::driver::Sandbox;
use crate::node::Node;

/// How long a machine may take to answer whoever asks about it alone.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long each may take when all are asked.
const EACH_TIMEOUT: Duration = Duration::from_millis(500);
/// How long all of them may take together. Who has not answered by then counts with what it was last known to have.
const ALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Machines that are asked at once.
const AT_ONCE: usize = 16;
/// All are asked again only after this: whoever asks in between, and needs no key for it, gets what is known.
const PERIOD: Duration = Duration::from_secs(5);
/// How long the end of a machine is held up by asking it for the last time.
const LAST_TIMEOUT: Duration = Duration::from_millis(250);

/// The node's total.
#[derive(Debug, Default)]
pub(crate) struct Total {
    counted: Mutex<Counters>,
    asked: tokio::sync::Mutex<Option<Instant>>,
}

impl Total {
    fn add(&self, more: Counters) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        *counted = counted.plus(more);
    }
}

/// A machine that can be asked.
pub(crate) struct Meter {
    vm: Arc<dyn Vm>,
    total: Arc<Total>,
    /// What it had when it was last asked. Whoever asks has it, so one at a time.
    last: tokio::sync::Mutex<Counters>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Meter {
    pub(crate) fn new(vm: &Arc<dyn Vm>, total: &Arc<Total>) -> Arc<Self> {
        Arc::new(Self { vm: Arc::clone(vm), total: Arc::clone(total), last: tokio::sync::Mutex::default() })
    }

    /// Asks it. `None` when it does not answer in time, or does not count.
    async fn ask(&self, patience: Duration) -> Option<Counters> {
        tokio::time::timeout(patience, self.ask_patiently()).await.ok().flatten()
    }

    async fn ask_patiently(&self) -> Option<Counters> {
        let mut last = self.last.lock().await;
        let now = match self.vm.counters().await {
            Ok(counters) => counters?,
            Err(error) => {
                tracing::debug!(%error, "a machine does not say what it counted");
                return None;
            }
        };
        self.total.add(now.minus(*last));
        *last = now;
        Some(now)
    }

    /// Asks it before it ends, or for what is known of one that has ended.
    pub(crate) async fn ask_last(&self) {
        // Of one that does not answer, what it counted since it was last asked is lost.
        self.ask(LAST_TIMEOUT).await;
    }
}

impl Sandbox {
    /// What its devices have carried since its machine was started, or found by this node. `None` when it has no machine, or one that
    /// does not answer. Does not wake it.
    pub async fn counters(&self) -> Option<Counters> {
        self.state().meter?.ask(TIMEOUT).await
    }
}

impl Node {
    /// What devices of all machines of sandboxes have carried since this node was opened, as far as it is known. Never goes down.
    pub async fn counters(&self) -> Counters {
        let total = &self.shared().total;
        let mut asked = total.asked.lock().await;
        if asked.is_none_or(|at| at.elapsed() >= PERIOD) {
            let meters = self.sandboxes().into_iter().filter_map(|sandbox| sandbox.state().meter);
            let asking = futures::stream::iter(meters).for_each_concurrent(AT_ONCE, |meter| async move {
                meter.ask(EACH_TIMEOUT).await;
            });
            let late = tokio::time::timeout(ALL_TIMEOUT, asking).await.is_err();
            if late {
                tracing::debug!("some machines were not asked what they counted");
            }
            *asked = Some(Instant::now());
        }
        *total.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
