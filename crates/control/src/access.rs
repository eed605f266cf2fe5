//! Using a sandbox: waking it if it sleeps, and keeping it from being idle meanwhile.

use domain::lifecycle::Phase;
use guest_link::client::Link;
use store::{ProvisionState, SandboxRow, Scope};

use crate::activity::Using;
use crate::caller::Caller;
use crate::control::Control;
use crate::error::{ControlError, Kind, died};
use crate::names;

/// A sandbox whose guest can be talked to. It does not count as idle until this is dropped.
pub struct InUse {
    /// What is written about it.
    pub(crate) row: SandboxRow,
    /// The way to its guest.
    pub link: Link,
    _using: Using,
}

impl InUse {
    /// The sandbox's id.
    pub fn id(&self) -> &str {
        self.row.id.as_str()
    }
}

impl Control {
    /// A sandbox to use: woken if it sleeps.
    pub async fn enter(&self, caller: &Caller, id: &str) -> Result<InUse, ControlError> {
        caller.require(Scope::Write)?;
        self.enter_to_look(caller, id).await
    }

    /// A sandbox to look into without changing anything: woken if it sleeps.
    pub(crate) async fn enter_to_look(&self, caller: &Caller, id: &str) -> Result<InUse, ControlError> {
        let row = self.row(caller, id).await?;
        self.enter_row(row).await
    }

    /// A sandbox to use, for somebody who was let in another way.
    pub(crate) async fn enter_row(&self, row: SandboxRow) -> Result<InUse, ControlError> {
        if row.standing == ProvisionState::Deleting {
            return Err(names::no_sandbox(row.id.as_str()));
        }
        let using = self.activity().begin(&row.id);
        let sandbox = self.node().sandbox(&row.id)?;
        let state = sandbox.state();
        match state.record.phase {
            Phase::Running => {}
            Phase::Paused => {
                let paused = ControlError::conflict("the sandbox is paused");
                return Err(paused.hint("resume it first"));
            }
            Phase::Died => return Err(died(state.record.died.as_deref().unwrap_or("for an unknown reason"))),
            // Asleep, or on its way there or back: waking waits for what is under way.
            _ => {
                let (control, row) = (self.clone(), row.clone());
                self.finish(async move { control.wake_row(&row).await }).await.map_err(not_woken)?;
            }
        }
        let link = sandbox.link().await?;
        Ok(InUse { row, link, _using: using })
    }
}

fn not_woken(error: ControlError) -> ControlError {
    let kind = match error.kind {
        Kind::NotFound => return error,
        _ => Kind::Unavailable,
    };
    let mut told = ControlError::new(kind, format!("auto-wake: {}", error.message));
    told.hint.clone_from(&error.hint);
    told.retry_after = error.retry_after;
    told.progress.clone_from(&error.progress);
    told.because(error)
}
