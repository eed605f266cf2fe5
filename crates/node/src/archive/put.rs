//! Puts a snapshot into the archive.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};

use memory::stream::pack;
use storage::Staged;

use super::note::Note;
use super::{Archive, key};
use crate::error::NodeError;
use crate::node::Shared;
use crate::snapshots::{DEVICES, DISK, DISK_INDEX, MEMORY, MEMORY_INDEX, Pin};

/// A packed part on its way.
const PACKED: &str = "packed";

/// Packs a snapshot's memory and disk, uploads them and writes down what leads there. After `Err` a note says that something may be in
/// the store.
pub(super) async fn put(shared: &Shared, archive: &Archive, pin: &Pin) -> Result<(), NodeError> {
    let host = NodeError::host("note what goes to the archive");
    tokio::task::block_in_place(|| shared.snapshots.verify(pin))?;
    let note = Note::of(shared, pin.id());
    if note.is_written() {
        note.clear(archive).await?;
    }
    note.write().map_err(host)?;
    // Packing takes long: a store that is away, or takes nothing from us, is not packed for. What goes later takes the name over.
    archive.blobs.put(&key(pin.id(), MEMORY)?, Vec::new()).await?;
    let staged = shared.snapshots.stage_archived()?;
    for (part, index) in [(MEMORY, MEMORY_INDEX), (DISK, DISK_INDEX)] {
        put_part(archive, pin, &note, &staged, (part, index)).await?;
    }
    tokio::task::block_in_place(|| {
        fs::write(staged.path(DEVICES)?, pin.read(DEVICES)?).map_err(host)?;
        shared.snapshots.commit_archived(staged, pin)
    })?;
    note.remove().map_err(host)
}

async fn put_part(
    archive: &Archive,
    pin: &Pin,
    note: &Note,
    staged: &Staged,
    (part, index): (&str, &str),
) -> Result<(), NodeError> {
    let host = NodeError::host("pack a snapshot for the archive");
    let packed = staged.path(PACKED)?;
    let encoded = tokio::task::block_in_place(|| {
        let from = File::open(pin.path(part)?).map_err(host)?;
        let mut to = BufWriter::new(File::create(&packed).map_err(host)?);
        let index = pack(&from, &mut to).map_err(|error| host(io::Error::other(error)))?;
        to.flush().map_err(host)?;
        Ok::<_, NodeError>(index.encode())
    })?;
    let file = File::open(&packed).map_err(host)?;
    let noting = |upload: &str| note.add(part, upload);
    archive.blobs.put_file_noting(&key(pin.id(), part)?, file, noting).await?;
    fs::remove_file(&packed).map_err(host)?;
    fs::write(staged.path(index)?, encoded).map_err(host)
}
