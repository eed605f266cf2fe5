//! Snapshots that this node knows, who uses them, and when they go.
//!
//! Each snapshot's files are whole: they share blocks with others in the file system, not references we would have to count. The
//! one thing that ties a snapshot down is a machine that maps its memory. So a snapshot that was deleted, or that exists only for
//! the children of a fork, stays hidden on disk until the last such machine is gone.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{EngineFingerprint, MachineShape, SandboxId, SnapshotId, TemplateName};
use memory::{Sums, What};
use serde::{Deserialize, Serialize};
use storage::snapshot::SnapshotStore;
use storage::{Durability, Snapshot, Staged, write_file};

use crate::error::NodeError;
use crate::record::unix_ms;
use crate::stamp::Stamp;
use crate::volumes::VolumeRead;

pub(crate) const MEMORY: &str = "memory";
pub(crate) const MEMORY_SUMS: &str = "memory.sums";
pub(crate) const DISK: &str = "disk";
pub(crate) const DISK_SUMS: &str = "disk.sums";
pub(crate) const DEVICES: &str = "devices";
/// Beside the manifest, not part of it: that the files were verified, and that the snapshot was deleted.
const VERIFIED: &str = "verified.json";
const DELETED: &str = "deleted";

/// What a snapshot is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Why it exists.
    pub purpose: Purpose,
    /// The template it descends from.
    pub template: TemplateName,
    /// The snapshot its machine was made from; none for a template.
    pub parent: Option<SnapshotId>,
    /// The sandbox it was taken of; none for a template.
    pub sandbox: Option<SandboxId>,
    /// What it can be resumed with.
    pub fingerprint: EngineFingerprint,
    /// Size of the machine.
    pub shape: MachineShape,
    /// Volumes that its guest was reading, in the guest's order.
    #[serde(default)]
    pub volumes: Vec<VolumeRead>,
    /// Bytes of memory that differ from the parent's.
    pub changed_bytes: u64,
    /// Milliseconds of Unix time.
    pub created_unix_ms: u64,
}

/// Why a snapshot exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A template, baked from exactly these parts.
    Template {
        /// Digest of everything it was baked from.
        key: String,
    },
    /// A user asked for it.
    Kept,
    /// The common memory of a fork's children; goes with the last of them.
    Fork,
}

/// A snapshot as callers see it.
#[derive(Debug, Clone, Serialize)]
pub struct SnapshotInfo {
    /// Its id.
    pub id: SnapshotId,
    /// What it is of.
    #[serde(flatten)]
    pub about: About,
    /// Bytes on disk that no other file shares.
    pub unique_bytes: u64,
}

#[derive(Debug)]
struct Entry {
    snapshot: Arc<Snapshot<About>>,
    users: usize,
    /// Deleted or only for children: goes when nobody uses it.
    condemned: bool,
    verified: bool,
}

/// The snapshots of a node.
#[derive(Debug)]
pub(crate) struct Snapshots {
    store: SnapshotStore,
    entries: Mutex<HashMap<SnapshotId, Entry>>,
    /// Set when the node closes: nobody counts from then on, so nothing goes.
    closing: AtomicBool,
}

/// Keeps a snapshot's files in place while a machine maps its memory.
#[derive(Debug)]
pub(crate) struct Pin {
    owner: Arc<Snapshots>,
    id: SnapshotId,
    snapshot: Arc<Snapshot<About>>,
}

impl Pin {
    pub(crate) fn id(&self) -> &SnapshotId {
        &self.id
    }

    pub(crate) fn about(&self) -> &About {
        &self.snapshot.manifest.about
    }

    pub(crate) fn path(&self, name: &str) -> Result<PathBuf, NodeError> {
        Ok(self.snapshot.path(name)?)
    }

    /// The sums of one of its files, if it has them.
    pub(crate) fn sums(&self, name: &str) -> Option<Sums> {
        self.snapshot.read(name).ok().and_then(|bytes| Sums::decode(&bytes).ok())
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.owner.pin_known(&self.id, &self.snapshot)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.owner.unpin(&self.id);
    }
}

