//! What an engine promises, whatever program is behind it.
//!
//! The caller owns files and networks and hands them in open; the engine owns processes. Memory is a file: booting maps
//! it shared, restoring maps it privately and copy-on-write or fetches it on demand, saving writes what changed over a copy of it.
//! Engines differ in how, never in what.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use domain::{EngineFingerprint, MachineShape};
use memory::pages::{PageError, Regions, Trace};
use memory::stream::{ChunkSource, FileSource};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use crate::counters::Counters;
use crate::huge_pages::HugePagesError;
use crate::process::ProcessIdentity;

/// Volumes of one machine. Every machine has the devices for them, with or without volumes, because a restored machine must have
/// the devices of the saved one; each costs about 0.1 ms of starting and 200 kB of memory.
pub const VOLUMES_MAX: usize = 4;

/// Runs virtual machines, each in a jail of its own.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// What state saved by this engine depends on.
    fn fingerprint(&self) -> &EngineFingerprint;

    /// Boots a kernel. The guest runs when this returns. After `Err` nothing is left on the host.
    async fn boot(&self, plan: BootPlan) -> Result<Arc<dyn Vm>, StartError>;

    /// Starts a machine process that maps the memory but holds no guest state yet: everything about a restore that does not
    /// need the moment of the request. After `Err` nothing is left on the host.
    async fn prepare(&self, plan: RestorePlan) -> Result<Box<dyn Prepared>, StartError>;

    /// Takes charge again of a machine that an earlier node process started. Refuses when the process is gone or is not the
    /// one recorded; leaves the machine as it is. `memory` is where its memory comes from, where the record says that it comes on
    /// demand.
    async fn attach(
        &self,
        record: &VmRecord,
        place: &Place,
        memory: Option<MemoryOrigin>,
    ) -> Result<Arc<dyn Vm>, AttachError>;

    /// Whether a machine can begin before its memory is here ([`MemoryOrigin::LazyMemory`]).
    fn takes_memory_on_demand(&self) -> bool {
        false
    }

    /// Whether the host gets back what a restored machine's guest frees.
    fn reclaims_free_pages(&self) -> bool {
        false
    }
}

/// A machine process that waits for its guest. Dropping it ends the process.
#[async_trait]
pub trait Prepared: Send {
    /// How to find the process again.
    fn record(&self) -> VmRecord;

    /// Whether the process is still there.
    fn is_alive(&self) -> bool;

    /// Loads the saved devices. The guest is whole and paused when this returns. After `Err` the process is gone.
    async fn load(self: Box<Self>, devices: File) -> Result<Arc<dyn Vm>, StartError>;

    /// Ends the process; returns when it is gone.
    async fn discard(self: Box<Self>);
}

/// One virtual machine process with a guest in it.
#[async_trait]
pub trait Vm: Send + Sync {
    /// How to find it again after a restart of the node.
    fn record(&self) -> VmRecord;

    /// What the engine says the guest's CPUs do.
    async fn state(&self) -> Result<VmState, ControlError>;

    /// Stops the guest's CPUs and completes device I/O that is under way. Safe to repeat.
    async fn pause(&self) -> Result<(), ControlError>;

    /// Lets the guest go on. Safe to repeat.
    async fn resume(&self) -> Result<(), ControlError>;

    /// Tells the guest that the file behind a volume, open for writing, has grown to this size. For a guest that has run since
    /// it was restored. Safe to repeat.
    async fn grow_volume(&self, slot: usize, bytes: u64) -> Result<(), ControlError>;

    /// The same for the root disk.
    async fn grow_root(&self, bytes: u64) -> Result<(), ControlError>;

    /// Writes the paused guest's devices, and its changed memory over a copy of the memory it was restored from.
    /// The guest stays paused. After `Err` the targets hold nothing of use; the guest is unharmed.
    async fn save(&self, target: SaveTarget) -> Result<Saved, ControlError>;

    /// A connection to the guest's end of the link. One at a time: a second one is served when the first is closed.
    async fn connect_link(&self) -> Result<UnixStream, ControlError>;

