//! Disks kept under the key of what they hold, so that no build does again what one did before.
//!
//! ```text
//! layers/<key>/disk.ext4     a clone that shares its blocks with the layer it was made from
//!              layer.json    when it was used last, what it came from
//! ```
//!
//! A layer is complete or absent and never changes. A build pins those it uses; what nobody has used for longest goes first.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};
use storage::durable::sync_directory;
use storage::{Durability, JointBytes, write_file};

use crate::error::BuildError;
use crate::staging::Staging;

const DISK: &str = "disk.ext4";
const ABOUT: &str = "layer.json";

/// What is known of a layer besides its disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// When a build last used it, in seconds since 1970.
    #[serde(default)]
    pub(crate) used: u64,
    /// The manifest of the image it was unpacked from; content of that image is kept as long as a layer of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// Digest of the disk, once somebody had to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
}

/// All layers of a node.
#[derive(Debug)]
pub(crate) struct Layers {
    directory: PathBuf,
    /// How many builds use a layer just now, by key.
    pins: Mutex<HashMap<String, usize>>,
}

/// A layer that stays while this lives.
#[derive(Debug)]
pub(crate) struct Layer {
    key: String,
    layers: Arc<Layers>,
}

/// What was removed, and what is still there.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    pub(crate) layers: usize,
    pub(crate) bytes: u64,
    pub(crate) kept_bytes: u64,
    /// Manifests of images that kept layers were unpacked from.
    pub(crate) images: HashSet<String>,
}

