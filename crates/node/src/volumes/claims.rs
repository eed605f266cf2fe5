//! Who has which volume. One sandbox may write a volume, or any number may read it; never both.
//!
//! A sandbox has its volumes from before it is made until it is removed, asleep or not. Claims are not written down by themselves:
//! they are in the records of the sandboxes, and a node that starts makes them again from there.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::{SandboxId, VolumeId};
use machine::{DriveMode, VOLUMES_MAX, VolumeDrive};
use storage::{Pool, Volume, VolumeStore};

use super::{AttachMode, VOLUME_MIB_MAX, VolumeAttachment, VolumeInfo};
use crate::error::NodeError;
use crate::record::unix_ms;

/// The volumes of a node and who has them.
#[derive(Debug)]
pub(crate) struct VolumeClaims {
    store: VolumeStore,
    holders: Mutex<Holders>,
    /// Held while room is counted and taken, so that two promises are not made of one space.
    sizing: Mutex<()>,
}

type Holders = HashMap<VolumeId, BTreeMap<SandboxId, AttachMode>>;

impl VolumeClaims {
    pub(crate) fn new(store: VolumeStore) -> Self {
        Self { store, holders: Mutex::default(), sizing: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Holders> {
        // Every change below is complete before anything can panic, so a poisoned map is still right.
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives volumes to a sandbox, all or none. Blocks.
    pub(crate) fn claim(&self, id: &SandboxId, wanted: &[VolumeAttachment]) -> Result<(), NodeError> {
        if wanted.is_empty() {
            return Ok(());
        }
        if wanted.len() > VOLUMES_MAX {
            return Err(NodeError::TooManyVolumes { asked: wanted.len(), max: VOLUMES_MAX });
        }
        let mut holders = self.lock();
        for (index, VolumeAttachment { volume, mode, .. }) in wanted.iter().enumerate() {
            let in_use = |by: &SandboxId| NodeError::VolumeInUse { volume: volume.clone(), by: by.clone() };
            self.store.get(volume.as_str())?;
            if wanted[..index].iter().any(|other| other.volume == *volume) {
                return Err(in_use(id));
            }
            let conflict = holders.get(volume).into_iter().flatten().find(|(by, held)| {
                *mode == AttachMode::ReadWrite || **held == AttachMode::ReadWrite || *by == id
            });
            if let Some((by, _)) = conflict {
                return Err(in_use(by));
            }
        }
        for attachment in wanted.iter().filter(|attachment| attachment.mode == AttachMode::ReadWrite) {
            self.store.note_writer(attachment.volume.as_str())?;
        }
        insert(&mut holders, id, wanted);
        Ok(())
    }

    /// Makes the claims again that a sandbox's record tells of.
    pub(crate) fn reclaim(&self, id: &SandboxId, held: &[VolumeAttachment]) {
        insert(&mut self.lock(), id, held);
    }

    /// Takes volumes back from a sandbox that is gone.
    pub(crate) fn release(&self, id: &SandboxId, held: &[VolumeAttachment]) {
        let mut holders = self.lock();
        for VolumeAttachment { volume, .. } in held {
            if let Some(of_volume) = holders.get_mut(volume) {
                of_volume.remove(id);
                if of_volume.is_empty() {
                    holders.remove(volume);
                }
            }
        }
    }

    /// Opens volumes for a machine, in order. A volume that is not there is an error: nobody gets an empty disk in its place.
    pub(crate) fn drives(&self, held: &[VolumeAttachment]) -> Result<Vec<VolumeDrive>, NodeError> {
        let open = |VolumeAttachment { volume, mode, .. }: &VolumeAttachment| {
            let (file, mode) = match mode {
                AttachMode::ReadOnly => (self.store.open_readable(volume.as_str())?, DriveMode::ReadOnly),
                AttachMode::ReadWrite => (self.store.open_writable(volume.as_str())?, DriveMode::ReadWrite),
            };
            Ok(VolumeDrive { file, mode })
        };
        held.iter().map(open).collect()
    }

    /// Brings what was written to volumes to the disk. Blocks.
    pub(crate) fn sync(&self, held: &[VolumeAttachment]) -> Result<(), NodeError> {
        for drive in self.drives(held)?.iter().filter(|drive| drive.mode == DriveMode::ReadWrite) {
            drive.file.sync_all().map_err(NodeError::host("flush a volume"))?;
        }
        Ok(())
    }

    /// The size of a volume in bytes, and how often it was given away for writing.
    pub(crate) fn look(&self, volume: &VolumeId) -> Result<Volume, NodeError> {
        Ok(self.store.get(volume.as_str())?)
    }

    /// Makes a volume. Blocks.
    pub(super) fn create(
        &self,
        pool: &Pool,
        id: &VolumeId,
        name: &str,
        bytes: u64,
    ) -> Result<VolumeInfo, NodeError> {
        let _sizing = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        self.require_room(pool, bytes)?;
        let volume = self.store.create(id.as_str(), name, bytes, unix_ms())?;
        Ok(info(&self.lock(), id.clone(), &volume))
    }

    /// Makes a volume larger, and tells who writes it. Blocks.
    pub(super) fn grow(
        &self,
        pool: &Pool,
        id: &VolumeId,
        bytes: u64,
    ) -> Result<(VolumeInfo, Option<SandboxId>), NodeError> {
        let _sizing = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.store.get(id.as_str())?;
        if bytes < before.bytes {
            let (mib, min) = (bytes >> 20, before.bytes >> 20);
            return Err(NodeError::VolumeSize { mib, min, max: VOLUME_MIB_MAX });
        }
        self.require_room(pool, bytes - before.bytes)?;
        let volume = self.store.grow(id.as_str(), bytes)?;
        let info = info(&self.lock(), id.clone(), &volume);
        let writer = info.attached_to.iter().find(|(_, mode)| *mode == AttachMode::ReadWrite);
        let writer = writer.map(|(sandbox, _)| sandbox.clone());
        Ok((info, writer))
    }

    /// Deletes a volume that nobody has. Blocks.
    pub(super) fn delete(&self, id: &VolumeId) -> Result<(), NodeError> {
        let holders = self.lock();
        if let Some((by, _)) = holders.get(id).and_then(|holders| holders.first_key_value()) {
            return Err(NodeError::VolumeInUse { volume: id.clone(), by: by.clone() });
        }
        Ok(self.store.delete(id.as_str())?)
    }

    pub(super) fn get(&self, id: &VolumeId) -> Result<VolumeInfo, NodeError> {
        let holders = self.lock();
        Ok(info(&holders, id.clone(), &self.store.get(id.as_str())?))
    }

    pub(super) fn list(&self) -> Result<Vec<VolumeInfo>, NodeError> {
        let holders = self.lock();
        let mut list = Vec::new();
        for text in self.store.list()? {
            match (VolumeId::parse(&text), self.store.get(&text)) {
                (Ok(id), Ok(volume)) => list.push(info(&holders, id, &volume)),
                (_, Err(error)) => tracing::warn!(volume.id = text, %error, "volume {text} cannot be used"),
                (Err(_), _) => {}
            }
        }
        Ok(list)
    }

    /// Volumes are sparse, but what was promised must be there when it is written: fails unless the pool has room for what all
    /// volumes may still grow into, and so many bytes more.
    fn require_room(&self, pool: &Pool, bytes: u64) -> Result<(), NodeError> {
        let mut required = bytes;
        for text in self.store.list()? {
            if let Ok(volume) = self.store.get(&text) {
                required = required.saturating_add(volume.bytes.saturating_sub(volume.used_bytes));
            }
        }
        pool.require_free(required).map_err(|error| match error {
            storage::PoolError::NoSpace { free, required } => NodeError::NoRoom { free, required },
            other => NodeError::host("ask how much space is free")(std::io::Error::other(other)),
        })
    }
}

fn insert(holders: &mut Holders, id: &SandboxId, held: &[VolumeAttachment]) {
    for VolumeAttachment { volume, mode, .. } in held {
        holders.entry(volume.clone()).or_default().insert(id.clone(), *mode);
    }
}

fn info(holders: &Holders, id: VolumeId, volume: &Volume) -> VolumeInfo {
    let attached_to = holders.get(&id).into_iter().flatten();
    let attached_to = attached_to.map(|(sandbox, mode)| (sandbox.clone(), *mode)).collect();
    VolumeInfo {
        id,
        size_bytes: volume.bytes,
        used_bytes: volume.used_bytes,
        attached_to,
        created_unix_ms: volume.created_unix_ms,
    }
}