    /// Lets machines that somebody waits for, and the node itself, go first on the host's processors from now on: its guest has answered and
    /// works on its own account. Safe to repeat.
    fn deprioritize(&self);

    /// What its devices have carried so far; `None` for one that does not say, because an older node started it. Does not disturb the
    /// guest. Safe to give up waiting for.
    async fn counters(&self) -> Result<Option<Counters>, ControlError>;

    /// What a machine whose memory comes on demand has asked for, in that order; `None` for any other.
    fn trace(&self) -> Option<Trace> {
        None
    }

    /// The last lines the guest wrote to its console, for error texts.
    async fn console_tail(&self) -> String;

    /// Completes when the process has ended, however it ended; at once if it already has.
    async fn exited(&self) -> Exit;

    /// Ends the process without asking the guest; returns when it is gone. Safe to repeat.
    async fn kill(&self);
}

/// Where a machine process keeps its sockets, and as whom it runs.
#[derive(Debug, Clone)]
pub struct Place {
    /// A directory that belongs to this machine alone; only root may enter it.
    pub directory: PathBuf,
    /// Distinguishes this process from all others of the host in process lists; survives in its command line.
    pub name: String,
    /// Which data directory it belongs to, among all that are used on the host.
    pub instance: String,
    /// User and group id of the process, unique among running machines.
    pub uid: u32,
}

/// A machine to boot from a kernel.
#[derive(Debug)]
pub struct BootPlan {
    /// Where it lives.
    pub place: Place,
    /// Size.
    pub shape: MachineShape,
    /// Uncompressed kernel image.
    pub kernel: PathBuf,
    /// Initial file system, whose `/init` runs first.
    pub initramfs: PathBuf,
    /// File of the machine's exact memory size, readable and writable by everyone who can reach it; the guest's memory *is* this
    /// file.
    pub memory: File,
    /// Root disk, opened for reading and writing.
    pub disk: File,
    /// Further disks, at most [`VOLUMES_MAX`]; the guest finds them after the root disk in this order.
    pub volumes: Vec<VolumeDrive>,
    /// Network interface, if any.
    pub tap: Option<OwnedFd>,
}

/// A machine to bring back from saved state.
#[derive(Debug)]
pub struct RestorePlan {
    /// Where it lives.
    pub place: Place,
    /// Size; the same as when it was saved.
    pub shape: MachineShape,
    /// Saved memory.
    pub memory: MemoryOrigin,
    /// Root disk of that same instant, opened for reading and writing.
    pub disk: File,
    /// Further disks, at most [`VOLUMES_MAX`]. The first ones are those that the saved machine had, in the same order and mode;
    /// the saved guest does not know of the rest until it looks for them.
    pub volumes: Vec<VolumeDrive>,
    /// Network interface; present exactly when the saved machine had one.
    pub tap: Option<OwnedFd>,
}

/// Where the memory of a restored machine comes from.
#[derive(Debug)]
pub enum MemoryOrigin {
    /// A file, readable by everyone who can reach it. Never written: many machines may map it at once, or be given its pages when they
    /// touch them.
    File(File),
    /// From elsewhere, when the guest first touches it. Only for engines that say so.
    LazyMemory(LazyMemory),
}

impl MemoryOrigin {
    /// For an engine that gives its machines memory when they touch it, wherever it is.
    pub(crate) fn on_demand(self) -> io::Result<LazyMemory> {
        Ok(match self {
            Self::LazyMemory(on_demand) => on_demand,
            Self::File(file) => {
                LazyMemory { source: Arc::new(FileSource::new(file)?), trace: Trace::default() }
            }
        })
    }
}

/// Memory that is fetched when it is touched.
#[derive(Clone)]
pub struct LazyMemory {
    /// Who fetches it. When that fails for good the machine ends and says why.
    pub source: Arc<dyn ChunkSource>,
    /// What is fetched ahead of need.
    pub trace: Trace,
}

impl fmt::Debug for LazyMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LazyMemory").finish_non_exhaustive()
    }
}

