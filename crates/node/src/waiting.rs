//! Machine processes started ahead of need, without a guest in them.
//!
//! Starting a process, linking its libraries and building an empty machine costs more than everything that follows. So a few are
//! kept ready for each template in use: memory mapped and untouched, disk cloned, network connected. They hold no guest and run no
//! instruction of one. They are made only while nobody waits for a restore, so that they never compete with one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::SnapshotId;
use tokio::sync::Notify;

use crate::archive;
use crate::bake::random_name;
use crate::node::Shared;
use crate::restore::{ReadyMachine, make_ready};
use crate::snapshots::Purpose;

/// Rest after a failure to make one ready, so that a host in trouble is not kept busy by it.
const FAILURE_REST: Duration = Duration::from_secs(5);

/// The machines that wait, by the snapshot they are for.
#[derive(Default)]
pub(crate) struct Waiting {
    shelves: Mutex<HashMap<SnapshotId, VecDeque<ReadyMachine>>>,
    /// Found ended when they were wanted, or no longer wanted; their networks and directories are still there.
    spent: Mutex<Vec<ReadyMachine>>,
    changed: Notify,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<SnapshotId, VecDeque<ReadyMachine>>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A machine that waits for this snapshot, if there is one.
    pub(crate) fn take(&self, id: &SnapshotId) -> Option<ReadyMachine> {
        let taken = loop {
            let candidate = self.lock().get_mut(id).and_then(VecDeque::pop_front);
            match candidate {
                Some(ready) if !ready.prepared.is_alive() => self.spend([ready]),
                other => break other,
            }
        };
        self.changed.notify_one();
        taken
    }

    /// From now on machines are kept ready for this snapshot.
    pub(crate) fn want(&self, id: &SnapshotId) {
        self.lock().entry(id.clone()).or_default();
        self.changed.notify_one();
    }

    /// No restore is under way any more, or fewer are.
    pub(crate) fn nudge(&self) {
        self.changed.notify_one();
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().values().map(VecDeque::len).sum()
    }

    fn emptiest(&self, full: usize) -> Option<SnapshotId> {
        let shelves = self.lock();
        let emptiest = shelves.iter().min_by_key(|(_, shelf)| shelf.len())?;
        (emptiest.1.len() < full).then(|| emptiest.0.clone())
    }

    /// Clears the shelf of a snapshot that is gone.
    pub(crate) fn unwant(&self, id: &SnapshotId) {
        let shelf = self.lock().remove(id);
        self.spend(shelf.into_iter().flatten());
        self.changed.notify_one();
    }

    fn spend(&self, machines: impl IntoIterator<Item = ReadyMachine>) {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).extend(machines);
    }

    fn take_spent(&self) -> Vec<ReadyMachine> {
        std::mem::take(&mut *self.spent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn drain(&self) -> Vec<ReadyMachine> {
        self.lock().drain().flat_map(|(_, shelf)| shelf).collect()
    }
}

/// Keeps the shelves full until the node closes, then clears them.
pub(crate) async fn keep_ready(shared: Arc<Shared>) {
    let closing = shared.closing.clone();
    loop {
        tokio::select! {
            () = closing.cancelled() => break,
            () = shared.waiting.changed.notified() => {}
        }
        remove(&shared, shared.waiting.take_spent()).await;
        while !closing.is_cancelled() && shared.restores_idle() {
            let Some(id) = shared.waiting.emptiest(shared.config.machines_waiting) else { break };
            if !make_one(&shared, &id).await {
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = tokio::time::sleep(FAILURE_REST) => {}
                }
            }
        }
    }
    let mut left = shared.waiting.drain();
    left.extend(shared.waiting.take_spent());
    remove(&shared, left).await;
}

async fn remove(shared: &Shared, machines: Vec<ReadyMachine>) {
    for ready in machines {
        let ReadyMachine { berth, prepared, pin } = ready;
        prepared.discard().await;
        berth.remove(&shared.network).await;
        drop(pin);
        shared.snapshots.collect();
    }
}

async fn make_one(shared: &Arc<Shared>, id: &SnapshotId) -> bool {
    let Ok(pin) = shared.snapshots.pin(id) else {
        shared.waiting.unwant(id);
        return true;
    };
    let Ok(name) = random_name() else { return false };
    let directory = shared.paths.waiting().join(name);
    let (engine, network, names) = (&*shared.engine, &shared.network, &shared.names);
    let ready = async {
        let memory = archive::memory_of(shared, &pin)?;
        make_ready(engine, network, names, pin, memory, &directory, Vec::new()).await
    };
    match ready.await {
        Ok(ready) => {
            shared.waiting.lock().entry(id.clone()).or_default().push_back(ready);
            true
        }
        Err(error) => {
            tracing::warn!(%error, "could not start a machine ahead of need");
            false
        }
    }
}

/// Only templates are worth waiting for: other snapshots are restored once or a few times.
pub(crate) fn is_worth_it(purpose: &Purpose) -> bool {
    matches!(purpose, Purpose::Template { .. })
}
