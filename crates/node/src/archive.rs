//! An archive: an object store in which the snapshots that users keep lie besides this host, or in its place.
//!
//! ```text
//! snapshot ─► packed, without pages of zeros ─► store ─► what leads there noted here ─► its files may go from this host
//! create ◄─ disk fetched whole, memory page by page when the guest touches it ◄─ store
//! ```
//!
//! Where the engine cannot take memory page by page a snapshot comes back whole before it is used. A machine whose memory comes
//! from the archive is saved over all of it, so then it comes back whole too, and from there on is used from here.

mod backoff;
mod fetch;
mod keeper;
mod note;
mod put;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::SnapshotId;
use machine::{LazyMemory, MemoryOrigin, Vm};
use memory::PAGE_BYTES;
use memory::pages::{Regions, Trace};
use memory::stream::{ChunkSource, Index};
use storage::blobs::{BlobKey, Blobs, BlobsConfig};
use storage::chunks::ChunkCache;
use storage::{Durability, write_file};

use crate::error::{NodeError, OpenError};
use crate::keyed_mutex::KeyedMutex;
use crate::node::Shared;
use crate::snapshots::{DEVICES, DISK, DISK_INDEX, LANDED_DISK, MEMORY, MEMORY_INDEX, Pin};

pub(crate) use keeper::keep;

/// Beside what leads to a snapshot: the pages that a guest made from it touches first.
const TRACE: &str = "trace";
/// How long a guest runs before what it touched is taken for what the next one will touch first.
const TRACE_AFTER: std::time::Duration = std::time::Duration::from_secs(10);

/// Settings of an archive.
#[derive(Debug, Clone)]
pub struct ArchiveConfig {
    /// The object store.
    pub blobs: BlobsConfig,
    /// What archived snapshots may take on this host; those used least lately are then in the archive only.
    pub local_bytes_max: Option<u64>,
    /// What parts of snapshots that came from the archive may take on this host.
    pub cache_bytes_max: u64,
}

/// The archive of a node.
pub(crate) struct Archive {
    blobs: Arc<Blobs>,
    cache: Arc<ChunkCache>,
    local_bytes_max: Option<u64>,
    /// One at a time brings a snapshot here or takes it away.
    turns: KeyedMutex<SnapshotId>,
}

impl Archive {
    pub(crate) fn open(config: &ArchiveConfig, cache: &Path) -> Result<Self, OpenError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| OpenError::Archive(error);
        let blobs = Blobs::open(&config.blobs).map_err(|error| failed(error.into()))?;
        let cache = ChunkCache::open(cache, config.cache_bytes_max).map_err(|error| failed(error.into()))?;
        Ok(Self {
            blobs: Arc::new(blobs),
            cache,
            local_bytes_max: config.local_bytes_max,
            turns: KeyedMutex::default(),
        })
    }

    /// A part of a snapshot, chunk by chunk.
    fn source(
        &self,
        shared: &Shared,
        id: &SnapshotId,
        (part, index): (&str, &str),
    ) -> Result<Arc<dyn ChunkSource>, NodeError> {
        let archived = shared.snapshots.archived(id).ok_or_else(|| NodeError::NoSnapshot(id.clone()))?;
        let index = Index::decode(&archived.read(index)?)
            .map_err(|error| NodeError::Damaged { what: format!("{index}: {error}") })?;
        Ok(self.cache.source(Arc::clone(&self.blobs), key(id, part)?, index))
    }
}

/// The name of a part of a snapshot in the store.
fn key(id: &SnapshotId, part: &str) -> Result<BlobKey, NodeError> {
    prefix(id)?
        .join(part)
        .map_err(|error| NodeError::host("name a part of a snapshot")(io::Error::other(error)))
}

/// What the names of all its parts begin with.
fn prefix(id: &SnapshotId) -> Result<BlobKey, NodeError> {
    BlobKey::parse(&format!("snapshots/{id}"))
        .map_err(|error| NodeError::host("name a snapshot")(io::Error::other(error)))
}

/// The archive that a snapshot lies in.
fn archive_of<'a>(shared: &'a Shared, id: &SnapshotId) -> Result<&'a Archive, NodeError> {
    shared.archive.as_ref().ok_or_else(|| NodeError::NoArchive(id.clone()))
}

