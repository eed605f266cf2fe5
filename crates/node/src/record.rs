//! What is written down about a sandbox, before it is done.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use domain::lifecycle::Phase;
use domain::{EngineFingerprint, HostName, MachineShape, SandboxId, SnapshotId, TemplateName};
use machine::VmRecord;
use network::Policy;
use serde::{Deserialize, Serialize};
use storage::{Durability, write_file};

use crate::identity::IdentitySeed;
use crate::snapshots::SnapshotMetadata;
use crate::volumes::VolumeAttachment;

pub(crate) const FILE: &str = "record.json";
/// A record is a few hundred bytes; a larger file is not one.
const RECORD_BYTES_MAX: u64 = 64 * 1024;
/// Version of the format below.
const FORMAT: u32 = 1;

/// The durable state of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    format: u32,
    /// Its id.
    pub id: SandboxId,
    /// Raised with every change of phase; a command that names an older one is stale.
    pub generation: u64,
    /// What it is doing.
    pub phase: Phase,
    /// The template it descends from.
    pub template: TemplateName,
    /// The snapshot it was made from.
    pub origin: SnapshotId,
    /// Its size.
    pub shape: MachineShape,
    /// What its memory lies over.
    pub memory: MemoryBase,
    /// Its network slot, while it has a machine.
    pub slot: Option<u32>,
    /// Its machine process, while it has one.
    pub vm: Option<VmRecord>,
    /// The engine that its machine was started with; what is saved of it fits only that. Absent in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineFingerprint>,
    /// Its volumes, in the guest's order.
    #[serde(default)]
    pub volumes: Vec<VolumeAttachment>,
    /// What its guest may reach, whenever it runs.
    #[serde(default = "closed")]
    pub network: Policy,
    /// What its guest calls itself, if it was given a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<HostName>,
    /// Milliseconds of Unix time when it was made.
    pub created_unix_ms: u64,
    /// Why its machine ended, when it did by itself.
    pub died: Option<String>,
    pub(crate) identity_seed: IdentitySeed,
}

/// The file behind a machine's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryBase {
    /// A snapshot's, mapped privately.
    Snapshot(SnapshotId),
    /// A file of the sandbox's own, mapped privately: it has been hibernated.
    Own(String),
    /// A file of the sandbox's own, which is the memory itself: it was booted.
    Booted(String),
}

/// What a record of before there were policies means.
fn closed() -> Policy {
    Policy::Closed
}

impl SandboxRecord {
    /// The record of a sandbox about to be made from a snapshot.
    pub(crate) fn new(id: SandboxId, origin: SnapshotId, about: &SnapshotMetadata) -> io::Result<Self> {
        Ok(Self {
            format: FORMAT,
            id,
            generation: 1,
            phase: Phase::Creating,
            template: about.template.clone(),
            memory: MemoryBase::Snapshot(origin.clone()),
            origin,
            shape: about.shape,
            slot: None,
            vm: None,
            engine: None,
            volumes: Vec::new(),
            network: Policy::Closed,
            host_name: None,
            created_unix_ms: unix_ms(),
            died: None,
            identity_seed: IdentitySeed::new()?,
        })
    }

    /// What its guest calls itself.
    pub(crate) fn host_name(&self) -> String {
        self.host_name.as_ref().map_or_else(|| self.identity_seed.host_name(&self.id), HostName::to_string)
    }

    /// Writes it into the sandbox's directory.
    pub(crate) fn write(&self, directory: &Path, durability: Durability) -> io::Result<()> {
        write_file(&directory.join(FILE), &serde_json::to_vec(self)?, durability)
    }

    /// Reads it back; `None` when the directory holds none that can be understood.
    pub(crate) fn read(directory: &Path) -> io::Result<Option<Self>> {
        let path = directory.join(FILE);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(metadata) if metadata.len() > RECORD_BYTES_MAX => return Ok(None),
            Ok(_) => {}
        }
        let record: Option<Self> = serde_json::from_slice(&fs::read(&path)?).ok();
        Ok(record.filter(|record| record.format == FORMAT))
    }

    /// The file of the sandbox's own behind its memory, if it has one.
    pub(crate) fn own_memory(&self) -> Option<&str> {
        match &self.memory {
            MemoryBase::Snapshot(_) => None,
            MemoryBase::Own(name) | MemoryBase::Booted(name) => Some(name),
        }
    }
}

/// Milliseconds of Unix time.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
