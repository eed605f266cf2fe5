//! The task that keeps the archive in step: puts snapshots there, removes deleted ones, and makes room here.

use std::sync::Arc;
use std::time::Instant;

use domain::{ErrorChain, SnapshotId};

use super::backoff::Backoff;
use super::note::Note;
use super::put::put;
use super::{Archive, prefix};
use crate::error::NodeError;
use crate::node::Shared;

/// What can be in trouble.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Troubled {
    Store,
    Snapshot(SnapshotId),
}

/// Runs until the node closes.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let Some(archive) = &shared.archive else { return };
    let mut backoff = Backoff::default();
    let keeping = async {
        loop {
            make_room(&shared, archive).await;
            if backoff.may_try(&Troubled::Store, Instant::now()) {
                match bring_in_step(&shared, archive, &mut backoff).await {
                    Ok(()) => backoff.succeeded(&Troubled::Store),
                    Err(error) => {
                        let error = ErrorChain(&error);
                        tracing::warn!(%error, "the archive is not up to date; trying again later");
                        backoff.failed(Troubled::Store, Instant::now());
                    }
                }
                // What is in the archive now may go from here.
                make_room(&shared, archive).await;
            }
            tokio::select! {
                () = shared.snapshots.changed() => {}
                () = until(backoff.next(Instant::now())) => {}
            }
        }
    };
    tokio::select! {
        () = shared.closing.cancelled() => {}
        () = keeping => {}
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

/// Everything that the store is needed for. An error is the store's; a snapshot that cannot be put there for another reason does not
/// keep others from it.
async fn bring_in_step(
    shared: &Shared,
    archive: &Archive,
    backoff: &mut Backoff<Troubled>,
) -> Result<(), NodeError> {
    forget_unfinished(shared, archive).await?;
    for id in shared.snapshots.left_in_archive() {
        archive.blobs.delete_prefix(&prefix(&id)?).await?;
        shared.snapshots.forget_archived(&id)?;
        archive.turns.forget(&id);
    }
    let unarchived = shared.snapshots.unarchived();
    backoff.retain(|troubled| match troubled {
        Troubled::Store => true,
        Troubled::Snapshot(id) => unarchived.contains(id),
    });
    for id in unarchived {
        let troubled = Troubled::Snapshot(id.clone());
        if !backoff.may_try(&troubled, Instant::now()) {
            continue;
        }
        // One that was deleted meanwhile is none of our business.
        let Ok(pin) = shared.snapshots.pin(&id) else { continue };
        let outcome = put(shared, archive, &pin).await;
        drop(pin);
        shared.snapshots.collect();
        match outcome {
            Ok(()) => backoff.succeeded(&troubled),
            Err(NodeError::Archive(error)) => return Err(error.into()),
            Err(error) => {
                let error = ErrorChain(&error);
                tracing::warn!(snapshot.id = %id, %error, "snapshot {id} is not in the archive; trying again later");
                backoff.failed(troubled, Instant::now());
            }
        }
    }
    Ok(())
}

/// Takes from this host what is not needed here, or is more than may be.
async fn make_room(shared: &Shared, archive: &Archive) {
    for id in shared.snapshots.landed_unused() {
        let turn = archive.turns.turn(&id);
        let _held = turn.lock().await;
        tokio::task::block_in_place(|| shared.snapshots.remove_landed(&id));
    }
    let Some(bytes_max) = archive.local_bytes_max else { return };
    while let Some(id) = tokio::task::block_in_place(|| shared.snapshots.to_evict(bytes_max)) {
        let turn = archive.turns.turn(&id);
        let _held = turn.lock().await;
        shared.snapshots.evict(&id);
    }
}

/// Removes from the store what was begun to be put there and is now gone here. What is still here is put there again.
async fn forget_unfinished(shared: &Shared, archive: &Archive) -> Result<(), NodeError> {
    let host = NodeError::host("look for what goes to the archive");
    for note in Note::all(shared).map_err(host)? {
        if !shared.snapshots.is_known(&note.id) {
            note.clear(archive).await?;
        } else if shared.snapshots.archived(&note.id).is_none() {
            continue;
        }
        note.remove().map_err(host)?;
    }
    Ok(())
}
