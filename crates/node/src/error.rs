//! Why something asked of a node was not done.

use std::fmt;
use std::path::PathBuf;

use domain::lifecycle::{Phase, Request};
use domain::{Mismatch, SandboxId, SnapshotId, TemplateName, VolumeId};
use guest_link::client::{CallError, LinkError};
use machine::{ControlError, HugePagesError, StartError};
use memory::stream::FetchError;
use network::{AddressPool, Conflict};
use storage::blobs::BlobError;
use storage::{CloneError, LockError, PoolError, SnapshotError, VolumeError};

/// Why a request to a node failed. Nothing is left behind, and nothing that was there is lost, unless a variant says so.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// There is no such sandbox.
    #[error("there is no sandbox {0}")]
    NoSandbox(SandboxId),
    /// There is a sandbox of that id.
    #[error("sandbox {0} exists already")]
    Exists(SandboxId),
    /// There is no such snapshot.
    #[error("there is no snapshot {0}")]
    NoSnapshot(SnapshotId),
    /// The snapshot is not on this host, and there is no archive to bring it from.
    #[error("snapshot {0} is kept in an archive, and this node has none")]
    NoArchive(SnapshotId),
    /// The archive does not do what it is asked.
    #[error("the archive could not be used")]
    Archive(#[from] BlobError),
    /// A part of a snapshot did not come from the archive.
    #[error("the snapshot could not be brought from the archive")]
    Fetch(#[from] FetchError),
    /// There is no such volume.
    #[error("there is no volume {0}")]
    NoVolume(VolumeId),
    /// There is a volume of that id.
    #[error("volume {0} exists already")]
    VolumeExists(VolumeId),
    /// A sandbox has the volume, asleep or not, in a way that excludes what was asked.
    #[error("volume {volume} is attached to sandbox {by}")]
    VolumeInUse {
        /// The volume.
        volume: VolumeId,
        /// Who has it.
        by: SandboxId,
    },
    /// A snapshot does not hold volumes, so a sandbox that writes one cannot be saved or forked.
    #[error("sandbox {0} has a volume attached for writing and can be neither saved nor forked")]
    HasVolumes(SandboxId),
    /// A snapshot's guest read a volume that may hold something else by now.
    #[error("volume {0} may have been written since the snapshot was taken of a guest that read it")]
    VolumeChanged(VolumeId),
    /// A guest could not mount a volume.
    #[error("volume {volume} could not be mounted at {place}: {said}")]
    NotMounted {
        /// The volume.
        volume: VolumeId,
        /// Where.
        place: String,
        /// Why, in terms of the guest.
        said: String,
    },
    /// More volumes than one sandbox may have.
    #[error("a sandbox has at most {max} volumes, not {asked}")]
    TooManyVolumes {
        /// What was asked.
        asked: usize,
        /// The bound.
        max: usize,
    },
    /// A volume cannot have this size. Volumes only grow.
    #[error("this volume can have {min} to {max} MiB, not {mib}")]
    VolumeSize {
        /// What was asked.
        mib: u64,
        /// The least it can have.
        min: u64,
        /// The most.
        max: u64,
    },
    /// The pool could not hold all volumes if they were full.
    #[error("{free} bytes are free on the host, and its volumes may need {required}")]
    NoRoom {
        /// Bytes that are free.
        free: u64,
        /// Bytes that all volumes, with the one asked for, may still take.
        required: u64,
    },
    /// Volumes on disk.
    #[error("could not keep the volume")]
    Volume(#[source] VolumeError),
    /// The network's policy could not be set.
    #[error("could not change the network policy")]
    Policy(#[from] network::SetPolicyError),
    /// The rules forbid it in this phase.
    #[error("sandbox {id} is {phase:?} and cannot {request:?}")]
    Refused {
        /// The sandbox.
        id: SandboxId,
        /// What it is doing.
        phase: Phase,
        /// What was asked.
        request: Request,
    },
    /// Its virtual machine ended by itself.
    #[error("the machine of sandbox {id} ended: {reason}")]
    Died {
        /// The sandbox.
        id: SandboxId,
        /// How it ended.
        reason: String,
    },
    /// Saved elsewhere or by another engine; it can be started from its disk.
    #[error("the saved memory does not fit this host and can only be started from its disk")]
    Unfit(#[from] Mismatch),
    /// Saved files are not what was written.
    #[error("the saved machine is damaged: {what}")]
    Damaged {
        /// Which part.
        what: String,
    },
    /// A root disk can only grow.
    #[error("a root disk of {wanted} bytes was asked for where there are {there} already")]
    DiskTooSmall {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes of the disk it starts from.
        there: u64,
    },
    /// The disk is full.
    #[error("no space is left for {what}")]
    NoSpace {
        /// What needed it.
        what: &'static str,
    },
    /// The guest did not answer in time.
    #[error("the guest did not {what} within {seconds} s")]
    GuestSilent {
        /// What it should have done.
        what: &'static str,
        /// The deadline.
        seconds: u64,
    },
    /// The guest answered that it cannot, or broke the protocol.
    #[error("the guest could not {what}")]
    Guest {
        /// What it should have done.
        what: &'static str,
        /// Its reason.
        #[source]
        source: CallError,
    },
    /// The machine of a build ended by itself.
    #[error("the machine of the build ended: {reason}")]
    WorkshopEnded {
        /// How it ended.
        reason: String,
    },
    /// A command of a build was killed because its time was up.
    #[error("the command did not end within {seconds} s")]
    StepTimeout {
        /// The deadline.
        seconds: u64,
    },
    /// The guest's own tool could not do its part of a build.
    #[error("could not {what}: {said}")]
    Tool {
        /// What it should have done.
        what: &'static str,
        /// Its reason, in terms of the guest.
        said: String,
    },
    /// The machine could not be started.
    #[error("could not start the machine")]
    Start(#[source] StartError),
    /// Machines of this host cannot be so.
    #[error("{0}")]
    Shape(HugePagesError),
    /// The machine did not obey.
    #[error("could not control the machine")]
    Control(#[source] ControlError),
    /// No network for it.
    #[error("could not get a network")]
    Network(#[from] network::AcquireError),
    /// A template could not be built.
    #[error("could not build template {template}")]
    Build {
        /// Its name.
        template: TemplateName,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A template's warm-up command failed.
    #[error("template {template} could not be warmed up: `{command}` ended with {status}: {output}")]
    Warm {
        /// Its name.
        template: TemplateName,
        /// The command.
        command: String,
        /// How it ended.
        status: String,
        /// The tail of what it said.
        output: String,
    },
    /// A template's start command ended, or what it starts did not become ready.
    #[error("template {template} did not start: `{command}` {status}: {output}")]
    NotStarted {
        /// Its name.
        template: TemplateName,
        /// The command: the start command, or the check of what it starts.
        command: String,
        /// What became of it.
        status: String,
        /// The last of what it said.
        output: String,
    },
    /// What an image says about its processes cannot be.
    #[error("the defaults of template {template} cannot be used: {reason}")]
    Defaults {
        /// Its name.
        template: TemplateName,
        /// Why.
        reason: String,
    },
    /// The guest booted with a clock that makes it tick for ever.
    #[error("the guest settled for the clock `{clock}`; the host may be too busy to bake a template now")]
    PoorClock {
        /// The clock.
        clock: String,
    },
    /// Snapshots on disk.
    #[error("could not keep the snapshot")]
    Snapshot(#[source] SnapshotError),
    /// Another file operation.
    #[error("could not {action}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The node is shutting down.
    #[error("the node is shutting down")]
    Closing,
    /// More children than one fork may have.
    #[error("a fork makes 1 to {max} children, not {asked}")]
    ForkCount {
        /// What was asked.
        asked: usize,
        /// The bound.
        max: usize,
    },
}

impl NodeError {
    /// KeyedMutex an I/O error into one of ours, telling a full disk from the rest.
    pub(crate) fn host(action: &'static str) -> impl Fn(std::io::Error) -> NodeError + Copy {
        move |source| match storage::is_no_space(&source) {
            true => NodeError::NoSpace { what: action },
            false => NodeError::Host { action, source },
        }
    }

    pub(crate) fn link(what: &'static str) -> impl Fn(LinkError) -> NodeError {
        move |source| NodeError::Guest { what, source: source.into() }
    }

    pub(crate) fn guest(what: &'static str) -> impl Fn(CallError) -> NodeError {
        move |source| NodeError::Guest { what, source }
    }
}

impl From<StartError> for NodeError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::HugePages(error @ HugePagesError::Size { .. }) => NodeError::Shape(error),
            error => NodeError::Start(error),
        }
    }
}

impl From<ControlError> for NodeError {
    fn from(error: ControlError) -> Self {
        let full = match &error {
            ControlError::Capture(source) => {
                matches!(source.downcast_ref::<memory::CaptureError>(), Some(memory::CaptureError::NoSpace))
            }
            // The engine writes the devices itself and tells of a full disk in the words of the C library.
            ControlError::Refused { reason, .. } => reason.contains("No space left on device"),
            ControlError::Host { source, .. } => storage::is_no_space(source),
            _ => false,
        };
        if full { NodeError::NoSpace { what: "the machine's state" } } else { NodeError::Control(error) }
    }
}

impl From<SnapshotError> for NodeError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::NoSpace => NodeError::NoSpace { what: "the snapshot" },
            SnapshotError::Damaged { what, .. } => NodeError::Damaged { what: what.to_string() },
            other => NodeError::Snapshot(other),
        }
    }
}

impl From<VolumeError> for NodeError {
    fn from(error: VolumeError) -> Self {
        let known = |id: &str| VolumeId::parse(id).ok();
        match error {
            VolumeError::NoSpace => NodeError::NoSpace { what: "the volume" },
            VolumeError::NotFound { ref id } => {
                known(id).map_or(NodeError::Volume(error), NodeError::NoVolume)
            }
            VolumeError::AlreadyExists { ref id } => {
                known(id).map_or(NodeError::Volume(error), NodeError::VolumeExists)
            }
            other => NodeError::Volume(other),
        }
    }
}

impl From<CloneError> for NodeError {
    fn from(error: CloneError) -> Self {
        match error {
            CloneError::NoSpace => NodeError::NoSpace { what: "a clone" },
            CloneError::TargetExists => {
                NodeError::Host { action: "clone a file", source: std::io::ErrorKind::AlreadyExists.into() }
            }
            CloneError::Source(source) | CloneError::Target(source) => {
                NodeError::Host { action: "clone a file", source }
            }
        }
    }
}

/// Why a range of addresses was refused.
#[derive(Debug, thiserror::Error)]
pub struct AddressesInUse {
    /// The range.
    pub pool: AddressPool,
    /// Who has addresses of it.
    pub conflict: Conflict,
    /// The data directory of the other instance, where that is known.
    pub data_dir: Option<PathBuf>,
    /// Whether the other instance has no server.
    pub is_over: bool,
    /// A range that could be used.
    pub free: Option<AddressPool>,
}

impl fmt::Display for AddressesInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "addresses of {} are in use: {}", self.pool, self.conflict)?;
        if let Some(data_dir) = &self.data_dir {
            write!(f, ", its data directory is {}", data_dir.display())?;
        }
        if self.is_over {
            write!(f, ", its server is not running")?;
        }
        Ok(())
    }
}

