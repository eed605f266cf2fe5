//! What a node knows of snapshots in its archive. What is done about it is [`crate::archive`]'s.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use domain::SnapshotId;
use storage::{Durability, Snapshot, Staged};

use super::{
    DEVICES, Entry, LANDED_DISK, LANDED_STAMP, Pin, SnapshotKind, SnapshotMetadata, Snapshots, file_bytes,
    mark_deleted, unique_bytes,
};
use crate::error::NodeError;

impl Snapshots {
    /// A place to write down what leads to a snapshot in the archive.
    pub(crate) fn stage_archived(&self) -> Result<Staged, NodeError> {
        Ok(self.archived.stage()?)
    }

    /// From here on the snapshot is in the archive, whole.
    pub(crate) fn commit_archived(&self, staged: Staged, pin: &Pin) -> Result<(), NodeError> {
        let snapshot = staged.commit(pin.id.as_str(), pin.about().clone(), Durability::Synced)?;
        let mut entries = self.lock();
        if let Some(entry) = entries.get_mut(&pin.id) {
            if entry.condemned {
                // Deleted meanwhile: the mark on its files here goes with them.
                mark_deleted(&snapshot)?;
            }
            entry.archived = Some(Arc::new(snapshot));
        }
        Ok(())
    }

    /// What leads to a snapshot in the archive.
    pub(crate) fn archived(&self, id: &SnapshotId) -> Option<Arc<Snapshot<SnapshotMetadata>>> {
        self.lock().get(id)?.archived.clone()
    }

    /// Whether there is such a snapshot, deleted or not.
    pub(crate) fn is_known(&self, id: &SnapshotId) -> bool {
        self.lock().contains_key(id)
    }

    /// Snapshots that users keep and that are on this host only, oldest first.
    pub(crate) fn unarchived(&self) -> Vec<SnapshotId> {
        let entries = self.lock();
        let kept = |entry: &Entry| entry.about().is_some_and(|about| about.purpose == SnapshotKind::Kept);
        let mut found: Vec<_> = entries
            .iter()
            .filter(|(_, entry)| !entry.condemned && entry.archived.is_none() && kept(entry))
            .filter_map(|(id, entry)| Some((entry.about()?.created_unix_ms, id.clone())))
            .collect();
        found.sort();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Deleted snapshots that nobody uses and that are left in the archive.
    pub(crate) fn left_in_archive(&self) -> Vec<SnapshotId> {
        let entries = self.lock();
        let left = entries.iter().filter(|(_, entry)| {
            entry.condemned && entry.users == 0 && entry.local.is_none() && entry.archived.is_some()
        });
        left.map(|(id, _)| id.clone()).collect()
    }

    /// Forgets a deleted snapshot that is no longer in the archive.
    pub(crate) fn forget_archived(&self, id: &SnapshotId) -> Result<(), NodeError> {
        self.archived.remove(id.as_str())?;
        self.lock().remove(id);
        Ok(())
    }

    /// The snapshot to take from this host next, where those that are also in the archive take more than `bytes_max`, with disks that
    /// were fetched alone: the one that was used least lately, and by nobody now.
    pub(crate) fn to_evict(&self, bytes_max: u64) -> Option<SnapshotId> {
        let (mut here, mut unused) = (Vec::new(), Vec::new());
        for (id, entry) in self.lock().iter().filter(|(_, entry)| !entry.condemned) {
            let Some(archived) = &entry.archived else { continue };
            here.push((entry.local.clone(), entry.landed.then(|| Arc::clone(archived))));
            if entry.local.is_some() && entry.users == 0 {
                unused.push((entry.used_unix_ms, id.clone()));
            }
        }
        let taken = here.iter().map(|(local, landed)| {
            let local = local.as_ref().map_or(0, |snapshot| unique_bytes(snapshot));
            local + landed.as_ref().map_or(0, |snapshot| landed_bytes(snapshot))
        });
        if taken.sum::<u64>() <= bytes_max {
            return None;
        }
        unused.into_iter().min().map(|(_, id)| id)
    }

    /// From here on the snapshot's disk may be here alone.
    pub(crate) fn note_landed(&self, id: &SnapshotId) {
        if let Some(entry) = self.lock().get_mut(id) {
            entry.landed = true;
        }
    }

    /// Snapshots whose disk was fetched alone and that nobody uses.
    pub(crate) fn landed_unused(&self) -> Vec<SnapshotId> {
        let entries = self.lock();
        let unused = entries.iter().filter(|(_, entry)| entry.landed && entry.users == 0);
        unused.map(|(id, _)| id.clone()).collect()
    }

    /// Removes a disk that was fetched alone, if nobody uses its snapshot. The caller has the snapshot's turn: whoever is about to clone
    /// the disk counts as a user before taking that, and so finds it untouched or fetches it again.
    pub(crate) fn remove_landed(&self, id: &SnapshotId) {
        let unused = {
            let mut entries = self.lock();
            let entry = entries.get_mut(id).filter(|entry| entry.landed && entry.users == 0);
            entry.and_then(|entry| {
                entry.landed = false;
                entry.archived.clone()
            })
        };
        if let Some(Ok(devices)) = unused.map(|snapshot| snapshot.path(DEVICES)) {
            remove_landed_disk(&devices.with_file_name(LANDED_DISK));
        }
    }

    /// Takes a snapshot's files from this host, if it is in the archive and nobody uses it.
    pub(crate) fn evict(&self, id: &SnapshotId) {
        let evicted = {
            let mut entries = self.lock();
            let entry = entries.get_mut(id);
            let entry = entry.filter(|entry| entry.archived.is_some() && entry.users == 0);
            entry.and_then(|entry| entry.local.take())
        };
        if evicted.is_some() {
            self.remove_files(id);
        }
    }
}

/// Removes a fetched disk. Clones of it live on.
pub(crate) fn remove_landed_disk(path: &Path) {
    for path in [path.with_file_name(LANDED_STAMP), path.to_owned()] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "a disk from the archive stays here");
            }
            _ => {}
        }
    }
}

