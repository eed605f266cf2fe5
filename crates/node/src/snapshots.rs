//! Snapshots that this node knows, who uses them, and when they go.
//!
//! Each snapshot's files are whole: they share blocks with others in the file system, not references we would have to count. The
//! one thing that ties a snapshot down is a machine that maps its memory. So a snapshot that was deleted, or that exists only for
//! the children of a fork, stays hidden on disk until the last such machine is gone.
//!
//! A snapshot may also lie in an archive ([`crate::archive`]), besides its files here or in their place. Then a second directory
//! holds what leads there: which bytes of the archive are which part of memory and disk. It is written when all of them are there.

mod about;
mod archived;
mod verified;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{EngineFingerprint, SnapshotId, TemplateName};
use memory::Checksums;
use storage::snapshot::SnapshotStore;
use storage::{Durability, Snapshot, SnapshotError, Staged, write_file};
use tokio::sync::Notify;

use crate::error::NodeError;
use crate::record::unix_ms;

pub(crate) use about::about;
pub use about::{SnapshotInfo, SnapshotKind, SnapshotMetadata, SnapshotPlace};
pub(crate) use archived::remove_landed_disk;

pub(crate) const MEMORY: &str = "memory";
pub(crate) const MEMORY_SUMS: &str = "memory.sums";
pub(crate) const DISK: &str = "disk";
pub(crate) const DISK_SUMS: &str = "disk.sums";
pub(crate) const DEVICES: &str = "devices";
/// Which bytes of the archive are which of the memory and the disk.
pub(crate) const MEMORY_INDEX: &str = "memory.index";
pub(crate) const DISK_INDEX: &str = "disk.index";
/// Beside what leads to a snapshot in the archive, not part of it: its disk, once fetched, and that nobody touched it since.
pub(crate) const LANDED_DISK: &str = "landed";
pub(crate) const LANDED_STAMP: &str = "landed.json";
/// Beside the manifest, not part of it: that the snapshot was deleted.
const DELETED: &str = "deleted";

/// How a template's snapshot is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TemplateUse {
    /// Machines that map it, and those that wait for a guest.
    pub(crate) users: usize,
    /// Milliseconds of Unix time when one last began to.
    pub(crate) used_unix_ms: u64,
}

/// At least one of the two is there.
#[derive(Debug)]
struct Entry {
    local: Option<Arc<Snapshot<SnapshotMetadata>>>,
    archived: Option<Arc<Snapshot<SnapshotMetadata>>>,
    users: usize,
    /// Deleted or only for children: goes when nobody uses it.
    condemned: bool,
    verified: bool,
    /// Its disk may have been fetched alone.
    landed: bool,
    /// Milliseconds of Unix time when somebody last began to use it.
    used_unix_ms: u64,
}

impl Entry {
    fn local(snapshot: Arc<Snapshot<SnapshotMetadata>>) -> Self {
        let used_unix_ms = snapshot.manifest.about.created_unix_ms;
        Self {
            local: Some(snapshot),
            archived: None,
            users: 0,
            condemned: false,
            verified: false,
            landed: false,
            used_unix_ms,
        }
    }

    fn held(&self) -> Option<Held> {
        let local = self.local.clone().map(Held::Local);
        local.or_else(|| self.archived.clone().map(Held::Archived))
    }

    fn about(&self) -> Option<&SnapshotMetadata> {
        self.local.as_ref().or(self.archived.as_ref()).map(|snapshot| &snapshot.manifest.about)
    }

    fn place(&self) -> SnapshotPlace {
        match (&self.local, &self.archived) {
            (Some(_), Some(_)) => SnapshotPlace::Both,
            (None, Some(_)) => SnapshotPlace::Archive,
            (_, None) => SnapshotPlace::Local,
        }
    }
}

/// A snapshot that is held in place.
#[derive(Debug, Clone)]
enum Held {
    /// Its files are here.
    Local(Arc<Snapshot<SnapshotMetadata>>),
    /// What leads to them is.
    Archived(Arc<Snapshot<SnapshotMetadata>>),
}

impl Held {
    fn snapshot(&self) -> &Snapshot<SnapshotMetadata> {
        let (Self::Local(snapshot) | Self::Archived(snapshot)) = self;
        snapshot
    }
}