/// Why a node could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another instance, or the host, has addresses of the range. Nothing was made.
    #[error(transparent)]
    Addresses(Box<AddressesInUse>),
    /// What else has addresses could not be found out. Nothing was made.
    #[error("could not find out which addresses are in use")]
    Neighbours(#[from] network::NeighboursError),
    /// A restore into the data directory did not finish.
    #[error("a restore into {} did not finish", data_dir.display())]
    HalfRestored {
        /// The directory.
        data_dir: PathBuf,
    },
    /// Another process owns the data directory, or it cannot be used.
    #[error("could not take the data directory")]
    Lock(#[from] LockError),
    /// No pool.
    #[error("could not open the storage pool")]
    Pool(#[from] PoolError),
    /// The engine does not work here.
    #[error("could not open the engine")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The network could not be set up.
    #[error("could not open the network")]
    Network(#[from] network::OpenError),
    /// Snapshots cannot be read.
    #[error("could not open the snapshots")]
    Snapshots(#[from] SnapshotError),
    /// The archive cannot be used.
    #[error("could not open the archive of snapshots")]
    Archive(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Volumes cannot be kept.
    #[error("could not open the volumes")]
    Volumes(#[from] VolumeError),
    /// Images cannot be kept.
    #[error("could not open the image cache")]
    Images(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A file operation failed.
    #[error("could not {action}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
