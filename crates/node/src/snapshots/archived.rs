//! What a node knows of snapshots in its archive. What is done about it is [`crate::archive`]'s.

use std::sync::Arc;

use domain::SnapshotId;
use storage::{Durability, Snapshot, Staged};

use super::{About, Entry, Pin, Purpose, Snapshots, unique_bytes};
use crate::error::NodeError;

impl Snapshots {
    /// A place to write down what leads to a snapshot in the archive.
    pub(crate) fn stage_archived(&self) -> Result<Staged, NodeError> {
        Ok(self.archived.stage()?)
    }

    /// From here on the snapshot is in the archive, whole.
    pub(crate) fn commit_archived(&self, staged: Staged, pin: &Pin) -> Result<(), NodeError> {
        let snapshot = staged.commit(pin.id.as_str(), pin.about().clone(), Durability::Synced)?;
        if let Some(entry) = self.lock().get_mut(&pin.id) {
            entry.archived = Some(Arc::new(snapshot));
        }
        Ok(())
    }

    /// What leads to a snapshot in the archive.
    pub(crate) fn archived(&self, id: &SnapshotId) -> Option<Arc<Snapshot<About>>> {
        self.lock().get(id)?.archived.clone()
    }

    /// Whether there is such a snapshot, deleted or not.
    pub(crate) fn is_known(&self, id: &SnapshotId) -> bool {
        self.lock().contains_key(id)
    }

    /// Snapshots that users keep and that are on this host only, oldest first.
    pub(crate) fn unarchived(&self) -> Vec<SnapshotId> {
        let entries = self.lock();
        let kept = |entry: &Entry| entry.about().is_some_and(|about| about.purpose == Purpose::Kept);
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

    /// The snapshot to take from this host next, where those that are also in the archive take more than `bytes_max`: the one
    /// that was used least lately, and by nobody now.
    pub(crate) fn to_evict(&self, bytes_max: u64) -> Option<SnapshotId> {
        let both: Vec<_> = {
            let entries = self.lock();
            let both = entries.iter().filter(|(_, entry)| !entry.condemned && entry.archived.is_some());
            let both = both.filter_map(|(id, entry)| {
                Some((id.clone(), entry.local.clone()?, entry.users, entry.used_unix_ms))
            });
            both.collect()
        };
        let taken: u64 = both.iter().map(|(_, snapshot, ..)| unique_bytes(snapshot)).sum();
        if taken <= bytes_max {
            return None;
        }
        let unused = both.into_iter().filter(|(_, _, users, _)| *users == 0);
        unused.min_by_key(|(.., used)| *used).map(|(id, ..)| id)
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
