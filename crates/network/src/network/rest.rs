//! Keeps the wire of a sandbox that sleeps: closes it, gives it a new tap, and leases it to the same sandbox again.

use std::sync::Arc;

use super::{
    Inner, Lease,
    resting::{Entry, Rest},
    state::State,
};
use crate::{
    address::Slot,
    wire::{self, Wire},
};

impl Inner {
    /// Makes the wire of a leased slot ready for the next lease, in the background.
    pub(super) fn rest(self: &Arc<Self>, slot: Slot) -> Rest {
        let rest = Rest::new(slot);
        let mut state = self.lock();
        if state.closing {
            return rest;
        }
        let Some(leased) = state.leased.remove(&slot) else { return rest };
        if let Some(oldest) = state.resting.begin(rest, Arc::clone(&leased.turn)) {
            self.remove_resting(&mut state, oldest);
        }
        if leased.policy.is_none() {
            // Found broken: its guest may have addresses that a new tap would not have.
            self.remove_token(&mut state, rest);
            return rest;
        }
        let inner = Arc::clone(self);
        let task = async move {
            // A policy change under way ends first.
            let _turn = leased.turn.lock_owned().await;
            inner.renew(rest).await;
        };
        // Under the lock, so that closing, which takes it, waits for this task.
        self.tasks.spawn_on(task, &self.runtime);
        drop(state);
        // Whoever waited for it may have it.
        self.changed.notify_waiters();
        rest
    }

    /// Leases the very wire that rests, if it is ready. One that is not will not be needed any more.
    pub(super) fn acquire_again(self: &Arc<Self>, rest: Rest) -> Option<Lease> {
        let mut state = self.lock();
        if state.closing {
            return None;
        }
        let mut entry = state.resting.take(rest)?;
        let Some(wire) = entry.wire.take() else {
            self.remove_resting(&mut state, entry);
            return None;
        };
        state.acquired_again_total += 1;
        Some(self.lease(&mut state, wire))
    }

    /// Removes the wire of a token, in the background.
    pub(super) fn forget(self: &Arc<Self>, rest: Rest) {
        let mut state = self.lock();
        if !state.closing {
            self.remove_token(&mut state, rest);
        }
    }

    /// Removes the wire that has rested longest, in the background. False if none rests.
    pub(super) fn make_room(self: &Arc<Self>, state: &mut State) -> bool {
        let oldest = state.resting.take_oldest();
        oldest.map(|oldest| self.remove_resting(state, oldest)).is_some()
    }

    fn remove_token(self: &Arc<Self>, state: &mut State, rest: Rest) {
        if let Some(entry) = state.resting.take(rest) {
            self.remove_resting(state, entry);
        }
    }

    fn remove_resting(self: &Arc<Self>, state: &mut State, entry: Entry<Wire>) {
        let slot = entry.rest.slot();
        let release = self.start_removing(state, slot, entry.turn);
        let wire = entry.wire;
        let task = async move {
            if let Err(error) = release.wait().await {
                tracing::warn!(error = &*error as &dyn std::error::Error, %slot, "slot set aside");
            }
            // Last, because closing the descriptor of a tap that is still there takes the kernel long.
            drop(wire);
        };
        self.tasks.spawn_on(task, &self.runtime);
    }

    /// Renews a wire. The caller has its turn, so a removal that is asked for meanwhile comes afterwards.
    async fn renew(self: &Arc<Self>, rest: Rest) {
        // One that was asked for before came first, and the slot may be somebody else's by now.
        if !self.lock().resting.has(rest) {
            return;
        }
        match self.try_make(rest.slot(), wire::renew).await {
            Ok(wire) => {
                let unwanted = self.lock().resting.renewed(rest, wire).err();
                if let Some(wire) = unwanted {
                    // Closing the tap blocks; that it fails to be joined means that the runtime is shut down.
                    drop(tokio::task::spawn_blocking(move || drop(wire)).await);
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not keep a network for its sandbox"
                );
                let mut state = self.lock();
                state.make_failures_total += 1;
                self.remove_token(&mut state, rest);
            }
        }
    }
}