/// Bytes on disk that only a fetched disk uses.
fn landed_bytes(snapshot: &Snapshot<SnapshotMetadata>) -> u64 {
    let disk = snapshot.path(DEVICES).map(|devices| devices.with_file_name(LANDED_DISK));
    disk.ok().and_then(|disk| File::open(disk).ok()).map_or(0, |disk| file_bytes(&disk))
}

#[cfg(test)]
mod tests {
    use domain::{EngineFingerprint, MachineShape, TemplateName};

    use super::*;
    use crate::snapshots::{DISK, MEMORY, about};

    const BYTES: usize = 1 << 20;

    /// Snapshots, of which one is here and in the archive.
    fn snapshots(place: &Path) -> (Arc<Snapshots>, SnapshotId) {
        let (here, archived) = (place.join("snapshots"), place.join("archived"));
        fs::create_dir_all(&here).unwrap();
        fs::create_dir_all(&archived).unwrap();
        let snapshots = Snapshots::open(here, archived).unwrap();
        let fingerprint = EngineFingerprint {
            engine: "an-engine".to_owned(),
            version: "1".to_owned(),
            machine: "a-machine".to_owned(),
            cpu: "a-cpu".to_owned(),
            tsc_khz: 1_000_000,
        };
        let template = TemplateName::parse("minimal").unwrap();
        let about = about(SnapshotKind::Kept, template, fingerprint, MachineShape::new(1, 256).unwrap());
        let id = SnapshotId::parse("snapshot1").unwrap();
        let staged = snapshots.stage().unwrap();
        for name in [MEMORY, DISK, DEVICES] {
            fs::write(staged.path(name).unwrap(), b"a few bytes").unwrap();
        }
        let pin = snapshots.commit(staged, &id, about, Durability::Unsynced).unwrap();
        let staged = snapshots.stage_archived().unwrap();
        fs::write(staged.path(DEVICES).unwrap(), b"a few bytes").unwrap();
        snapshots.commit_archived(staged, &pin).unwrap();
        (snapshots, id)
    }

    #[test]
    fn a_disk_that_was_fetched_alone_counts_and_goes_with_its_last_user() {
        let place = tempfile::tempdir().unwrap();
        let (snapshots, id) = snapshots(place.path());
        let limit = BYTES as u64;
        assert_eq!(snapshots.to_evict(limit), None);
        let disk = place.path().join("archived").join(id.as_str()).join(LANDED_DISK);
        fs::write(&disk, vec![7; 2 * BYTES]).unwrap();
        File::open(&disk).unwrap().sync_all().unwrap();
        snapshots.note_landed(&id);
        assert_eq!(snapshots.to_evict(limit), Some(id.clone()));

        let pin = snapshots.pin(&id).unwrap();
        assert_eq!(snapshots.to_evict(limit), None, "somebody uses it");
        assert!(snapshots.landed_unused().is_empty());
        snapshots.remove_landed(&id);
        assert!(disk.exists(), "its user may be about to clone it");
        drop(pin);
        assert_eq!(snapshots.landed_unused(), std::slice::from_ref(&id));
        snapshots.remove_landed(&id);
        assert!(!disk.exists() && snapshots.landed_unused().is_empty());
        assert_eq!(snapshots.to_evict(limit), None);
    }

    #[test]
    fn a_snapshot_that_is_deleted_while_it_goes_to_the_archive_stays_deleted() {
        let place = tempfile::tempdir().unwrap();
        let (snapshots, id) = snapshots(place.path());
        // As if it had not been there yet.
        snapshots.archived.remove(id.as_str()).unwrap();
        snapshots.lock().get_mut(&id).unwrap().archived = None;
        let pin = snapshots.pin(&id).unwrap();
        snapshots.delete(&id).unwrap();
        let staged = snapshots.stage_archived().unwrap();
        fs::write(staged.path(DEVICES).unwrap(), b"a few bytes").unwrap();
        snapshots.commit_archived(staged, &pin).unwrap();
        drop(pin);
        snapshots.collect();
        assert_eq!(snapshots.left_in_archive(), std::slice::from_ref(&id));
        // A node that is killed now finds what leads to the archive and nothing else.
        drop(snapshots);
        let next = Snapshots::open(place.path().join("snapshots"), place.path().join("archived")).unwrap();
        assert!(next.pin(&id).is_err() && next.left_in_archive() == [id]);
    }
}
