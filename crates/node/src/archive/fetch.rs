//! Brings parts of a snapshot from the archive into files.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use memory::Checksums;
use memory::stream::ChunkSource;
use memory::sums::{DISK_CHUNK_BYTES, MEMORY_CHUNK_BYTES};
use storage::chunks::{FetchFileError, fetch_file};
use storage::{Durability, write_file};

use super::landed_disk;
use crate::error::NodeError;
use crate::node::Shared;
use crate::save::{self, MEMORY_MODE};
use crate::snapshots::{DEVICES, DISK, LANDED_STAMP, MEMORY, Pin, remove_landed_disk};
use crate::stamp::Stamp;

/// Chunks on their way at once: enough to hide the time a store takes to answer.
const FETCHES_MAX: usize = 8;

/// Writes all chunks into a new file. A file that is not whole is the caller's to remove.
async fn fetch(source: &dyn ChunkSource, path: &Path, mode: u32) -> Result<File, NodeError> {
    let host = NodeError::host("write what comes from the archive");
    let file = File::options().read(true).write(true).create_new(true).mode(mode).open(path).map_err(host)?;
    let writing = file.try_clone().map_err(host)?;
    match fetch_file(source, writing, FETCHES_MAX).await {
        Ok(()) => Ok(file),
        Err(FetchFileError::Fetch(error)) => Err(error.into()),
        Err(FetchFileError::Write(error)) => Err(host(error)),
    }
}

/// The disk alone, at this path; costs nothing when it is there and untouched. The caller sees to it that nobody else does this.
pub(super) async fn land_disk(source: &dyn ChunkSource, path: &Path) -> Result<(), NodeError> {
    let host = NodeError::host("write what comes from the archive");
    let stamp_path = path.with_file_name(LANDED_STAMP);
    let stamp: Option<Stamp> =
        fs::read(&stamp_path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if stamp.is_some_and(|stamp| stamp.still_holds(path)) {
        return Ok(());
    }
    remove_landed_disk(path);
    fetch(source, path, 0o600).await?;
    let stamp = Stamp::of(path).and_then(|stamp| Ok(serde_json::to_vec(&stamp)?)).map_err(host)?;
    write_file(&stamp_path, &stamp, Durability::Unsynced).map_err(host)
}

/// The whole snapshot, as if it had been taken here. The caller sees to it that nobody else does this.
pub(super) async fn land_all(
    shared: &Shared,
    pin: &Pin,
    memory: &dyn ChunkSource,
    disk: &dyn ChunkSource,
) -> Result<Pin, NodeError> {
    let staged = shared.snapshots.stage()?;
    let memory = fetch(memory, &staged.path(MEMORY)?, MEMORY_MODE).await?;
    let landed = landed_disk(pin)?;
    land_disk(disk, &landed).await?;
    tokio::task::block_in_place(|| {
        let (disk, _) = storage::clone_file(&landed, &staged.path(DISK)?)?;
        fs::write(staged.path(DEVICES)?, pin.read(DEVICES)?)
            .map_err(NodeError::host("write what comes from the archive"))?;
        let sum = |file: &File, chunk_bytes| {
            Checksums::compute(file, chunk_bytes)
                .map_err(|error| NodeError::host("sum what came from the archive")(io::Error::other(error)))
        };
        save::write_sums(&staged, &sum(&memory, MEMORY_CHUNK_BYTES)?, &sum(&disk, DISK_CHUNK_BYTES)?)?;
        drop((memory, disk));
        // Synced: one that a crash of the host leaves half on the disk would be in the way of the next.
        shared.snapshots.commit(staged, pin.id(), pin.about().clone(), Durability::Synced)
    })
}
