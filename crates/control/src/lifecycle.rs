//! Pausing, sleeping, waking, and how long a sandbox may idle.

use contract::lifecycle::{Lifecycle, PatchLifecycle};
use domain::lifecycle::Phase;
use node::Sandbox;
use serde_json::json;
use store::{SandboxChange, SandboxRow, Scope};
use tracing::field::Empty;

use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::Control;
use crate::error::ControlError;
use crate::names;
use crate::operation::{note_save, operation, traced};

impl Control {
    /// Does something with a sandbox to its end, which counts as a use of it.
    async fn with_sandbox<F>(
        &self,
        caller: &Caller,
        id: &str,
        work: impl FnOnce(Control, SandboxRow, Sandbox) -> F,
    ) -> Result<(), ControlError>
    where
        F: Future<Output = Result<(), ControlError>> + Send + 'static,
    {
        caller.require(Scope::Write)?;
        let row = self.row(caller, id).await?;
        let sandbox = self.node().sandbox(&row.id)?;
        let using = self.activity().begin(&row.id);
        let control = self.clone();
        let outcome = self.finish(work(control, row, sandbox)).await;
        drop(using);
        outcome
    }

    /// Stops a sandbox's CPUs. Doing it twice is fine.
    pub async fn pause(&self, caller: &Caller, id: &str) -> Result<(), ControlError> {
        self.with_sandbox(caller, id, |control, row, sandbox| async move {
            let before = sandbox.state().record.phase;
            traced(operation!("sandbox.pause", row), async { Ok(sandbox.pause().await?) }).await?;
            if before != Phase::Paused {
                control.happened(&row.tenant, &row.id, "sandbox.paused", None).await;
            }
            Ok(())
        })
        .await
    }

    /// Lets a paused sandbox go on. Doing it twice is fine.
    pub async fn resume(&self, caller: &Caller, id: &str) -> Result<(), ControlError> {
        self.with_sandbox(caller, id, |control, row, sandbox| async move {
            let before = sandbox.state().record.phase;
            traced(operation!("sandbox.resume", row), async { Ok(sandbox.resume().await?) }).await?;
            if before != Phase::Running {
                control.happened(&row.tenant, &row.id, "sandbox.resumed", None).await;
            }
            Ok(())
        })
        .await
    }

    /// Puts a sandbox to sleep. Doing it twice is fine.
    pub async fn hibernate(&self, caller: &Caller, id: &str) -> Result<(), ControlError> {
        self.with_sandbox(
            caller,
            id,
            |control, row, sandbox| async move { control.sleep(&row, &sandbox).await },
        )
        .await
    }

    /// Puts a sandbox to sleep, on whoever's behalf.
    pub(crate) async fn sleep(&self, row: &SandboxRow, sandbox: &Sandbox) -> Result<(), ControlError> {
        if sandbox.state().record.phase == Phase::Hibernated {
            return Ok(());
        }
        let span = operation!("sandbox.hibernate", row, paused_ms = Empty, changed_bytes = Empty);
        let saving = async {
            let timings = sandbox.hibernate().await?;
            note_save(&timings);
            Ok(timings)
        };
        let timings = traced(span, saving).await?;
        let payload = json!({ "changed_bytes": timings.changed_bytes });
        self.happened(&row.tenant, &row.id, "sandbox.hibernated", Some(payload)).await;
        Ok(())
    }

    /// Wakes a sandbox. Doing it twice is fine.
    pub async fn wake(&self, caller: &Caller, id: &str) -> Result<(), ControlError> {
        self.with_sandbox(caller, id, |control, row, _| async move { control.wake_row(&row).await }).await
    }

    pub(crate) async fn wake_row(&self, row: &SandboxRow) -> Result<(), ControlError> {
        let sandbox = self.node().sandbox(&row.id)?;
        if sandbox.state().record.phase == Phase::Running {
            return Ok(());
        }
        let started = std::time::Instant::now();
        traced(operation!("sandbox.wake", row), async { Ok(sandbox.wake().await.map(drop)?) }).await?;
        self.measurements().woken(started.elapsed());
        self.happened(&row.tenant, &row.id, "sandbox.woken", None).await;
        Ok(())
    }

    /// Boots a sandbox from its disk: what was in its memory is lost, its files are not. One that runs goes on.
    pub async fn start_cold(&self, caller: &Caller, id: &str) -> Result<(), ControlError> {
        self.with_sandbox(caller, id, |control, row, sandbox| async move {
            if sandbox.state().record.phase == Phase::Running {
                return Ok(());
            }
            traced(operation!("sandbox.start_cold", row), async { Ok(sandbox.start_cold().await?) }).await?;
            let payload = json!({ "cold": true });
            control.happened(&row.tenant, &row.id, "sandbox.running", Some(payload)).await;
            Ok(())
        })
        .await
    }

    /// How long a sandbox may idle.
    pub async fn lifecycle(&self, caller: &Caller, id: &str) -> Result<Lifecycle, ControlError> {
        let row = self.row(caller, id).await?;
        Ok(self.lifecycle_of(&row))
    }

    fn lifecycle_of(&self, row: &SandboxRow) -> Lifecycle {
        let used_ms = self.activity().last_used_ms(&row.id).unwrap_or(row.used_ms);
        Lifecycle {
            ttl_seconds: row.ttl_seconds,
            persistent: row.persistent,
            idle_seconds: (now_ms() - used_ms).max(0) as u64 / 1000,
        }
    }

    /// Changes how long a sandbox may idle, and counts as a use of it.
    pub async fn patch_lifecycle(
        &self,
        caller: &Caller,
        id: &str,
        patch: PatchLifecycle,
    ) -> Result<Lifecycle, ControlError> {
        caller.require(Scope::Write)?;
        let mut row = self.row(caller, id).await?;
        let ttl_seconds = patch.ttl_seconds.map(|asked| self.ttl(Some(asked))).transpose()?;
        let change = SandboxChange { ttl_seconds, persistent: patch.persistent, ..SandboxChange::default() };
        if !self.store().change_sandbox(&row.id, change).await? {
            return Err(names::no_sandbox(id));
        }
        drop(self.activity().begin(&row.id));
        row.ttl_seconds = ttl_seconds.unwrap_or(row.ttl_seconds);
        row.persistent = patch.persistent.unwrap_or(row.persistent);
        Ok(self.lifecycle_of(&row))
    }

    /// Tells each time that a sandbox's machine ends by itself, until the sandbox is deleted.
    pub(crate) fn watch_for_death(&self, row: &SandboxRow) {
        let Ok(sandbox) = self.node().sandbox(&row.id) else { return };
        let (control, tenant, id) = (self.clone(), row.tenant.clone(), row.id.clone());
        let mut states = sandbox.watch();
        drop(sandbox);
        let watching = async move {
            loop {
                let died = states.wait_for(|state| state.record.phase == Phase::Died).await;
                let Ok(reason) = died.map(|state| state.record.died.clone().unwrap_or_default()) else {
                    return;
                };
                tracing::warn!(sandbox.id = %id, reason, "a sandbox's machine ended by itself");
                control.measurements().died();
                control.happened(&tenant, &id, "vm.died", Some(json!({ "reason": reason }))).await;
                // It may be started again from its disk, and end again.
                if states.wait_for(|state| state.record.phase != Phase::Died).await.is_err() {
                    return;
                }
            }
        };
        let closing = self.closing().clone();
        self.tasks().spawn(async move {
            tokio::select! {
                () = watching => {}
                () = closing.cancelled() => {}
            }
        });
    }
}