impl Snapshots {
    /// Reads what is there. Snapshots that cannot be read stay on disk and are reported; they may be of a newer version.
    pub(crate) fn open(directory: PathBuf) -> Result<Arc<Self>, storage::SnapshotError> {
        let store = SnapshotStore::open(&directory)?;
        let mut entries = HashMap::new();
        for text in store.list()? {
            let Ok(id) = SnapshotId::parse(&text) else { continue };
            match store.get::<About>(&text) {
                Ok(snapshot) => {
                    let condemned = snapshot.manifest.about.purpose == Purpose::Fork
                        || directory.join(&text).join(DELETED).exists();
                    let entry = Entry { snapshot: Arc::new(snapshot), users: 0, condemned, verified: false };
                    entries.insert(id, entry);
                }
                Err(error) => tracing::warn!(snapshot.id = %id, %error, "snapshot {id} cannot be used"),
            }
        }
        Ok(Arc::new(Self { store, entries: Mutex::new(entries), closing: AtomicBool::new(false) }))
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
        about: About,
        durability: Durability,
    ) -> Result<Pin, NodeError> {
        let condemned = about.purpose == Purpose::Fork;
        let snapshot = Arc::new(staged.commit(id.as_str(), about, durability)?);
        let entry = Entry { snapshot: Arc::clone(&snapshot), users: 1, condemned, verified: true };
        self.lock().insert(id.clone(), entry);
        // What we have just written and summed need not be read again, as long as nobody touches it.
        self.write_stamps(&snapshot);
        Ok(Pin { owner: Arc::clone(self), id: id.clone(), snapshot })
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
        let entry = entries
            .get_mut(id)
            .filter(|entry| allowed(entry))
            .ok_or_else(|| NodeError::NoSnapshot(id.clone()))?;
        entry.users += 1;
        Ok(Pin { owner: Arc::clone(self), id: id.clone(), snapshot: Arc::clone(&entry.snapshot) })
    }

    fn pin_known(self: &Arc<Self>, id: &SnapshotId, snapshot: &Arc<Snapshot<About>>) -> Pin {
        if let Some(entry) = self.lock().get_mut(id) {
            entry.users += 1;
        }
        Pin { owner: Arc::clone(self), id: id.clone(), snapshot: Arc::clone(snapshot) }
    }

    fn unpin(&self, id: &SnapshotId) {
        // Only counts. Files go when somebody says that a machine is gone (`collect`).
        if let Some(entry) = self.lock().get_mut(id) {
            entry.users = entry.users.saturating_sub(1);
        }
    }

    /// Deletes a snapshot. It is gone for callers at once; its files go when no machine maps them any more.
    pub(crate) fn delete(&self, id: &SnapshotId) -> Result<(), NodeError> {
        let mut entries = self.lock();
        let entry = entries
            .get_mut(id)
            .filter(|entry| !entry.condemned)
            .ok_or_else(|| NodeError::NoSnapshot(id.clone()))?;
        let marker = entry.snapshot.path(MEMORY)?.with_file_name(DELETED);
        write_file(&marker, b"", Durability::Synced).map_err(NodeError::host("delete the snapshot"))?;
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
        let unused: Vec<_> = {
            let mut entries = self.lock();
            let unused: Vec<_> = entries
                .iter()
                .filter(|(_, entry)| entry.condemned && entry.users == 0)
                .map(|(id, _)| id.clone())
                .collect();
            for id in &unused {
                entries.remove(id);
            }
            unused
        };
        for id in unused {
            self.remove_files(&id);
        }
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
        let id = self.lock().iter().find_map(|(id, entry)| {
            let about = &entry.snapshot.manifest.about;
            let wanted = matches!(&about.purpose, Purpose::Template { key: found } if found == key)
                && about.fingerprint.fits(here).is_ok();
            (wanted && about.template == *name && !entry.condemned).then(|| id.clone())
        })?;
        self.pin(&id).ok()
    }

    /// All bakes of this template.
    pub(crate) fn templates(&self, name: &TemplateName) -> Vec<SnapshotId> {
        let entries = self.lock();
        let bakes = entries.iter().filter(|(_, entry)| {
            let about = &entry.snapshot.manifest.about;
            matches!(about.purpose, Purpose::Template { .. }) && about.template == *name && !entry.condemned
        });
        bakes.map(|(id, _)| id.clone()).collect()
    }

