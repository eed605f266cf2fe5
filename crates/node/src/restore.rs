//! Brings a saved machine to life and makes it somebody.
//!
//! ```text
//! resources (directory, network) ─► disk clone ─► machine process ─► devices loaded ─► link + identity, guest runs ─► confirmed
//! ```
//!
//! Everything up to the loaded devices can happen ahead of need ([`crate::waiting`]). A restore counts when the guest has
//! confirmed its identity; one that fails leaves nothing.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::SandboxId;
use guest_link::GuestPath;
use guest_link::client::{CallError, Link, Opening};
use guest_link::message::{Failure, FileFailure, Identity, NetworkPast};
use machine::{Engine, Exit, MemoryOrigin, Prepared, RestorePlan, Vm, VolumeDrive};
use network::{Policy, Slot};
use serde::Serialize;
use storage::clone_file;
use tracing::info_span;

use crate::archive;
use crate::driver::DEATH_TIMEOUT;
use crate::error::NodeError;
use crate::identity::{Who, identity};
use crate::machine_resources::{MachineResources, Names, open_disk};
use crate::node::Shared;
use crate::record::SandboxRecord;
use crate::snapshots::{DEVICES, DISK, MEMORY, Pin, SnapshotKind};
use crate::step::Step;
use crate::volumes::{AttachMode, VolumeAttachment};

/// Where the time of a restore went.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct RestoreTimings {
    /// Until the machine process waited for its guest; nothing when it was taken ready.
    pub prepare_ms: f64,
    /// Loading the devices.
    pub load_ms: f64,
    /// From letting the guest run to its confirmation.
    pub confirm_ms: f64,
    /// The machine process had been started ahead of the request.
    pub prestarted: bool,
}

/// A machine process that waits for a guest, in its resources.
pub(crate) struct ReadyMachine {
    pub(crate) resources: MachineResources,
    pub(crate) prepared: Box<dyn Prepared>,
    /// Keeps the memory it maps in place.
    pub(crate) pin: Pin,
}

/// A machine whose guest runs and has confirmed who it is.
pub(crate) struct LiveMachine {
    pub(crate) vm: Arc<dyn Vm>,
    pub(crate) link: Link,
}

/// Starts a machine process for a snapshot in a new directory. After `Err` nothing is left.
pub(crate) async fn make_ready(
    engine: &dyn Engine,
    network: &network::Network,
    names: &Names,
    pin: Pin,
    memory: MemoryOrigin,
    directory: &Path,
    volumes: Vec<VolumeDrive>,
) -> Result<ReadyMachine, NodeError> {
    let mut resources = MachineResources::take(network, directory.to_owned()).await?;
    let prepared = async {
        let disk_path = directory.join(DISK);
        let (disk, _) = clone_file(&archive::disk_of(&pin)?, &disk_path)?;
        let plan = RestorePlan {
            place: names.place(directory, resources.slot),
            shape: pin.about().shape,
            memory,
            disk,
            volumes,
            tap: resources.tap.take(),
        };
        Ok::<_, NodeError>(engine.prepare(plan).await?)
    };
    match prepared.await {
        Ok(prepared) => Ok(ReadyMachine { resources, prepared, pin }),
        Err(error) => {
            resources.remove(network).await;
            Err(error)
        }
    }
}

/// The memory of a snapshot whose files are here.
pub(crate) fn open_memory(pin: &Pin) -> Result<File, NodeError> {
    File::open(pin.path(MEMORY)?).map_err(NodeError::host("open a snapshot's memory"))
}

/// Saved memory of the sandbox's own.
pub(crate) fn own_memory(path: &Path) -> Result<MemoryOrigin, NodeError> {
    Ok(MemoryOrigin::File(File::open(path).map_err(NodeError::host("open the saved memory"))?))
}

/// Starts a machine process over files of the sandbox's own: the disk as it is, no clone.
pub(crate) async fn prepare_own(
    engine: &dyn Engine,
    names: &Names,
    resources: &mut MachineResources,
    shape: domain::MachineShape,
    memory: &Path,
    volumes: Vec<VolumeDrive>,
) -> Result<Box<dyn Prepared>, NodeError> {
    let plan = RestorePlan {
        place: names.place(&resources.directory, resources.slot),
        shape,
        memory: own_memory(memory)?,
        disk: open_disk(&resources.directory.join(DISK))?,
        volumes,
        tap: resources.tap.take(),
    };
    Ok(engine.prepare(plan).await?)
}

/// Lets a loaded guest run and waits until it has confirmed its identity. After `Err` the machine process is gone.
pub(crate) async fn resume_and_confirm(
    vm: Arc<dyn Vm>,
    id: &SandboxId,
    identity: Identity,
    patience: Duration,
) -> Result<LiveMachine, NodeError> {
    match confirm(&*vm, id, identity, patience).await {
        Ok(link) => {
            vm.deprioritize();
            Ok(LiveMachine { vm, link })
        }
        Err(error) => {
            vm.kill().await;
            Err(error)
        }
    }
}

async fn confirm(
    vm: &dyn Vm,
    id: &SandboxId,
    identity: Identity,
    patience: Duration,
) -> Result<Link, NodeError> {
    let stream = vm.connect_link().await?;
    let talk = async {
        // The greeting and the identity are under way before the guest runs its first instruction.
        let (opened, resumed) =
            tokio::join!(biased; Link::open(stream, Opening::Clean, Some(identity)), vm.resume());
        resumed?;
        let (link, _) = opened.map_err(NodeError::guest("confirm its identity"))?;
        Ok(link)
    };
    let died = |exit: Exit| Err(NodeError::Died { id: id.clone(), reason: exit.reason });
    let failure = tokio::select! {
        talked = tokio::time::timeout(patience, talk) => match talked {
            Ok(Ok(link)) => return Ok(link),
            Ok(Err(error)) => error,
            Err(_) => {
                let seconds = patience.as_secs();
                return Err(NodeError::GuestSilent { what: "confirm its identity", seconds });
            }
        },
        exit = vm.exited() => return died(exit),
    };
    // Its connections may end before the machine process is seen to, and why that ended says more.
    tokio::time::timeout(DEATH_TIMEOUT, vm.exited()).await.map_or(Err(failure), died)
}

