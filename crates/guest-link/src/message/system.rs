//! The machine as a whole.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::path::GuestPath;

/// What to ask of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SystemRequest {
    /// Answer → `Response::Done`.
    Ping,
    /// TCP ports that something listens on → `Event::Ports` batches, `Response::Done`.
    Ports,
    /// Load → `Response::Metrics`.
    Metrics,
    /// Flush file systems → `Response::Done`.
    Sync,
    /// Flush file systems, drop clean caches and give unused blocks back → `Response::Done`. For baking.
    Trim,
    /// End all processes (asked, then killed), unmount, and stop the machine → `Response::Done` before it begins.
    Shutdown {
        /// How long processes get between being asked and being killed.
        grace_ms: u32,
    },
    /// Make sure that so many disks follow the root disk, as `/dev/vdb` and on → `Response::Done`. Those that are there already
    /// stay as they are.
    FindVolumes {
        /// How many.
        count: u8,
    },
    /// Flush the file systems on volumes and let nobody write them any more, so that they are as if unmounted → `Response::Done`.
    /// For a machine that is about to end.
    SealVolumes,
    /// Wait until the root disk has this size and let the file system on it fill it → `Response::Done`.
    GrowRoot {
        /// How large, at least.
        bytes: u64,
    },
    /// As `FindVolumes`, for a machine that has two devices for each volume, one for each mode, and uses one of them.
    FindVolumesInModes {
        /// For each volume whether it is read-only.
        read_only: Vec<bool>,
    },
    /// Mount a volume that was found at a directory, which is made if it is missing → `Response::Done`.
    MountVolume {
        /// Which one, counted from 0.
        slot: u8,
        /// Where.
        place: GuestPath,
        /// Whether it may not be written.
        read_only: bool,
    },
    /// Wait until a volume has this size and let the file system on it fill it, if it is mounted → `Response::Done`.
    GrowVolume {
        /// Which one, counted from 0.
        slot: u8,
        /// How large, at least.
        bytes: u64,
    },
    /// Ask these servers for names from now on, unless others than `before` were chosen in the guest → `Response::Done`.
    SetResolver {
        /// Whom to ask; nobody where the network is closed.
        servers: Vec<Ipv4Addr>,
        /// Whom it may have been told to ask before.
        before: Vec<Ipv4Addr>,
    },
}

/// A TCP port that something listens on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningPort {
    /// The address it is bound to.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// Who listens, when it could be found.
    pub pid: Option<u32>,
    /// That process's name.
    pub program: Option<String>,
    /// The socket's owner.
    pub uid: u32,
}

/// Load of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Processors.
    pub cpu: Cpu,
    /// Memory.
    pub memory: Memory,
    /// The root file system.
    pub disk: Disk,
    /// Nanoseconds since boot, time asleep in a snapshot not counted.
    pub uptime_ns: u64,
    /// The guest's clock.
    pub unix_time_ns: u64,
    /// Processes and threads that exist.
    pub tasks: u32,
}

/// Processor time since boot. Usage is the difference of two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// How many.
    pub count: u32,
    /// Time all of them had, in microseconds.
    pub total_us: u64,
    /// Time they worked.
    pub busy_us: u64,
    /// Load average over one minute, in thousandths.
    pub load_1m_milli: u32,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// What the kernel manages.
    pub total: u64,
    /// What programs could still get.
    pub available: u64,
    /// What is used by nothing at all.
    pub free: u64,
    /// File contents kept in memory.
    pub cached: u64,
}

/// A file system in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Its size.
    pub total: u64,
    /// In use.
    pub used: u64,
    /// Free for ordinary users.
    pub free: u64,
}