impl Layers {
    pub(crate) fn open(directory: PathBuf) -> io::Result<Arc<Self>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Arc::new(Self { directory, pins: Mutex::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The layer of a key, now used.
    pub(crate) fn find(self: &Arc<Self>, key: &str) -> Option<Layer> {
        let mut pins = self.lock();
        let directory = self.directory.join(key);
        let mut about = read_about(&directory)?;
        if !directory.join(DISK).is_file() {
            return None;
        }
        about.used = now();
        if let Err(error) = write_about(&directory, &about, Durability::Unsynced) {
            tracing::warn!(%error, key, "could not note the use of a layer");
        }
        *pins.entry(key.to_owned()).or_default() += 1;
        Some(Layer { key: key.to_owned(), layers: Arc::clone(self) })
    }

    /// Keeps the disk at [`disk_in`] a staging directory. When somebody else was quicker theirs is used: both hold the same.
    /// Blocks until it is safe on the disk.
    pub(crate) fn add(
        self: &Arc<Self>,
        key: &str,
        staging: &Path,
        about: About,
    ) -> Result<Layer, BuildError> {
        let failed = BuildError::host("keep a layer");
        let disk = File::open(disk_in(staging)).map_err(failed)?;
        disk.sync_all().map_err(failed)?;
        write_about(staging, &About { used: now(), ..about }, Durability::Synced).map_err(failed)?;
        let directory = self.directory.join(key);
        // While nobody collects: a layer must not go between its coming and its first use.
        let mut pins = self.lock();
        match renameat_with(CWD, staging, CWD, &directory, RenameFlags::NOREPLACE) {
            Ok(()) => sync_directory(&self.directory).map_err(failed)?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        *pins.entry(key.to_owned()).or_default() += 1;
        Ok(Layer { key: key.to_owned(), layers: Arc::clone(self) })
    }

    /// Keeps the disk at [`disk_in`] a staging directory in place of what is kept under the key, which goes with the directory. Blocks
    /// until it is safe on the disk.
    pub(crate) fn replace(&self, key: &str, staging: &Path, about: About) -> Result<(), BuildError> {
        let failed = BuildError::host("keep a disk");
        File::open(disk_in(staging)).and_then(|disk| disk.sync_all()).map_err(failed)?;
        write_about(staging, &About { used: now(), ..about }, Durability::Synced).map_err(failed)?;
        let directory = self.directory.join(key);
        // While nobody collects: what is there now must be there until it is replaced.
        let _pins = self.lock();
        let flags = if directory.exists() { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        renameat_with(CWD, staging, CWD, &directory, flags).map_err(|errno| failed(errno.into()))?;
        sync_directory(&self.directory).map_err(failed)
    }

    /// Forgets what is kept under a key, whoever uses it; it goes with the staging directory.
    pub(crate) fn forget(&self, key: &str, staging: &Path) -> io::Result<()> {
        let _pins = self.lock();
        match fs::rename(self.directory.join(key), staging.join(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes what was unused for longest until all take at most `bytes_max`. Blocks. One at a time: whoever else removes would be
    /// in its way.
    pub(crate) fn collect(&self, bytes_max: u64, staging: &Staging) -> io::Result<Removed> {
        let mut found = self.list()?;
        let used: HashSet<String> = self.lock().keys().cloned().collect();
        // What is used now stays whatever it takes; then the most recently used. Names break ties, so that all agree.
        let rank = |(key, about): &(String, About)| (used.contains(key), about.used, key.clone());
        found.sort_by_cached_key(|layer| Reverse(rank(layer)));
        let mut joint = JointBytes::default();
        let (mut removed, mut bytes) = (Removed::default(), 0);
        let mut surplus = Vec::new();
        for (key, about) in found {
            // What it has that none before it has: exactly that is free once it goes with all that come after it.
            let own = match File::open(self.directory.join(&key).join(DISK)) {
                Ok(disk) => joint.add(&disk)?,
                Err(_) => 0,
            };
            bytes += own;
            match bytes <= bytes_max || used.contains(&key) {
                true => removed.keep(about, own),
                false => surplus.push((key, about, own)),
            }
        }
        for (key, about, own) in surplus.into_iter().rev() {
            match self.remove(&key, staging)? {
                true => {
                    removed.layers += 1;
                    removed.bytes += own;
                }
                // Somebody has begun to use it.
                false => removed.keep(about, own),
            }
        }
        Ok(removed)
    }

    /// Whether it could be removed: nobody uses it. It is out of sight at once and gone with the staging directory.
    fn remove(&self, key: &str, staging: &Staging) -> io::Result<bool> {
        let pins = self.lock();
        if pins.contains_key(key) {
            return Ok(false);
        }
        fs::rename(self.directory.join(key), staging.path().join(key))?;
        drop(pins);
        fs::remove_dir_all(staging.path().join(key))?;
        Ok(true)
    }

    fn list(&self) -> io::Result<Vec<(String, About)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let Ok(key) = entry.file_name().into_string() else { continue };
            // One that cannot be read is the first to go.
            let about = read_about(&entry.path()).unwrap_or_default();
            found.push((key, about));
        }
        Ok(found)
    }
}

impl Removed {
    fn keep(&mut self, about: About, bytes: u64) {
        self.kept_bytes += bytes;
        self.images.extend(about.image);
    }
}

impl Layer {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.layers.directory.join(&self.key).join(DISK)
    }

    /// Digest of the disk's content. Blocks on reading it the first time.
    pub(crate) fn digest(&self) -> io::Result<String> {
        let directory = self.layers.directory.join(&self.key);
        let about = read_about(&directory).unwrap_or_default();
        if let Some(digest) = about.digest {
            return Ok(digest);
        }
        let digest = image::Digest::of_sparse_file(&self.disk())?.to_string();
        write_about(&directory, &About { digest: Some(digest.clone()), ..about }, Durability::Unsynced)?;
        Ok(digest)
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        let mut pins = self.layers.lock();
        if let Some(count) = pins.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.key);
            }
        }
    }
}

/// Where a staging directory has the disk that [`Layers::add`] keeps.
pub(crate) fn disk_in(staging: &Path) -> PathBuf {
    staging.join(DISK)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn read_about(directory: &Path) -> Option<About> {
    serde_json::from_slice(&fs::read(directory.join(ABOUT)).ok()?).ok()
}

fn write_about(directory: &Path, about: &About, durability: Durability) -> io::Result<()> {
    write_file(&directory.join(ABOUT), &serde_json::to_vec(about)?, durability)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Room {
        directory: tempfile::TempDir,
        layers: Arc<Layers>,
    }

    impl Room {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let layers = Layers::open(directory.path().join("layers")).unwrap();
            Self { directory, layers }
        }

        fn staging(&self) -> Staging {
            Staging::make(self.directory.path()).unwrap()
        }

        fn add(&self, key: &str, bytes: usize, used: u64) -> Layer {
            let staging = self.staging();
            fs::write(disk_in(staging.path()), vec![7; bytes]).unwrap();
            let about = About { image: Some(format!("image of {key}")), ..About::default() };
            let layer = self.layers.add(key, staging.path(), about).unwrap();
            let directory = self.layers.directory.join(key);
            let about = About { used, ..read_about(&directory).unwrap() };
            write_about(&directory, &about, Durability::Unsynced).unwrap();
            layer
        }

        fn keys(&self) -> Vec<String> {
            let mut keys: Vec<String> = self.layers.list().unwrap().into_iter().map(|(key, _)| key).collect();
            keys.sort();
            keys
        }
    }

    #[test]
    fn a_layer_is_found_again_and_the_first_one_stays() {
        let room = Room::new();
        assert!(room.layers.find("a").is_none());
        let first = room.add("a", 5000, 1);
        let again = room.add("a", 9000, 1);
        assert_eq!(fs::metadata(again.disk()).unwrap().len(), 5000);
        assert_eq!(first.digest().unwrap(), again.digest().unwrap());
        let found = room.layers.find("a").unwrap();
        assert!(read_about(&room.layers.directory.join("a")).unwrap().used > 1);
        assert_eq!(found.disk(), first.disk());
    }

    #[test]
    fn the_longest_unused_go_and_none_that_is_used() {
        let room = Room::new();
        let size = 1 << 20;
        let pinned = room.add("oldest", size, 1);
        drop(room.add("old", size, 2));
        drop(room.add("new", size, 3));
        let removed = room.layers.collect(2 * size as u64, &room.staging()).unwrap();
        assert_eq!((removed.layers, removed.bytes, removed.kept_bytes), (1, size as u64, 2 * size as u64));
        assert_eq!(room.keys(), ["new", "oldest"]);
        assert!(removed.images.contains("image of oldest") && !removed.images.contains("image of old"));
        let removed = room.layers.collect(0, &room.staging()).unwrap();
        assert_eq!((removed.layers, room.keys()), (1, vec!["oldest".to_owned()]));
        drop(pinned);
        room.layers.collect(0, &room.staging()).unwrap();
        assert!(room.keys().is_empty());
    }

    #[test]
    fn what_is_replaced_or_forgotten_is_gone_at_once() {
        let room = Room::new();
        let first = room.add("a", 5000, 1);
        for length in [6000, 7000] {
            let staging = room.staging();
            fs::write(disk_in(staging.path()), vec![1; length]).unwrap();
            room.layers.replace("a", staging.path(), About::default()).unwrap();
            assert_eq!(fs::metadata(first.disk()).unwrap().len(), length as u64);
        }
        let staging = room.staging();
        fs::write(disk_in(staging.path()), "new").unwrap();
        room.layers.replace("b", staging.path(), About::default()).unwrap();
        assert_eq!(room.keys(), ["a", "b"]);
        let staging = room.staging();
        room.layers.forget("a", staging.path()).unwrap();
        room.layers.forget("a", staging.path()).unwrap();
        assert_eq!(room.keys(), ["b"]);
    }

    #[test]
    fn what_cannot_be_read_is_no_layer() {
        let room = Room::new();
        drop(room.add("a", 5000, 1));
        fs::write(room.layers.directory.join("a").join(ABOUT), "{").unwrap();
        assert!(room.layers.find("a").is_none());
    }
}
