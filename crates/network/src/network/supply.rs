//! Wires for sandboxes: some made ahead of need, the rest on the spot.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    Inner, ReleaseError,
    state::{Leased, State},
};
use crate::{
    address::{AddressPool, GuestAddresses, Slot},
    policy::Policy,
    thread::{self, ThreadError},
    wire::{self, Site, Wire, WireError},
};

/// How long making ahead rests after a failure, doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long making ahead leaves the kernel's network lock to the sandbox that took a wire: about the time of a restore.
const REST: Duration = Duration::from_millis(50);

/// A closed network for one sandbox. It stays until its slot is released or rests, whoever drops this.
#[derive(Debug)]
pub struct Lease {
    /// The slot to release, and to claim after a restart.
    pub slot: Slot,
    /// Name of the namespace, as `ip netns` shows it.
    pub namespace: String,
    /// What the guest must use.
    pub addresses: GuestAddresses,
    /// The host's end of the guest's network card. The tap lives as long as this or a copy of it.
    pub tap: OwnedFd,
}

/// Why there is no network for a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Every slot belongs to a sandbox.
    #[error("no free subnet is left in {pool}: all {} are in use", .pool.capacity())]
    Exhausted {
        /// The pool.
        pool: AddressPool,
    },
    /// A wire could not be made.
    #[error("could not make a network for slot {slot}")]
    Make {
        /// The slot that was tried.
        slot: Slot,
        /// Why not.
        #[source]
        source: WireError,
    },
    /// The work could not be done.
    #[error("could not work on the network of slot {slot}")]
    Thread {
        /// The slot that was tried.
        slot: Slot,
        /// Why not.
        #[source]
        source: ThreadError,
    },
    /// The network is being closed.
    #[error("the network is closed")]
    Closed,
}