/// Loads a ready machine's devices from its snapshot and makes it somebody new. After `Err` nothing is left.
pub(crate) async fn restore(
    shared: &Shared,
    ready: ReadyMachine,
    record: &SandboxRecord,
    timings: &mut RestoreTimings,
) -> Result<(LiveMachine, MachineResources, Pin), NodeError> {
    let ReadyMachine { mut resources, prepared, pin } = ready;
    let dns = shared.config.name_servers.told_to(record.network);
    resources.told = Some(dns.clone());
    let live = async {
        // A template never had a network to remember.
        let past = match pin.about().purpose {
            SnapshotKind::Template { .. } => NetworkPast::None,
            SnapshotKind::Kept | SnapshotKind::Fork => NetworkPast::Possible,
        };
        let identity =
            identity(record.host_name(), &record.identity_seed, Who::Anew, resources.addresses, past, dns)
                .map_err(NodeError::host("make an identity"))?;
        let load = Step::begin(info_span!("machine.load", otel.kind = "internal"));
        let devices = File::open(pin.path(DEVICES)?).map_err(NodeError::host("open a snapshot's devices"))?;
        let vm = prepared.load(devices).await?;
        timings.load_ms = load.end_ms();
        let confirm = Step::begin(info_span!("machine.confirm", otel.kind = "internal"));
        let live = resume_and_confirm(vm, &record.id, identity, shared.config.guest_patience).await?;
        timings.confirm_ms = confirm.end_ms();
        Ok::<_, NodeError>(live)
    };
    match live.await {
        Ok(live) => Ok((live, resources, pin)),
        Err(error) => {
            resources.remove(&shared.network).await;
            Err(error)
        }
    }
}

/// Makes the root disk of a guest that runs larger, and the file system on it.
pub(crate) async fn grow_root(
    live: &LiveMachine,
    directory: &Path,
    bytes: u64,
    patience: Duration,
) -> Result<(), NodeError> {
    open_disk(&directory.join(DISK))?.set_len(bytes).map_err(NodeError::host("grow a disk"))?;
    live.vm.grow_root(bytes).await?;
    let silent = NodeError::GuestSilent { what: "grow its root file system", seconds: patience.as_secs() };
    let grown = tokio::time::timeout(patience, live.link.grow_root(bytes)).await.map_err(|_| silent)?;
    grown.map_err(NodeError::guest("grow its root file system"))
}

/// Makes a guest find its machine's volumes.
pub(crate) async fn find_volumes(
    link: &Link,
    volumes: &[VolumeAttachment],
    patience: Duration,
) -> Result<(), NodeError> {
    if volumes.is_empty() {
        return Ok(());
    }
    let read_only: Vec<bool> = volumes.iter().map(|volume| volume.mode == AttachMode::ReadOnly).collect();
    let silent = NodeError::GuestSilent { what: "find its volumes", seconds: patience.as_secs() };
    let found = tokio::time::timeout(patience, link.find_volumes(&read_only)).await.map_err(|_| silent)?;
    found.map_err(NodeError::guest("find its volumes"))
}

/// Makes a guest mount the volumes that were found and shall be mounted, but for the first `mounted` of them.
pub(crate) async fn mount_volumes(
    link: &Link,
    volumes: &[VolumeAttachment],
    mounted: usize,
    patience: Duration,
) -> Result<(), NodeError> {
    for (slot, attachment) in (0u8..).zip(volumes).skip(mounted) {
        let Some(place) = &attachment.mount else { continue };
        let read_only = attachment.mode == AttachMode::ReadOnly;
        let not_mounted = |said: String| NodeError::NotMounted {
            volume: attachment.volume.clone(),
            place: place.clone(),
            said,
        };
        let path = GuestPath::try_from(place.as_str()).map_err(|error| not_mounted(error.to_string()))?;
        let silent = NodeError::GuestSilent { what: "mount a volume", seconds: patience.as_secs() };
        let asked = link.mount_volume(slot, path, read_only);
        match tokio::time::timeout(patience, asked).await.map_err(|_| silent)? {
            Ok(()) => {}
            Err(CallError::Guest(failure)) => return Err(not_mounted(mount_failure(&failure, read_only))),
            Err(error) => return Err(NodeError::guest("mount a volume")(error)),
        }
    }
    Ok(())
}

/// Why a volume could not be mounted, for the caller.
fn mount_failure(failure: &Failure, read_only: bool) -> String {
    match failure {
        Failure::File(FileFailure::ReadOnly) if read_only => {
            "it was not unmounted cleanly; attach it for writing once, so that its journal is written back".to_owned()
        }
        Failure::File(FileFailure::Other { .. }) => {
            format!("it holds no ext4 file system that can be mounted: {failure}")
        }
        Failure::Malformed => "the guest of this snapshot is too old to mount volumes; leave `mount` out and mount it with a command".to_owned(),
        failure => failure.to_string(),
    }
}

/// Connects a guest that has confirmed who it is, where its policy says so. A new network is closed.
pub(crate) async fn open_network(shared: &Shared, slot: Slot, policy: Policy) -> Result<(), NodeError> {
    if policy == Policy::Closed { Ok(()) } else { Ok(shared.network.set_policy(slot, policy).await?) }
}

pub(crate) fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