/// A disk besides the root disk.
#[derive(Debug)]
pub struct VolumeDrive {
    /// Its bytes, opened as the mode says.
    pub file: File,
    /// What the guest may do with it.
    pub mode: DriveMode,
}

/// What a guest may do with a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveMode {
    /// Read it. Writes fail in the machine process, whose descriptor cannot write either.
    ReadOnly,
    /// Read and write it.
    ReadWrite,
}

/// Where to save a machine to.
#[derive(Debug)]
pub struct SaveTarget {
    /// Where its memory goes; `None` for a machine that was booted: its memory file is complete as soon as it is paused.
    pub memory: Option<MemoryTarget>,
    /// An empty file for the devices' state, opened for writing only.
    pub devices: File,
}

/// Where the memory of a restored machine goes.
#[derive(Debug)]
pub struct MemoryTarget {
    /// The file it was restored from.
    pub base: File,
    /// A copy of that file, open for reading and writing.
    pub copy: File,
    /// When what is written goes to the disk.
    pub write_out: memory::WriteOut,
}

/// What a save wrote.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    /// Byte ranges of the memory file that now differ from the base.
    pub changed: Vec<std::ops::Range<u64>>,
    /// Checksums of the memory file there, where they were made along with it.
    pub sums: Option<memory::PageSums>,
    /// Bytes written to the memory file.
    pub written_bytes: u64,
}

/// How to find a machine process again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmRecord {
    /// The process.
    pub process: ProcessIdentity,
    /// Where its memory lies in it, if that comes on demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_demand: Option<Regions>,
}

/// What the guest's CPUs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmState {
    /// They run.
    Running,
    /// They are stopped.
    Paused,
}

/// How a machine process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// For operators: exit status or signal where it could be learned.
    pub reason: String,
}

/// Why a machine could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file or socket the machine needs could not be set up.
    #[error("could not {action}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The jail could not be entered.
    #[error("could not jail the machine process")]
    Jail(#[from] crate::jail::JailError),
    /// The engine needs all of the memory to begin with.
    #[error("this engine cannot begin before a machine's memory is there")]
    NotOnDemand,
    /// Its memory is to be in huge pages and cannot be.
    #[error("could not give the machine huge pages")]
    HugePages(#[from] HugePagesError),
    /// More volumes than a machine has room for.
    #[error("a machine has room for {VOLUMES_MAX} volumes, not {asked}")]
    TooManyVolumes {
        /// What was asked.
        asked: usize,
    },
    /// The process ended before the guest was there.
    #[error("the machine process ended while starting: {output}")]
    Ended {
        /// The tail of what it said.
        output: String,
    },
    /// The process did not obey.
    #[error("could not control the starting machine")]
    Control(#[from] ControlError),
}

/// Why a running machine did not obey.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The process is gone.
    #[error("the machine process has ended")]
    Ended,
    /// No answer in time.
    #[error("the machine process did not answer `{command}` within {seconds} s")]
    Unresponsive {
        /// The command.
        command: &'static str,
        /// The deadline.
        seconds: u64,
    },
    /// It answered that it cannot.
    #[error("the machine process refused `{command}`: {reason}")]
    Refused {
        /// The command.
        command: &'static str,
        /// Its words.
        reason: String,
    },
    /// Something that is not an answer came back.
    #[error("the machine process sent something that is not an answer to `{command}`")]
    Garbled {
        /// The command.
        command: &'static str,
    },
    /// A socket or file failed.
    #[error("could not {action}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Its memory is to be in huge pages and cannot be.
    #[error("could not give the machine huge pages")]
    HugePages(#[from] HugePagesError),
    /// Its memory does not come.
    #[error("the machine's memory could not be fetched")]
    Memory(#[source] PageError),
    /// Its memory could not be captured.
    #[error("could not capture the machine's memory")]
    Capture(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why a recorded machine could not be taken charge of.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No such process any more.
    #[error("the machine process is gone")]
    Gone,
    /// It is there but cannot be controlled.
    #[error("could not take charge of the machine process")]
    Control(#[from] ControlError),
}
