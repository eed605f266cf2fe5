//! Whether a snapshot's files are still the ones written.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use memory::{Checksums, What};
use storage::{Durability, Snapshot, write_file};

use super::{DEVICES, DISK, DISK_SUMS, Held, MEMORY, MEMORY_SUMS, Pin, SnapshotMetadata, Snapshots};
use crate::error::NodeError;
use crate::stamp::Stamp;

/// Beside the manifest, not part of it: that the files were verified.
const VERIFIED: &str = "verified.json";
const STAMPED: [&str; 5] = [MEMORY, MEMORY_SUMS, DISK, DISK_SUMS, DEVICES];

impl Snapshots {
    /// Makes sure that every byte is the one that was written, or refuses. Costs nothing for files verified since the host
    /// booted and untouched since. What comes from the archive is verified as it comes; the devices are here. Blocks.
    pub(crate) fn verify(&self, pin: &Pin) -> Result<(), NodeError> {
        let snapshot = match &pin.held {
            Held::Local(snapshot) => snapshot,
            Held::Archived(snapshot) => {
                self.archived.get::<SnapshotMetadata>(pin.id.as_str())?;
                return Ok(snapshot.read(DEVICES).map(drop)?);
            }
        };
        if self.lock().get(&pin.id).is_some_and(|entry| entry.verified) && stamps_hold(snapshot) {
            return Ok(());
        }
        if !stamps_hold(snapshot) {
            // Lengths and manifest first: a file cut short is told as such.
            self.store.get::<SnapshotMetadata>(pin.id.as_str())?;
            for (name, sums_name) in [(MEMORY, MEMORY_SUMS), (DISK, DISK_SUMS)] {
                let sums = Checksums::decode(&snapshot.read(sums_name)?)
                    .map_err(|error| NodeError::Damaged { what: format!("{sums_name}: {error}") })?;
                let file = File::open(pin.path(name)?).map_err(NodeError::host("open a snapshot"))?;
                sums.verify(&file, What::All)
                    .map_err(|error| NodeError::Damaged { what: format!("{name}: {error}") })?;
            }
            snapshot.read(DEVICES)?;
            write_stamps(snapshot);
        }
        if let Some(entry) = self.lock().get_mut(&pin.id) {
            entry.verified = true;
        }
        Ok(())
    }
}

/// Remembers that the files are good as they are now.
pub(super) fn write_stamps(snapshot: &Snapshot<SnapshotMetadata>) {
    let written = stamps(snapshot).and_then(|stamps| {
        let path = snapshot.path(MEMORY).map_err(io::Error::other)?.with_file_name(VERIFIED);
        write_file(&path, &serde_json::to_vec(&stamps)?, Durability::Unsynced)
    });
    if let Err(error) = written {
        tracing::warn!(%error, "could not remember that a snapshot was verified; it will be again");
    }
}

fn stamps(snapshot: &Snapshot<SnapshotMetadata>) -> io::Result<HashMap<String, Stamp>> {
    let mut stamps = HashMap::new();
    for name in STAMPED {
        let path = snapshot.path(name).map_err(io::Error::other)?;
        stamps.insert(name.to_owned(), Stamp::of(&path)?);
    }
    Ok(stamps)
}

fn stamps_hold(snapshot: &Snapshot<SnapshotMetadata>) -> bool {
    let Ok(memory) = snapshot.path(MEMORY) else { return false };
    let Ok(bytes) = std::fs::read(memory.with_file_name(VERIFIED)) else { return false };
    let Ok(stamps) = serde_json::from_slice::<HashMap<String, Stamp>>(&bytes) else { return false };
    STAMPED.iter().all(|name| {
        let path = snapshot.path(name);
        path.is_ok_and(|path| stamps.get(*name).is_some_and(|stamp| stamp.still_holds(&path)))
    })
}
