//! What a snapshot is of, and how it is told to callers.

use domain::{EngineFingerprint, MachineShape, SandboxId, SnapshotId, TemplateName};
use serde::{Deserialize, Serialize};

use crate::record::unix_ms;
use crate::volumes::VolumeRead;

/// What a snapshot is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotMetadata {
    /// Why it exists.
    pub purpose: SnapshotKind,
    /// The template it descends from.
    pub template: TemplateName,
    /// The snapshot its machine was made from; none for a template.
    pub parent: Option<SnapshotId>,
    /// The sandbox it was taken of; none for a template.
    pub sandbox: Option<SandboxId>,
    /// What it can be resumed with.
    pub fingerprint: EngineFingerprint,
    /// Size of the machine.
    pub shape: MachineShape,
    /// Volumes that its guest was reading, in the guest's order.
    #[serde(default)]
    pub volumes: Vec<VolumeRead>,
    /// Bytes of memory that differ from the parent's.
    pub changed_bytes: u64,
    /// Milliseconds of Unix time.
    pub created_unix_ms: u64,
}

/// Why a snapshot exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotKind {
    /// A template, baked from exactly these parts.
    Template {
        /// Digest of everything it was baked from.
        key: String,
    },
    /// A user asked for it.
    Kept,
    /// The common memory of a fork's children; goes with the last of them.
    Fork,
}

/// A snapshot as callers see it.
#[derive(Debug, Clone, Serialize)]
pub struct SnapshotInfo {
    /// Its id.
    pub id: SnapshotId,
    /// What it is of.
    #[serde(flatten)]
    pub about: SnapshotMetadata,
    /// Bytes on disk of its memory and its disk, shared or not; of one that is only in the archive the bytes of memory that had
    /// changed when it was taken.
    pub size_bytes: u64,
    /// Bytes on disk that no other file shares.
    pub unique_bytes: u64,
    /// Where its files are.
    pub place: SnapshotPlace,
}

/// Where the files of a snapshot are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotPlace {
    /// On this host.
    Local,
    /// On this host and in the archive.
    Both,
    /// In the archive.
    Archive,
}

/// Describes a snapshot about to be made.
pub(crate) fn about(
    purpose: SnapshotKind,
    template: TemplateName,
    fingerprint: EngineFingerprint,
    shape: MachineShape,
) -> SnapshotMetadata {
    SnapshotMetadata {
        purpose,
        template,
        parent: None,
        sandbox: None,
        fingerprint,
        shape,
        volumes: Vec::new(),
        changed_bytes: 0,
        created_unix_ms: unix_ms(),
    }
}