/// The snapshots of a node.
#[derive(Debug)]
pub(crate) struct Snapshots {
    store: SnapshotStore,
    /// What leads to snapshots in the archive.
    archived: SnapshotStore,
    entries: Mutex<HashMap<SnapshotId, Entry>>,
    /// Something was added, deleted, or is no longer used.
    changed: Notify,
    /// Set when the node closes: nobody counts from then on, so nothing goes.
    closing: AtomicBool,
}

/// Keeps a snapshot's files in place while a machine maps its memory.
#[derive(Debug)]
pub(crate) struct Pin {
    owner: Arc<Snapshots>,
    id: SnapshotId,
    held: Held,
}

impl Pin {
    pub(crate) fn id(&self) -> &SnapshotId {
        &self.id
    }

    pub(crate) fn about(&self) -> &SnapshotMetadata {
        &self.held.snapshot().manifest.about
    }

    /// Where one of its files is. What an archived one holds here is its devices and what leads to the rest.
    pub(crate) fn path(&self, name: &str) -> Result<PathBuf, NodeError> {
        Ok(self.held.snapshot().path(name)?)
    }

    /// A small file of it, checked.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, NodeError> {
        Ok(self.held.snapshot().read(name)?)
    }

    /// The sums of one of its files, if it has them.
    pub(crate) fn sums(&self, name: &str) -> Option<Checksums> {
        self.read(name).ok().and_then(|bytes| Checksums::decode(&bytes).ok())
    }

    /// Whether its memory and disk are in the archive and not here.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self.held, Held::Archived(_))
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.owner.pin_known(&self.id, &self.held)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.owner.unpin(&self.id);
    }
}

