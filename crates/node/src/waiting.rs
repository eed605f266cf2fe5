//! Machine processes started ahead of need, without a guest in them.
//!
//! Starting a process, linking its libraries and building an empty machine costs more than everything that follows. So a few are
//! kept ready for each template in use: memory mapped and untouched, disk cloned, network connected. They hold no guest and run no
//! instruction of one. They are made only while nobody waits for a restore, so that they never compete with one. How many there are
//! follows what was asked for at once (`waiting/demand.rs`).

mod demand;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::SnapshotId;
use tokio::sync::Notify;

use self::demand::Demand;
use crate::archive;
use crate::bake::{random_name, variant_base};
use crate::config::PrestartedVmms;
use crate::node::Shared;
use crate::restore::{ReadyMachine, make_ready};
use crate::snapshots::{Pin, SnapshotKind};

/// Rest after a failure to make one ready, so that a host in trouble is not kept busy by it.
const FAILURE_REST: Duration = Duration::from_secs(5);

/// After this long it is looked whether as many are needed.
const PERIOD: Duration = Duration::from_secs(60);

/// The machines that wait, by the snapshot they are for.
#[derive(Default)]
pub(crate) struct Waiting {
    shelves: Mutex<HashMap<SnapshotId, Shelf>>,
    /// Found ended when they were wanted, or no longer wanted; their networks and directories are still there.
    spent: Mutex<Vec<ReadyMachine>>,
    changed: Notify,
}

/// Those of one snapshot.
struct Shelf {
    ready: VecDeque<ReadyMachine>,
    demand: Demand,
    /// How many are ready even when none was asked for lately.
    least: usize,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<SnapshotId, Shelf>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A machine that waits for this snapshot, if there is one.
    pub(crate) fn take(&self, id: &SnapshotId, bounds: PrestartedVmms) -> Option<ReadyMachine> {
        let taken = loop {
            match self.lock().get_mut(id).and_then(|shelf| shelf.ready.pop_front()) {
                Some(ready) if !ready.prepared.is_alive() => self.spend([ready]),
                other => break other,
            }
        };
        let mut shelves = self.lock();
        let wanted: usize = shelves.values().map(|shelf| shelf.demand.wanted()).sum();
        if let Some(shelf) = shelves.get_mut(id) {
            match taken {
                Some(_) => shelf.demand.taken(shelf.ready.len()),
                None if wanted < bounds.most => shelf.demand.missed(),
                None => {}
            }
        }
        drop(shelves);
        self.changed.notify_one();
        taken
    }

    /// From now on machines are kept ready for this snapshot, at least so many.
    fn want(&self, id: &SnapshotId, least: usize) {
        let new = || Shelf { ready: VecDeque::new(), demand: Demand::new(least), least };
        self.lock().entry(id.clone()).or_insert_with(new);
        self.changed.notify_one();
    }

    /// No restore is under way any more, or fewer are.
    pub(crate) fn nudge(&self) {
        self.changed.notify_one();
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().values().map(|shelf| shelf.ready.len()).sum()
    }

    /// The snapshot of which fewest are ready, among those that want more.
    fn emptiest(&self) -> Option<SnapshotId> {
        let shelves = self.lock();
        let lacking = shelves.iter().filter(|(_, shelf)| shelf.ready.len() < shelf.demand.wanted());
        lacking.min_by_key(|(_, shelf)| shelf.ready.len()).map(|(id, _)| id.clone())
    }

    /// A period is over: those that are no longer worth keeping go.
    fn look(&self) {
        let mut surplus = Vec::new();
        for shelf in self.lock().values_mut() {
            shelf.demand.period_over(shelf.least, shelf.ready.len());
            while shelf.ready.len() > shelf.demand.wanted() {
                surplus.extend(shelf.ready.pop_back());
            }
        }
        self.spend(surplus);
    }

    /// Puts one that is ready with the others; gives it back where nobody wants it any more.
    fn put(&self, id: &SnapshotId, ready: ReadyMachine) -> Option<ReadyMachine> {
        match self.lock().get_mut(id) {
            Some(shelf) => shelf.ready.push_back(ready),
            None => return Some(ready),
        }
        None
    }

    /// Clears the shelf of a snapshot that is gone.
    pub(crate) fn unwant(&self, id: &SnapshotId) {
        let shelf = self.lock().remove(id);
        self.spend(shelf.into_iter().flat_map(|shelf| shelf.ready));
        self.changed.notify_one();
    }

    fn spend(&self, machines: impl IntoIterator<Item = ReadyMachine>) {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).extend(machines);
    }

    fn take_spent(&self) -> Vec<ReadyMachine> {
        std::mem::take(&mut *self.spent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn drain(&self) -> Vec<ReadyMachine> {
        self.lock().drain().flat_map(|(_, shelf)| shelf.ready).collect()
    }
}

/// Keeps the shelves full until the node closes, then clears them.
pub(crate) async fn keep_ready(shared: Arc<Shared>) {
    let closing = shared.closing.clone();
    let mut period = tokio::time::interval(PERIOD);
    loop {
        tokio::select! {
            () = closing.cancelled() => break,
            () = shared.waiting.changed.notified() => {}
            _ = period.tick() => shared.waiting.look(),
        }
        remove(&shared, shared.waiting.take_spent()).await;
        while !closing.is_cancelled() && shared.restores_idle() {
            let Some(id) = shared.waiting.emptiest() else { break };
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
        let ReadyMachine { resources, prepared, pin } = ready;
        prepared.discard().await;
        resources.remove(&shared.network).await;
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
            let unwanted = shared.waiting.put(id, ready);
            remove(shared, unwanted.into_iter().collect()).await;
            true
        }
        Err(error) => {
            tracing::warn!(%error, "could not start a machine ahead of need");
            false
        }
    }
}

/// From now on machines are kept ready for this snapshot, if that is worth it. Only templates are worth waiting for: other snapshots are
/// restored once or a few times. Of a template in another size so many are kept as were asked for lately, which may be none.
pub(crate) fn want(shared: &Shared, pin: &Pin) {
    let bounds = shared.config.prestarted_vmms;
    if bounds.least == 0 || !matches!(pin.about().purpose, SnapshotKind::Template { .. }) {
        return;
    }
    let least = if variant_base(&pin.about().template).is_some() { 0 } else { bounds.least };
    shared.waiting.want(pin.id(), least);
}
