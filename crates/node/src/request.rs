//! What a node is asked to make, and what came of a fork.

use domain::{HostName, SandboxId, SnapshotId};
use network::Policy;

use crate::driver::Sandbox;
use crate::error::NodeError;
use crate::restore::RestoreTimings;
use crate::save::SaveTimings;
use crate::volumes::VolumeAttachment;

/// A sandbox to make.
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// Its id; a new one when absent. One that exists is refused.
    pub id: Option<SandboxId>,
    /// What its guest calls itself; a name that says nothing when absent.
    pub host_name: Option<HostName>,
    /// What it starts from.
    pub from: CreateFrom,
    /// Its volumes, in the guest's order. After those that the guest of the snapshot was reading, which it has anyway.
    pub volumes: Vec<VolumeAttachment>,
    /// What its guest may reach, whenever it runs.
    pub network: Policy,
    /// Size of its root disk, if larger than that of what it starts from.
    pub disk_bytes: Option<u64>,
}

impl CreateRequest {
    /// A sandbox with a new id, no volumes and a closed network.
    pub fn new(from: CreateFrom) -> Self {
        Self {
            id: None,
            host_name: None,
            from,
            volumes: Vec::new(),
            network: Policy::Closed,
            disk_bytes: None,
        }
    }
}

/// What a sandbox starts from.
#[derive(Debug, Clone)]
pub enum CreateFrom {
    /// A template's snapshot or one that was kept.
    Snapshot(SnapshotId),
}

/// A child of a fork that is to be made.
#[derive(Debug, Clone)]
pub struct Child {
    /// Its id.
    pub id: SandboxId,
    /// What its guest calls itself; a name that says nothing when absent.
    pub host_name: Option<HostName>,
}

/// Children of one fork.
#[derive(Debug)]
pub struct Forked {
    /// The instant they go on from. It goes with the last of them.
    pub instant: SnapshotId,
    /// Each child, in the order they were given, or why it could not be created.
    pub children: Vec<Result<(Sandbox, RestoreTimings), NodeError>>,
    /// Where the time of taking the instant went.
    pub timings: SaveTimings,
}
