//! Volumes: file systems that outlive the sandboxes they are attached to.
//!
//! A volume is attached when a sandbox is made and stays so until that sandbox is removed. A snapshot does not hold the bytes of
//! volumes, so a sandbox that may write one cannot be saved or forked; one that only reads can, and what is made from it reads
//! the same volumes, as long as nobody could write them meanwhile.

mod claims;

use std::sync::Arc;

use domain::{SandboxId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::error::NodeError;
use crate::node::Shared;
pub(crate) use claims::VolumeClaims;

/// Smallest volume: below it there is no room for a journal.
pub const VOLUME_MIB_MIN: u64 = 16;
/// Largest volume: what ext4 holds with blocks of 4 KiB.
pub const VOLUME_MIB_MAX: u64 = 16 << 20;

/// A volume for a sandbox. The guest finds its volumes in the order given, as `/dev/vdb`, `/dev/vdc` and on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAttachment {
    /// The volume.
    pub volume: VolumeId,
    /// What the sandbox may do with it.
    pub mode: AttachMode,
    /// Where it is mounted, an absolute path, whenever the guest boots or is new; mounting it is left to the guest where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// What a sandbox may do with a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachMode {
    /// Read it, together with any number of others that read it.
    ReadOnly,
    /// Read and write it, alone.
    ReadWrite,
}

/// A volume that a snapshot's guest was reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRead {
    /// The volume.
    pub volume: VolumeId,
    /// How often it had been given away for writing by then; a different number means that it may hold something else now.
    pub writers: u64,
    /// Where it is mounted whenever its guest boots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// A volume as callers see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeInfo {
    /// Its id.
    pub id: VolumeId,
    /// Its size.
    pub size_bytes: u64,
    /// What of it takes space on the host.
    pub used_bytes: u64,
    /// The sandboxes that have it, running or not.
    pub attached_to: Vec<(SandboxId, AttachMode)>,
    /// Milliseconds of Unix time when it was made.
    pub created_unix_ms: u64,
}

/// The volumes of a node.
#[derive(Clone, Copy)]
pub struct Volumes<'a> {
    pub(crate) shared: &'a Arc<Shared>,
}

impl Volumes<'_> {
    /// Makes a volume with an empty ext4 file system, labelled `fcvol-` and as much of `name` as fits in 16 bytes. Refused when
    /// the pool could not hold all volumes full.
    pub async fn create(&self, id: &VolumeId, name: &str, size_mib: u64) -> Result<VolumeInfo, NodeError> {
        let bytes = bytes(size_mib)?;
        let (shared, id, name) = (Arc::clone(self.shared), id.clone(), name.to_owned());
        blocking(move || shared.volumes.create(&shared.pool, &id, &name, bytes)).await
    }

    /// Makes a volume larger. A guest that writes it sees that at once, or when it runs again; one that only reads it may not.
    /// So does the file system in it where this node mounted it; else that is the guest's to grow (`resize2fs /dev/vdb`).
    pub async fn grow(&self, id: &VolumeId, size_mib: u64) -> Result<VolumeInfo, NodeError> {
        let bytes = bytes(size_mib)?;
        let (shared, volume) = (Arc::clone(self.shared), id.clone());
        let (info, writer) = blocking(move || shared.volumes.grow(&shared.pool, &volume, bytes)).await?;
        if let Some(sandbox) = writer.and_then(|id| self.shared.sandbox(&id)) {
            match sandbox.tell_volume_sizes().await {
                // It is being made or removed, and has nobody to tell.
                Ok(()) | Err(NodeError::NoSandbox(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(info)
    }

    /// Deletes a volume and everything in it. Refused while a sandbox has it, asleep or not.
    pub async fn delete(&self, id: &VolumeId) -> Result<(), NodeError> {
        let (shared, id) = (Arc::clone(self.shared), id.clone());
        blocking(move || shared.volumes.delete(&id)).await
    }

    /// The volume of this id.
    pub fn get(&self, id: &VolumeId) -> Result<VolumeInfo, NodeError> {
        self.shared.volumes.get(id)
    }

    /// All volumes that can be used.
    pub fn list(&self) -> Result<Vec<VolumeInfo>, NodeError> {
        self.shared.volumes.list()
    }
}

fn bytes(size_mib: u64) -> Result<u64, NodeError> {
    match (VOLUME_MIB_MIN..=VOLUME_MIB_MAX).contains(&size_mib) {
        true => Ok(size_mib << 20),
        false => Err(NodeError::VolumeSize { mib: size_mib, min: VOLUME_MIB_MIN, max: VOLUME_MIB_MAX }),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NodeError> + Send + 'static,
) -> Result<T, NodeError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(NodeError::Closing))
}

/// Whether any of them may be written.
pub(crate) fn any_writable(volumes: &[VolumeAttachment]) -> bool {
    volumes.iter().any(|attachment| attachment.mode == AttachMode::ReadWrite)
}