/// Brings as much of a snapshot here as a machine needs to begin.
pub(crate) async fn bring(shared: &Shared, pin: Pin) -> Result<Pin, NodeError> {
    if !pin.is_elsewhere() {
        return Ok(pin);
    }
    // Before anything is fetched for it.
    tokio::task::block_in_place(|| shared.snapshots.verify(&pin))?;
    if !shared.engine.takes_memory_on_demand() {
        return land(shared, &pin).await;
    }
    let archive = archive_of(shared, pin.id())?;
    let turn = archive.turns.turn(pin.id());
    let _held = turn.lock().await;
    let source = archive.source(shared, pin.id(), (DISK, DISK_INDEX))?;
    shared.snapshots.note_landed(pin.id());
    fetch::land_disk(&*source, &landed_disk(&pin)?).await?;
    Ok(pin)
}

/// Brings all of a snapshot here.
pub(crate) async fn land(shared: &Shared, pin: &Pin) -> Result<Pin, NodeError> {
    let archive = archive_of(shared, pin.id())?;
    let turn = archive.turns.turn(pin.id());
    let _held = turn.lock().await;
    // Somebody else may have done it meanwhile.
    let now = shared.snapshots.pin_for_recovery(pin.id())?;
    if !now.is_elsewhere() {
        return Ok(now);
    }
    let memory = archive.source(shared, pin.id(), (MEMORY, MEMORY_INDEX))?;
    let disk = archive.source(shared, pin.id(), (DISK, DISK_INDEX))?;
    shared.snapshots.note_landed(pin.id());
    // The disk that was fetched alone stays: it shares its blocks with this one, and somebody may be about to clone it.
    fetch::land_all(shared, pin, &*memory, &*disk).await
}

/// What a machine made from a snapshot begins with as its memory.
pub(crate) fn memory_of(shared: &Shared, pin: &Pin) -> Result<MemoryOrigin, NodeError> {
    if pin.is_elsewhere() {
        return Ok(MemoryOrigin::LazyMemory(on_demand(shared, pin.id())?));
    }
    Ok(MemoryOrigin::File(crate::restore::open_memory(pin)?))
}

/// The same for a machine that has begun, and whose memory came page by page.
pub(crate) fn memory_again(shared: &Shared, pin: &Pin, regions: &Regions) -> Result<MemoryOrigin, NodeError> {
    match regions.page_bytes() > PAGE_BYTES {
        // Huge pages come so from here too.
        true => memory_of(shared, pin),
        // From the archive, whether or not the snapshot has been brought here since.
        false => Ok(MemoryOrigin::LazyMemory(on_demand(shared, pin.id())?)),
    }
}

/// The memory of a snapshot, page by page.
fn on_demand(shared: &Shared, id: &SnapshotId) -> Result<LazyMemory, NodeError> {
    let source = archive_of(shared, id)?.source(shared, id, (MEMORY, MEMORY_INDEX))?;
    let archived = shared.snapshots.archived(id).ok_or_else(|| NodeError::NoSnapshot(id.clone()))?;
    let path = archived.path(DEVICES)?.with_file_name(TRACE);
    // Only saves time: one that cannot be read is as good as none.
    let trace = std::fs::read(path).ok().and_then(|bytes| Trace::decode(&bytes).ok()).unwrap_or_default();
    Ok(LazyMemory { source, trace })
}

/// The disk of a snapshot, here.
pub(crate) fn disk_of(pin: &Pin) -> Result<PathBuf, NodeError> {
    if pin.is_elsewhere() { landed_disk(pin) } else { pin.path(DISK) }
}

fn landed_disk(pin: &Pin) -> Result<PathBuf, NodeError> {
    Ok(pin.path(DEVICES)?.with_file_name(LANDED_DISK))
}

/// Remembers what the first guest of an archived snapshot touched, for those after it.
pub(crate) fn keep_trace(shared: &Arc<Shared>, pin: &Pin, vm: &Arc<dyn Vm>) {
    let Ok(path) = pin.path(DEVICES).map(|path| path.with_file_name(TRACE)) else { return };
    if !pin.is_elsewhere() || path.exists() {
        return;
    }
    let (pin, vm, closing) = (pin.clone(), Arc::clone(vm), shared.closing.clone());
    shared.tasks.spawn(async move {
        tokio::select! {
            () = closing.cancelled() => return,
            _ = vm.exited() => return,
            () = tokio::time::sleep(TRACE_AFTER) => {}
        }
        let Some(trace) = vm.trace() else { return };
        if let Err(error) = write_file(&path, &trace.encode(), Durability::Unsynced) {
            tracing::warn!(snapshot.id = %pin.id(), %error, "what a guest touched first is not remembered");
        }
    });
}
