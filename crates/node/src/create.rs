//! Makes a sandbox: a machine that waits, or a new one, restored as somebody new.

use std::sync::Arc;
use std::time::Instant;

use domain::lifecycle::Phase;
use domain::{HostName, SandboxId};
use network::Policy;
use storage::Durability;
use tracing::info_span;

use crate::archive;
use crate::driver::{self, Running, Sandbox};
use crate::error::NodeError;
use crate::machine_resources::MachineResources;
use crate::node::Shared;
use crate::read_ahead;
use crate::record::SandboxRecord;
use crate::restore::{self, LiveMachine, ReadyMachine, RestoreTimings, make_ready, restore};
use crate::snapshots::{MEMORY, Pin, SnapshotKind};
use crate::step::Step;
use crate::volumes::{AttachMode, VolumeAttachment, VolumeRead};
use crate::waiting;

/// A sandbox to be made.
pub(crate) struct NewSandbox {
    pub(crate) id: SandboxId,
    /// What its guest calls itself, if it has a name.
    pub(crate) host_name: Option<HostName>,
    /// What it starts from.
    pub(crate) pin: Pin,
    /// Its volumes, besides those that the snapshot's guest was reading.
    pub(crate) volumes: Vec<VolumeAttachment>,
    pub(crate) network: Policy,
    /// Size of its root disk, if it shall grow.
    pub(crate) disk_bytes: Option<u64>,
}

/// Restores a snapshot as a new sandbox. After `Err` nothing is left.
pub(crate) async fn make(
    shared: &Arc<Shared>,
    new: NewSandbox,
) -> Result<(Sandbox, RestoreTimings), NodeError> {
    let NewSandbox { id, host_name, pin, volumes, network, disk_bytes } = new;
    pin.about().fingerprint.fits(shared.engine.fingerprint())?;
    // Not in anybody's way: it may take long.
    let pin = archive::bring(shared, pin).await?;
    let _turn = shared.restore_turn().await?;
    tokio::task::block_in_place(|| shared.snapshots.verify(&pin))?;
    let mut timings = RestoreTimings::default();
    let grown = disk_bytes.map(|bytes| grown_disk(&pin, bytes)).transpose()?.flatten();
    let directory = shared.paths.sandbox(&id);
    if directory.exists() {
        return Err(NodeError::Exists(id));
    }
    let mut record =
        SandboxRecord::new(id, pin.id().clone(), pin.about()).map_err(NodeError::host("make an identity"))?;
    record.host_name = host_name;
    record.network = network;
    record.volumes = inherited_volumes(shared, &pin)?;
    record.volumes.extend(volumes);
    let (id, volumes) = (record.id.clone(), record.volumes.clone());
    tokio::task::block_in_place(|| shared.volumes.claim(&id, &volumes))?;
    let made = make_with_volumes(shared, record, pin, grown, &mut timings).await;
    if made.is_err() {
        shared.volumes.release(&id, &volumes);
    }
    Ok((made?, timings))
}

/// The size to grow the root disk to, unless it has it.
fn grown_disk(pin: &Pin, wanted: u64) -> Result<Option<u64>, NodeError> {
    let there = std::fs::metadata(archive::disk_of(pin)?)
        .map_err(NodeError::host("look at a snapshot's disk"))?
        .len();
    match wanted {
        _ if wanted < there => Err(NodeError::DiskTooSmall { wanted, there }),
        _ => Ok((wanted > there).then_some(wanted)),
    }
}

/// The volumes that the guest of a snapshot was reading: it goes on reading them, so they must be as they were.
fn inherited_volumes(shared: &Shared, pin: &Pin) -> Result<Vec<VolumeAttachment>, NodeError> {
    let inherit = |read: &VolumeRead| match shared.volumes.look(&read.volume)?.writers == read.writers {
        true => Ok(VolumeAttachment {
            volume: read.volume.clone(),
            mode: AttachMode::ReadOnly,
            mount: read.mount.clone(),
        }),
        false => Err(NodeError::VolumeChanged(read.volume.clone())),
    };
    pin.about().volumes.iter().map(inherit).collect()
}

