//! Makes a sandbox: a machine that waits, or a new one, restored as somebody new.

use std::sync::Arc;
use std::time::Instant;

use domain::SandboxId;
use domain::lifecycle::Phase;
use storage::Durability;

use crate::berth::Berth;
use crate::driver::{self, Running, Sandbox};
use crate::error::NodeError;
use crate::node::Shared;
use crate::record::SandboxRecord;
use crate::restore::{LiveMachine, ReadyMachine, RestoreTimings, make_ready, milliseconds, restore};
use crate::snapshots::Pin;
use crate::waiting;

/// Restores a snapshot as a new sandbox. After `Err` nothing is left.
pub(crate) async fn make(
    shared: &Arc<Shared>,
    id: SandboxId,
    pin: Pin,
) -> Result<(Sandbox, RestoreTimings), NodeError> {
    pin.about().fingerprint.fits(shared.engine.fingerprint())?;
    let _turn = shared.restore_turn().await?;
    tokio::task::block_in_place(|| shared.snapshots.verify(&pin))?;
    let mut timings = RestoreTimings::default();
    let directory = shared.paths.sandbox(&id);
    if directory.exists() {
        return Err(NodeError::Exists(id));
    }
    let about = pin.about().clone();
    let mut record =
        SandboxRecord::new(id, pin.id().clone(), &about).map_err(NodeError::host("make an identity"))?;
    let (live, berth, pin) = settle_somewhere(shared, &record, pin, &mut timings).await?;

    record.phase = Phase::Running;
    record.generation += 1;
    record.slot = Some(berth.slot.get());
    record.vm = Some(live.vm.record());
    if let Err(error) = record.write(&directory, Durability::Unsynced) {
        live.vm.kill().await;
        berth.remove(&shared.network).await;
        return Err(NodeError::host("write down the sandbox")(error));
    }
    if waiting::is_worth_it(&about.purpose) && shared.config.machines_waiting > 0 {
        shared.waiting.want(pin.id());
    }
    let running = Running { vm: live.vm, link: Some(live.link), berth, pin: Some(pin) };
    let sandbox = driver::spawn(shared, record, Some(running));
    shared.remember(sandbox.clone());
    Ok((sandbox, timings))
}

/// In a machine that waits, or, where there is none or it turns out to have ended, in a new one.
async fn settle_somewhere(
    shared: &Arc<Shared>,
    record: &SandboxRecord,
    pin: Pin,
    timings: &mut RestoreTimings,
) -> Result<(LiveMachine, Berth, Pin), NodeError> {
    let started = Instant::now();
    if let Some(ready) = shared.waiting.take(pin.id()) {
        timings.was_waiting = true;
        match settle(shared, record, ready, started, timings).await {
            Err(NodeError::Start(error)) => {
                tracing::info!(%error, "a waiting machine could not be used; making another");
            }
            outcome => return outcome,
        }
    }
    timings.was_waiting = false;
    let aside = shared.paths.waiting().join(record.id.as_str());
    let ready = make_ready(&*shared.engine, &shared.network, &shared.names, pin, &aside).await?;
    settle(shared, record, ready, started, timings).await
}

/// Gives a ready machine its sandbox. After `Err` nothing is left of either.
async fn settle(
    shared: &Arc<Shared>,
    record: &SandboxRecord,
    mut ready: ReadyMachine,
    started: Instant,
    timings: &mut RestoreTimings,
) -> Result<(LiveMachine, Berth, Pin), NodeError> {
    let directory = shared.paths.sandbox(&record.id);
    // The record is in place before the directory is: a killed node finds either nothing or a sandbox being made.
    let claimed = record
        .write(&ready.berth.directory, Durability::Unsynced)
        .and_then(|()| std::fs::rename(&ready.berth.directory, &directory));
    if let Err(error) = claimed {
        ready.prepared.discard().await;
        ready.berth.remove(&shared.network).await;
        return Err(NodeError::host("claim a place for the sandbox")(error));
    }
    ready.berth.directory = directory;
    timings.prepare_ms = milliseconds(started);
    restore(&shared.network, ready, record, shared.config.guest_patience, timings).await
}
