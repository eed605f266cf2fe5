//! Notes of what is being put into the store, so that nothing is ever left there that nobody knows of.
//!
//! A note is written before anything goes and removed when all of it is there. It names the uploads that have begun: by that the next
//! process gives up those that a killed one left.

use std::fs;
use std::io;
use std::path::PathBuf;

use domain::SnapshotId;
use storage::{Durability, write_file};

use super::{Archive, key, prefix};
use crate::error::NodeError;
use crate::node::Shared;

/// Begins the names of notes.
const NAME: &str = ".putting-";

/// The note about one snapshot, written or not.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) id: SnapshotId,
    path: PathBuf,
}

impl Note {
    pub(super) fn of(shared: &Shared, id: &SnapshotId) -> Self {
        Self { id: id.clone(), path: shared.paths.archived().join(format!("{NAME}{id}")) }
    }

    /// All that are written.
    pub(super) fn all(shared: &Shared) -> io::Result<Vec<Self>> {
        let mut notes = Vec::new();
        for entry in fs::read_dir(shared.paths.archived())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let id = name.strip_prefix(NAME).and_then(|id| SnapshotId::parse(id).ok());
            notes.extend(id.map(|id| Self { id, path: entry.path() }));
        }
        Ok(notes)
    }

    pub(super) fn is_written(&self) -> bool {
        self.path.exists()
    }

    /// Something is about to go to the store.
    pub(super) fn write(&self) -> io::Result<()> {
        write_file(&self.path, b"", Durability::Synced)
    }

    /// The upload of a part has begun.
    pub(super) fn add(&self, part: &str, upload: &str) -> io::Result<()> {
        let mut text = fs::read_to_string(&self.path)?;
        text.push_str(&format!("{part} {upload}\n"));
        write_file(&self.path, text.as_bytes(), Durability::Synced)
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    /// Removes from the store whatever an earlier process, or an earlier try, left there of the snapshot.
    pub(super) async fn clear(&self, archive: &Archive) -> Result<(), NodeError> {
        let host = NodeError::host("read what goes to the archive");
        for line in fs::read_to_string(&self.path).map_err(host)?.lines() {
            if let Some((part, upload)) = line.split_once(' ') {
                archive.blobs.give_up(&key(&self.id, part)?, upload).await?;
            }
        }
        Ok(archive.blobs.delete_prefix(&prefix(&self.id)?).await?)
    }
}
