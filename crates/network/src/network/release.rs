//! Gives a slot back: removes its wire in the background, then frees the slot.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Inner, state::State};
use crate::{
    address::Slot,
    thread::{self, ThreadError},
    wire::{self, WireError},
};

/// Why a wire could not be removed. Its slot is not handed out again until a later release succeeds.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Something of it would not go.
    #[error("could not remove the network of slot {slot}")]
    Remove {
        /// The slot.
        slot: Slot,
        /// Why not.
        #[source]
        source: WireError,
    },
    /// The work could not be done.
    #[error("could not work on the network of slot {slot}")]
    Thread {
        /// The slot.
        slot: Slot,
        /// Why not.
        #[source]
        source: ThreadError,
    },
    /// The network was closed, or the runtime shut down, before the end. The next open removes what is left.
    #[error("the removal was abandoned")]
    Abandoned,
}

/// How a removal stands; `None` while it is under way.
pub(super) type Progress = watch::Receiver<Option<Result<(), Arc<ReleaseError>>>>;

/// A removal under way. It goes on whether or not anyone waits for it.
#[derive(Debug)]
pub struct Release {
    progress: Option<Progress>,
}

impl Release {
    /// Waits until everything of the wire is gone and its slot is free.
    pub async fn wait(self) -> Result<(), Arc<ReleaseError>> {
        let Some(mut progress) = self.progress else { return Ok(()) };
        match progress.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_) => Err(Arc::new(ReleaseError::Abandoned)),
        }
    }
}

impl Inner {
    /// Starts the removal of a slot that is leased or stuck; joins the one under way; else there is nothing to do.
    pub(super) fn release(self: &Arc<Self>, slot: Slot) -> Release {
        let mut state = self.lock();
        if let Some(progress) = state.removing.get(&slot) {
            return Release { progress: Some(progress.clone()) };
        }
        if state.closing {
            let (_, progress) = watch::channel(Some(Err(Arc::new(ReleaseError::Abandoned))));
            return Release { progress: Some(progress) };
        }
        let turn = match state.leased.remove(&slot) {
            Some(leased) => leased.turn,
            None if state.stuck.remove(&slot) => Arc::default(),
            None => return Release { progress: None },
        };
        self.start_removing(&mut state, slot, turn)
    }

    /// Starts the removal of a slot that was taken out of the state.
    pub(super) fn start_removing(
        self: &Arc<Self>,
        state: &mut State,
        slot: Slot,
        turn: Arc<tokio::sync::Mutex<()>>,
    ) -> Release {
        let (report, progress) = watch::channel(None);
        state.removing.insert(slot, progress.clone());
        let inner = Arc::clone(self);
        let task = async move {
            // What is being done to the wire ends first, then nothing else touches it.
            let _turn = turn.lock_owned().await;
            let result = inner.remove(slot).await;
            let mut state = inner.lock();
            state.removing.remove(&slot);
            if result.is_ok() {
                state.slots.give_back(slot);
            } else {
                state.stuck.insert(slot);
            }
            drop(state);
            report.send_replace(Some(result.map_err(Arc::new)));
            inner.changed.notify_waiters();
            inner.wanted.notify_one();
        };
        // Under the caller's lock, so that closing, which takes it, waits for this task.
        self.tasks.spawn_on(task, &self.runtime);
        Release { progress: Some(progress) }
    }

    /// Removes whatever there is of a slot's wire.
    pub(super) async fn remove(&self, slot: Slot) -> Result<(), ReleaseError> {
        let _permit = self.removers.acquire().await.map_err(|_| ReleaseError::Abandoned)?;
        let site = Arc::clone(&self.site);
        thread::run(format!("net-remove-{slot}"), move || wire::remove(&site, slot))
            .await
            .map_err(|source| ReleaseError::Thread { slot, source })?
            .map_err(|source| ReleaseError::Remove { slot, source })
    }
}