async fn make_with_volumes(
    shared: &Arc<Shared>,
    mut record: SandboxRecord,
    pin: Pin,
    grown: Option<u64>,
    timings: &mut RestoreTimings,
) -> Result<Sandbox, NodeError> {
    let inherited = pin.about().volumes.len();
    let (live, resources, pin) = settle_somewhere(shared, &record, pin, timings).await?;
    record.phase = Phase::Running;
    record.generation += 1;
    record.slot = Some(resources.slot.get());
    record.vm = Some(live.vm.record());
    record.engine = Some(shared.engine.fingerprint().clone());
    let connected = async {
        if let Some(bytes) = grown {
            restore::grow_root(&live, &resources.directory, bytes, shared.config.guest_patience).await?;
        }
        restore::find_volumes(&live.link, &record.volumes, shared.config.guest_patience).await?;
        // Those that the snapshot's guest was reading it has mounted already.
        restore::mount_volumes(&live.link, &record.volumes, inherited, shared.config.guest_patience).await?;
        restore::open_network(shared, resources.slot, record.network).await?;
        record
            .write(&resources.directory, Durability::Unsynced)
            .map_err(NodeError::host("write down the sandbox"))
    };
    if let Err(error) = connected.await {
        live.vm.kill().await;
        resources.remove(&shared.network).await;
        return Err(error);
    }
    waiting::want(shared, &pin);
    archive::keep_trace(shared, &pin, &live.vm);
    let running = Running::new(shared, live.vm, Some(live.link), resources, Some(pin));
    let sandbox = driver::spawn(shared, record, Some(running));
    shared.remember(sandbox.clone());
    Ok(sandbox)
}

/// In a machine that waits, or, where there is none or it turns out to have ended, in a new one. A machine is started with its
/// volumes, so one that waits has none.
async fn settle_somewhere(
    shared: &Arc<Shared>,
    record: &SandboxRecord,
    pin: Pin,
    timings: &mut RestoreTimings,
) -> Result<(LiveMachine, MachineResources, Pin), NodeError> {
    let started = Instant::now();
    if record.volumes.is_empty()
        && let Some(ready) = shared.waiting.take(pin.id(), shared.config.prestarted_vmms)
    {
        timings.prestarted = true;
        let prepare =
            Step::since(started, info_span!("machine.prepare", otel.kind = "internal", waiting = true));
        match settle(shared, record, ready, prepare, timings).await {
            Err(NodeError::Start(error)) => {
                tracing::info!(%error, "a waiting machine could not be used; making another");
            }
            outcome => return outcome,
        }
    }
    timings.prestarted = false;
    let prepare =
        Step::since(started, info_span!("machine.prepare", otel.kind = "internal", waiting = false));
    let aside = shared.paths.waiting().join(record.id.as_str());
    let volumes = shared.volumes.drives(&record.volumes)?;
    // Memory of templates stays in use, and so in memory.
    if !matches!(pin.about().purpose, SnapshotKind::Template { .. }) && !pin.is_elsewhere() {
        read_ahead::begin(pin.path(MEMORY)?);
    }
    let memory = archive::memory_of(shared, &pin)?;
    let ready =
        make_ready(&*shared.engine, &shared.network, &shared.names, pin, memory, &aside, volumes).await?;
    settle(shared, record, ready, prepare, timings).await
}

/// Gives a ready machine its sandbox. After `Err` nothing is left of either.
async fn settle(
    shared: &Arc<Shared>,
    record: &SandboxRecord,
    mut ready: ReadyMachine,
    prepare: Step,
    timings: &mut RestoreTimings,
) -> Result<(LiveMachine, MachineResources, Pin), NodeError> {
    let directory = shared.paths.sandbox(&record.id);
    // The record is in place before the directory is: a killed node finds either nothing or a sandbox being made.
    let claimed = record
        .write(&ready.resources.directory, Durability::Unsynced)
        .and_then(|()| std::fs::rename(&ready.resources.directory, &directory));
    if let Err(error) = claimed {
        ready.prepared.discard().await;
        ready.resources.remove(&shared.network).await;
        return Err(NodeError::host("claim a place for the sandbox")(error));
    }
    ready.resources.directory = directory;
    timings.prepare_ms = prepare.end_ms();
    restore(shared, ready, record, timings).await
}