impl Inner {
    /// Leases a ready wire, or the first that becomes ready.
    pub(super) async fn acquire(self: &Arc<Self>) -> Result<Lease, AcquireError> {
        // Wires are handed over through the shared queue only: a caller who goes away loses none.
        let mut own: Option<oneshot::Receiver<AcquireError>> = None;
        let mut waited = false;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(lease) = self.take_ready(waited)? {
                return Ok(lease);
            }
            waited = true;
            match &mut own {
                None => match self.start_making()? {
                    Some(failure) => own = Some(failure),
                    None => changed.await,
                },
                Some(failure) => tokio::select! {
                    result = failure => match result {
                        Ok(error) => return Err(error),
                        // Made: look again, and make another if someone was quicker.
                        Err(_) => own = None,
                    },
                    () = changed => {}
                },
            }
        }
    }

    fn take_ready(&self, waited: bool) -> Result<Option<Lease>, AcquireError> {
        let mut state = self.lock();
        if state.closing {
            return Err(AcquireError::Closed);
        }
        let Some(wire) = state.ready.pop_front() else { return Ok(None) };
        let total = if waited { &mut state.acquired_cold_total } else { &mut state.acquired_prepared_total };
        *total += 1;
        let lease = self.lease(&mut state, wire);
        drop(state);
        self.wanted.notify_one();
        Ok(Some(lease))
    }

    /// Leases a wire that was taken out of the state.
    pub(super) fn lease(&self, state: &mut State, Wire { slot, tap }: Wire) -> Lease {
        state.leased.insert(slot, Leased::new(Some(Policy::Closed)));
        let (namespace, addresses) = (self.site.tag.namespace(slot), self.site.addresses(slot));
        Lease { slot, namespace, addresses, tap }
    }

    /// Starts making a wire, and returns where a failure will be told; the sender is dropped on success.
    /// `None` if no slot is free now but one is about to be.
    fn start_making(self: &Arc<Self>) -> Result<Option<oneshot::Receiver<AcquireError>>, AcquireError> {
        let mut state = self.lock();
        if state.closing {
            return Err(AcquireError::Closed);
        }
        let Some(slot) = state.slots.take() else {
            let coming = state.making > 0
                || !state.removing.is_empty()
                || !state.ready.is_empty()
                || state.leased.values().any(|leased| leased.is_leaving);
            // Whoever needs a network now goes before whoever may come back.
            return if coming || self.make_room(&mut state) {
                Ok(None)
            } else {
                Err(AcquireError::Exhausted { pool: self.site.pool })
            };
        };
        state.making += 1;
        let (report, failure) = oneshot::channel();
        let inner = Arc::clone(self);
        let task = async move {
            if let Err(error) = inner.make(slot).await
                && let Err(error) = report.send(error)
            {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not make a network nobody waits for"
                );
            }
        };
        // Under the lock, so that closing, which takes it, waits for this task.
        self.tasks.spawn_on(task, &self.runtime);
        drop(state);
        Ok(Some(failure))
    }

    /// Makes a wire for a slot that was counted as being made, and puts it into the queue.
    async fn make(&self, slot: Slot) -> Result<(), AcquireError> {
        let result = self.try_make(slot, wire::make).await;
        let cleaned = match &result {
            Ok(_) => Ok(()),
            Err(_) => self.remove(slot).await,
        };
        self.file(slot, result, cleaned)
    }

    /// Does with the wire of a slot what `make` does, on a thread of its own.
    pub(super) async fn try_make(
        &self,
        slot: Slot,
        make: fn(&Site, Slot) -> Result<Wire, WireError>,
    ) -> Result<Wire, AcquireError> {
        let _permit = self.makers.acquire().await.map_err(|_| AcquireError::Closed)?;
        let site = Arc::clone(&self.site);
        thread::run(format!("net-make-{slot}"), move || make(&site, slot))
            .await
            .map_err(|source| AcquireError::Thread { slot, source })?
            .map_err(|source| AcquireError::Make { slot, source })
    }

    fn file(
        &self,
        slot: Slot,
        result: Result<Wire, AcquireError>,
        cleaned: Result<(), ReleaseError>,
    ) -> Result<(), AcquireError> {
        let mut state = self.lock();
        state.making -= 1;
        let outcome = result.map(|wire| state.ready.push_back(wire));
        if outcome.is_err() {
            state.make_failures_total += 1;
            match cleaned {
                Ok(()) => {
                    state.slots.give_back(slot);
                }
                Err(error) => {
                    state.stuck.insert(slot);
                    tracing::warn!(error = &error as &dyn std::error::Error, %slot, "slot set aside");
                }
            }
        }
        drop(state);
        self.changed.notify_waiters();
        self.wanted.notify_one();
        outcome
    }

    /// Keeps wires ready until the network is closed.
    pub(super) async fn keep_supplied(self: Arc<Self>) {
        let mut retry = RETRY_MIN;
        while !self.stop.is_cancelled() {
            let Some(slot) = self.slot_to_prepare() else {
                tokio::select! {
                    () = self.wanted.notified() => {}
                    () = self.stop.cancelled() => return,
                }
                self.let_others_go_first().await;
                continue;
            };
            match self.make(slot).await {
                Ok(()) => retry = RETRY_MIN,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "could not prepare a network");
                    tokio::select! {
                        () = tokio::time::sleep(retry) => retry = (retry * 2).min(RETRY_MAX),
                        () = self.stop.cancelled() => return,
                    }
                }
            }
        }
    }

    /// Backoff while the sandbox that has just got a wire starts, unless there is no wire left for the next one: what
    /// is done ahead of need should not slow down what is needed now.
    async fn let_others_go_first(&self) {
        if !self.lock().ready.is_empty() {
            tokio::select! {
                () = tokio::time::sleep(REST) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// Takes a slot if fewer wires than configured are ready or being made.
    fn slot_to_prepare(&self) -> Option<Slot> {
        let mut state = self.lock();
        let supply = u32::try_from(state.ready.len()).unwrap_or(u32::MAX).saturating_add(state.making);
        if state.closing || supply >= self.prepared {
            return None;
        }
        let slot = state.slots.take()?;
        state.making += 1;
        Some(slot)
    }
}