    /// Snapshots that are not deleted, oldest first.
    pub(crate) fn list(&self) -> Vec<SnapshotInfo> {
        let visible: Vec<_> = {
            let entries = self.lock();
            let visible = entries.iter().filter(|(_, entry)| !entry.condemned);
            visible.map(|(id, entry)| (id.clone(), Arc::clone(&entry.snapshot))).collect()
        };
        let mut list: Vec<_> = visible.into_iter().map(|(id, snapshot)| info(id, &snapshot)).collect();
        list.sort_by_key(|info| info.about.created_unix_ms);
        list
    }

    /// Makes sure that every byte is the one that was written, or refuses. Costs nothing for files verified since the host
    /// booted and untouched since. Blocks.
    pub(crate) fn verify(&self, pin: &Pin) -> Result<(), NodeError> {
        if self.lock().get(&pin.id).is_some_and(|entry| entry.verified) && stamps_hold(&pin.snapshot) {
            return Ok(());
        }
        if !stamps_hold(&pin.snapshot) {
            // Lengths and manifest first: a file cut short is told as such.
            self.store.get::<About>(pin.id.as_str())?;
            for (name, sums_name) in [(MEMORY, MEMORY_SUMS), (DISK, DISK_SUMS)] {
                let sums = Sums::decode(&pin.snapshot.read(sums_name)?)
                    .map_err(|error| NodeError::Damaged { what: format!("{sums_name}: {error}") })?;
                let file = File::open(pin.path(name)?).map_err(NodeError::host("open a snapshot"))?;
                sums.verify(&file, What::All)
                    .map_err(|error| NodeError::Damaged { what: format!("{name}: {error}") })?;
            }
            pin.snapshot.read(DEVICES)?;
            self.write_stamps(&pin.snapshot);
        }
        if let Some(entry) = self.lock().get_mut(&pin.id) {
            entry.verified = true;
        }
        Ok(())
    }

    fn write_stamps(&self, snapshot: &Snapshot<About>) {
        let written = stamps(snapshot).and_then(|stamps| {
            let path = snapshot.path(MEMORY).map_err(std::io::Error::other)?.with_file_name(VERIFIED);
            write_file(&path, &serde_json::to_vec(&stamps)?, Durability::Unsynced)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "could not remember that a snapshot was verified; it will be again");
        }
    }
}

/// Name, stamp and cost of a snapshot.
fn info(id: SnapshotId, snapshot: &Snapshot<About>) -> SnapshotInfo {
    let unique = |name: &str| {
        let file = snapshot.path(name).ok().and_then(|path| File::open(path).ok());
        file.and_then(|file| storage::unique_bytes(&file).ok()).unwrap_or(0)
    };
    SnapshotInfo { id, about: snapshot.manifest.about.clone(), unique_bytes: unique(MEMORY) + unique(DISK) }
}

const STAMPED: [&str; 5] = [MEMORY, MEMORY_SUMS, DISK, DISK_SUMS, DEVICES];

fn stamps(snapshot: &Snapshot<About>) -> std::io::Result<HashMap<String, Stamp>> {
    let mut stamps = HashMap::new();
    for name in STAMPED {
        let path = snapshot.path(name).map_err(std::io::Error::other)?;
        stamps.insert(name.to_owned(), Stamp::of(&path)?);
    }
    Ok(stamps)
}

fn stamps_hold(snapshot: &Snapshot<About>) -> bool {
    let Ok(memory) = snapshot.path(MEMORY) else { return false };
    let Ok(bytes) = std::fs::read(memory.with_file_name(VERIFIED)) else { return false };
    let Ok(stamps) = serde_json::from_slice::<HashMap<String, Stamp>>(&bytes) else { return false };
    STAMPED.iter().all(|name| {
        let path = snapshot.path(name);
        path.is_ok_and(|path| stamps.get(*name).is_some_and(|stamp| stamp.still_holds(&path)))
    })
}

/// Describes a snapshot about to be made.
pub(crate) fn about(
    purpose: Purpose,
    template: TemplateName,
    fingerprint: EngineFingerprint,
    shape: MachineShape,
) -> About {
    About {
        purpose,
        template,
        parent: None,
        sandbox: None,
        fingerprint,
        shape,
        volumes: Vec::new(),
        changed_bytes: 0,
        created_unix_ms: unix_ms(),
    }
}
