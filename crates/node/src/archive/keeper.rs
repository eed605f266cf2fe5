//! The task that keeps the archive in step: puts snapshots there, removes deleted ones, and makes room here.
//!
//! What is about to be put there is noted first, so that nothing is ever left in the store that nobody knows of.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::SnapshotId;
use memory::stream::pack;
use storage::{Durability, Staged, write_file};

use super::{Archive, key, prefix};
use crate::error::NodeError;
use crate::node::Shared;
use crate::snapshots::{DEVICES, DISK, DISK_INDEX, MEMORY, MEMORY_INDEX, Pin};

/// Rest after a failure, so that a store in trouble is not kept busy by us.
const FAILURE_REST: Duration = Duration::from_secs(30);
/// Begins the names of notes of what is being put into the store.
const NOTE: &str = ".putting-";
/// A packed part on its way.
const PACKED: &str = "packed";

/// Runs until the node closes.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let Some(archive) = &shared.archive else { return };
    loop {
        let outcome = tokio::select! {
            () = shared.closing.cancelled() => return,
            outcome = step(&shared, archive) => outcome,
        };
        let rest = async {
            match outcome {
                Ok(()) => shared.snapshots.changed().await,
                Err(error) => {
                    tracing::warn!(%error, "the archive is not up to date; trying again later");
                    tokio::time::sleep(FAILURE_REST).await;
                }
            }
        };
        tokio::select! {
            () = shared.closing.cancelled() => return,
            () = rest => {}
        }
    }
}

async fn step(shared: &Shared, archive: &Archive) -> Result<(), NodeError> {
    forget_unfinished(shared, archive).await?;
    for id in shared.snapshots.left_in_archive() {
        archive.blobs.delete_prefix(&prefix(&id)?).await?;
        shared.snapshots.forget_archived(&id)?;
        archive.turns.forget(&id);
    }
    // One that cannot be put there does not keep the others from it.
    let mut outcome = Ok(());
    for id in shared.snapshots.unarchived() {
        // One that was deleted meanwhile is none of our business.
        let Ok(pin) = shared.snapshots.pin(&id) else { continue };
        outcome = put(shared, archive, &pin).await.and(outcome);
        drop(pin);
        shared.snapshots.collect();
    }
    let Some(bytes_max) = archive.local_bytes_max else { return outcome };
    while let Some(id) = tokio::task::block_in_place(|| shared.snapshots.to_evict(bytes_max)) {
        let turn = archive.turns.turn(&id);
        let _held = turn.lock().await;
        shared.snapshots.evict(&id);
    }
    outcome
}

async fn put(shared: &Shared, archive: &Archive, pin: &Pin) -> Result<(), NodeError> {
    let host = NodeError::host("note what goes to the archive");
    tokio::task::block_in_place(|| shared.snapshots.verify(pin))?;
    let note = notes(shared).join(format!("{NOTE}{}", pin.id()));
    write_file(&note, b"", Durability::Synced).map_err(host)?;
    let staged = shared.snapshots.stage_archived()?;
    for (part, index) in [(MEMORY, MEMORY_INDEX), (DISK, DISK_INDEX)] {
        put_part(archive, pin, &staged, (part, index)).await?;
    }
    tokio::task::block_in_place(|| {
        fs::write(staged.path(DEVICES)?, pin.read(DEVICES)?).map_err(host)?;
        shared.snapshots.commit_archived(staged, pin)
    })?;
    fs::remove_file(&note).map_err(host)
}

async fn put_part(
    archive: &Archive,
    pin: &Pin,
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
    archive.blobs.put_file(&key(pin.id(), part)?, file).await?;
    fs::remove_file(&packed).map_err(host)?;
    fs::write(staged.path(index)?, encoded).map_err(host)
}

fn notes(shared: &Shared) -> PathBuf {
    shared.paths.archived()
}

/// Removes from the store what was begun to be put there and is now gone here. What is still here is put there again, over what
/// there is.
async fn forget_unfinished(shared: &Shared, archive: &Archive) -> Result<(), NodeError> {
    let host = NodeError::host("look for what goes to the archive");
    for entry in fs::read_dir(notes(shared)).map_err(host)? {
        let entry = entry.map_err(host)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_prefix(NOTE).and_then(|id| SnapshotId::parse(id).ok()) else { continue };
        if !shared.snapshots.is_known(&id) {
            archive.blobs.delete_prefix(&prefix(&id)?).await?;
        } else if shared.snapshots.archived(&id).is_none() {
            continue;
        }
        fs::remove_file(entry.path()).map_err(host)?;
    }
    Ok(())
}