impl Snapshots {
    /// Reads what is there. Snapshots that cannot be read stay on disk and are reported; they may be of a newer version.
    pub(crate) fn open(directory: PathBuf, archived: PathBuf) -> Result<Arc<Self>, SnapshotError> {
        let store = SnapshotStore::open(&directory)?;
        let mut entries: HashMap<_, Entry> = HashMap::new();
        for (id, snapshot) in read_all(&store)? {
            let condemned = snapshot.manifest.about.purpose == SnapshotKind::Fork
                || directory.join(id.as_str()).join(DELETED).exists();
            entries.insert(id, Entry { condemned, ..Entry::local(snapshot) });
        }
        let archived_store = SnapshotStore::open(&archived)?;
        for (id, snapshot) in read_all(&archived_store)? {
            let place = archived.join(id.as_str());
            let (condemned, landed) = (place.join(DELETED).exists(), place.join(LANDED_DISK).exists());
            let entry = entries.entry(id).or_insert_with(|| {
                let entry = Entry::local(Arc::clone(&snapshot));
                Entry { local: None, ..entry }
            });
            entry.landed = landed;
            entry.archived = Some(snapshot);
            entry.condemned |= condemned;
        }
        Ok(Arc::new(Self {
            store,
            archived: archived_store,
            entries: Mutex::new(entries),
            changed: Notify::new(),
            closing: AtomicBool::new(false),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SnapshotId, Entry>> {
        // Every change below is complete before anything can panic, so a poisoned map is still right.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stage(&self) -> Result<Staged, NodeError> {
        Ok(self.store.stage()?)
    }

    /// Makes a staged snapshot part of the node. The caller's pin keeps it in place.
    pub(crate) fn commit(
        self: &Arc<Self>,
        staged: Staged,
        id: &SnapshotId,
        about: SnapshotMetadata,
        durability: Durability,
    ) -> Result<Pin, NodeError> {
        let condemned = about.purpose == SnapshotKind::Fork;
        let snapshot = Arc::new(staged.commit(id.as_str(), about, durability)?);
        {
            let mut entries = self.lock();
            let entry = entries.entry(id.clone()).or_insert_with(|| Entry::local(Arc::clone(&snapshot)));
            // One that comes back from the archive is there already.
            entry.local = Some(Arc::clone(&snapshot));
            entry.users += 1;
            entry.condemned |= condemned;
            entry.verified = true;
        }
        // What we have just written and summed need not be read again, as long as nobody touches it.
        verified::write_stamps(&snapshot);
        self.changed.notify_one();
        Ok(Pin { owner: Arc::clone(self), id: id.clone(), held: Held::Local(snapshot) })
    }

    /// Holds a snapshot that is not deleted.
    pub(crate) fn pin(self: &Arc<Self>, id: &SnapshotId) -> Result<Pin, NodeError> {
        self.pin_where(id, |entry| !entry.condemned)
    }

    /// Holds a snapshot that a machine found at start still maps, deleted or not.
    pub(crate) fn pin_for_recovery(self: &Arc<Self>, id: &SnapshotId) -> Result<Pin, NodeError> {
        self.pin_where(id, |_| true)
    }

    fn pin_where(
        self: &Arc<Self>,
        id: &SnapshotId,
        allowed: impl Fn(&Entry) -> bool,
    ) -> Result<Pin, NodeError> {
        let mut entries = self.lock();
        let entry = entries.get_mut(id).filter(|entry| allowed(entry));
        let (entry, held) = entry
            .and_then(|entry| entry.held().map(|held| (entry, held)))
            .ok_or_else(|| NodeError::NoSnapshot(id.clone()))?;
        entry.users += 1;
        entry.used_unix_ms = unix_ms();
        Ok(Pin { owner: Arc::clone(self), id: id.clone(), held })
    }

    fn pin_known(self: &Arc<Self>, id: &SnapshotId, held: &Held) -> Pin {
        if let Some(entry) = self.lock().get_mut(id) {
            entry.users += 1;
        }
        Pin { owner: Arc::clone(self), id: id.clone(), held: held.clone() }
    }

    fn unpin(&self, id: &SnapshotId) {
        // Only counts. Files go when somebody says that a machine is gone (`collect`).
        if let Some(entry) = self.lock().get_mut(id) {
            entry.users = entry.users.saturating_sub(1);
            if entry.users == 0 && entry.landed {
                self.changed.notify_one();
            }
        }
    }

    /// Deletes a snapshot. It is gone for callers at once; its files go when no machine maps them any more.
    pub(crate) fn delete(&self, id: &SnapshotId) -> Result<(), NodeError> {
        let mut entries = self.lock();
        let entry = entries
            .get_mut(id)
            .filter(|entry| !entry.condemned)
            .ok_or_else(|| NodeError::NoSnapshot(id.clone()))?;
        // In the archive's first: that is what may have to be removed later.
        for snapshot in [&entry.archived, &entry.local].into_iter().flatten() {
            mark_deleted(snapshot)?;
        }
        entry.condemned = true;
        drop(entries);
        self.collect();
        Ok(())
    }

    /// Removes deleted snapshots that no machine maps any more. To be called when a machine is gone, and when all machines that
    /// an earlier process left have been found.
    pub(crate) fn collect(&self) {
        if self.closing.load(Ordering::Acquire) {
            return;
        }
        let mut unused = Vec::new();
        self.lock().retain(|id, entry| {
            let goes = entry.condemned && entry.users == 0;
            if goes && entry.local.take().is_some() {
                unused.push(id.clone());
            }
            // What is in the archive goes when the archive says so.
            !goes || entry.archived.is_some()
        });
        for id in unused {
            self.remove_files(&id);
        }
        self.changed.notify_one();
    }

    /// Completes when something was added, deleted, or is no longer used. For one task.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Keeps every file from now on: a node that closes lets go of its pins while the machines live on and map them. What nobody
    /// uses goes when the next node has found all machines.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    fn remove_files(&self, id: &SnapshotId) {
        if let Err(error) = self.store.remove(id.as_str()) {
            tracing::warn!(snapshot.id = %id, %error, "snapshot {id} stays on disk until the next start");
        }
    }

    /// The baked template of exactly these parts.
    pub(crate) fn template(
        self: &Arc<Self>,
        name: &TemplateName,
        key: &str,
        here: &EngineFingerprint,
    ) -> Option<Pin> {
        let wanted = |about: &SnapshotMetadata| {
            matches!(&about.purpose, SnapshotKind::Template { key: found } if found == key)
                && about.fingerprint.fits(here).is_ok()
                && about.template == *name
        };
        let id = self.find(wanted).into_iter().next()?;
        self.pin(&id).ok()
    }

    /// Bakes of the templates whose name is like this, and how they are used.
    pub(crate) fn template_uses(
        &self,
        wanted: impl Fn(&TemplateName) -> bool,
    ) -> Vec<(SnapshotId, TemplateUse)> {
        let is_wanted = |about: &SnapshotMetadata| {
            matches!(about.purpose, SnapshotKind::Template { .. }) && wanted(&about.template)
        };
        let entries = self.lock();
        let found =
            entries.iter().filter(|(_, entry)| !entry.condemned && entry.about().is_some_and(&is_wanted));
        let of = |entry: &Entry| TemplateUse { users: entry.users, used_unix_ms: entry.used_unix_ms };
        found.map(|(id, entry)| (id.clone(), of(entry))).collect()
    }

    /// Snapshots that are not deleted and are like this.
    fn find(&self, wanted: impl Fn(&SnapshotMetadata) -> bool) -> Vec<SnapshotId> {
        let entries = self.lock();
        let found =
            entries.iter().filter(|(_, entry)| !entry.condemned && entry.about().is_some_and(&wanted));
        found.map(|(id, _)| id.clone()).collect()
    }

    /// Snapshots that are not deleted, oldest first.
    pub(crate) fn list(&self) -> Vec<SnapshotInfo> {
        let visible: Vec<_> = {
            let entries = self.lock();
            let visible = entries.iter().filter(|(_, entry)| !entry.condemned);
            visible.filter_map(|(id, entry)| Some((id.clone(), entry.held()?, entry.place()))).collect()
        };
        let mut list: Vec<_> = visible.into_iter().map(|(id, held, place)| info(id, &held, place)).collect();
        list.sort_by_key(|info| info.about.created_unix_ms);
        list
    }
}

/// A snapshot found in a store.
type Found = (SnapshotId, Arc<Snapshot<SnapshotMetadata>>);

/// What a store holds, as far as it can be read.
fn read_all(store: &SnapshotStore) -> Result<Vec<Found>, SnapshotError> {
    let mut all = Vec::new();
    for text in store.list()? {
        let Ok(id) = SnapshotId::parse(&text) else { continue };
        match store.get::<SnapshotMetadata>(&text) {
            Ok(snapshot) => all.push((id, Arc::new(snapshot))),
            Err(error) => tracing::warn!(snapshot.id = %id, %error, "snapshot {id} cannot be used"),
        }
    }
    Ok(all)
}

/// Name, stamp and cost of a snapshot.
fn info(id: SnapshotId, held: &Held, place: SnapshotPlace) -> SnapshotInfo {
    let about = held.snapshot().manifest.about.clone();
    let (size_bytes, unique_bytes) = match held {
        Held::Local(snapshot) => (size_bytes(snapshot), unique_bytes(snapshot)),
        Held::Archived(_) => (about.changed_bytes, 0),
    };
    SnapshotInfo { id, about, size_bytes, unique_bytes, place }
}

fn mark_deleted(snapshot: &Snapshot<SnapshotMetadata>) -> Result<(), NodeError> {
    let marker = snapshot.path(DEVICES)?.with_file_name(DELETED);
    write_file(&marker, b"", Durability::Synced).map_err(NodeError::host("delete the snapshot"))
}

/// Bytes on disk of a snapshot, those included that other files share.
fn size_bytes(snapshot: &Snapshot<SnapshotMetadata>) -> u64 {
    let size = |name: &str| {
        let file = snapshot.path(name).ok().and_then(|path| std::fs::metadata(path).ok());
        file.map_or(0, |file| file.blocks() * 512)
    };
    size(MEMORY) + size(DISK)
}

/// Bytes on disk that only this snapshot uses.
fn unique_bytes(snapshot: &Snapshot<SnapshotMetadata>) -> u64 {
    let unique = |name: &str| {
        let file = snapshot.path(name).ok().and_then(|path| File::open(path).ok());
        file.map_or(0, |file| file_bytes(&file))
    };
    unique(MEMORY) + unique(DISK)
}

fn file_bytes(file: &File) -> u64 {
    storage::unique_bytes(file).unwrap_or(0)
}
