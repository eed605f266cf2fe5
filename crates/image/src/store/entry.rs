//! Makes one entry of the store: one builder per key, complete or absent.
//!
//! absent ─► locked ─► staged ─► synced ─► renamed (complete)      any failure ─► staging removed ─► absent

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with, syncfs};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ImageStore, Kind, PackageCache, Reuse};
use crate::error::{ImageError, blocking};
use crate::manifest::{Content, FileRecord, Manifest};
use crate::progress::Reporter;

/// How often a waiting builder asks whether the other one has finished.
const LOCK_POLL: Duration = Duration::from_millis(50);
/// A killed program may still be creating files for a moment while its folder is removed.
const REMOVE_ATTEMPTS: u32 = 50;
const REMOVE_PAUSE: Duration = Duration::from_millis(20);

/// What is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a str,
    pub(crate) reuse: Reuse,
}

/// What a builder has put in its staging folder.
pub(crate) struct Built<T> {
    pub(crate) files: Vec<(&'static str, Content)>,
    pub(crate) details: T,
}

impl ImageStore {
    /// The finished entry and its manifest, or `None`. Reads only the manifest and the lengths of the files.
    pub(crate) fn find<T>(&self, kind: Kind, key: &str) -> Result<Option<(PathBuf, Manifest<T>)>, ImageError>
    where
        T: Serialize + DeserializeOwned,
    {
        let entry = self.entry(kind, key);
        let manifest =
            Manifest::load(&entry).map_err(|error| ImageError::io("reading a finished image", error))?;
        Ok(manifest.map(|manifest| (entry, manifest)))
    }

    /// The finished entry, made by `build` if there is none. `build` works in the staging folder it is given. If
    /// somebody else is making the same entry, waits and takes theirs.
    pub(crate) async fn find_or_build<T>(
        &self,
        wanted: Wanted<'_>,
        reporter: Reporter<'_>,
        build: impl AsyncFnOnce(&Staging) -> Result<Built<T>, ImageError>,
    ) -> Result<(PathBuf, Manifest<T>), ImageError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let Wanted { kind, key, reuse } = wanted;
        if reuse == Reuse::IfPresent
            && let Some(found) = self.find(kind, key)?
        {
            return Ok(found);
        }
        let name = format!("{}-{key}", kind.folder());
        let lock = self.lock(&name, reporter).await?;
        if reuse == Reuse::IfPresent
            && let Some(found) = self.find(kind, key)?
        {
            return Ok(found);
        }
        let staging = Staging::make(self, &name, lock).await?;
        let built = match build(&staging).await {
            Ok(built) => built,
            Err(error) => {
                staging.discard().await?;
                return Err(error);
            }
        };
        reporter.say("checking and saving");
        staging.commit(self.entry(kind, key), built).await?;
        self.find(kind, key)?.ok_or_else(|| {
            let source = io::Error::other("it cannot be read back");
            ImageError::io("saving a finished image", source)
        })
    }

    async fn lock(&self, name: &str, reporter: Reporter<'_>) -> Result<File, ImageError> {
        let failed = |error| ImageError::io("locking an image", error);
        let file = open_lock(&self.lock_path(name)).map_err(failed)?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut told, true) {
                        reporter.say("waiting for another build of the same");
                    }
                    tokio::time::sleep(LOCK_POLL).await;
                }
            }
        }
    }
}

/// A folder that its builder alone works in. Removed unless it is committed.
#[derive(Debug)]
pub(crate) struct Staging {
    path: PathBuf,
    packages: PackageCache,
    /// Held until the folder is committed or gone.
    lock: Option<Arc<File>>,
}

impl Staging {
    async fn make(store: &ImageStore, name: &str, lock: File) -> Result<Self, ImageError> {
        let staging = Self {
            path: store.staging_path(name),
            packages: store.package_cache(),
            lock: Some(Arc::new(lock)),
        };
        blocking("preparing a build", move || {
            remove(&staging.path, &staging.packages)
                .and_then(|()| fs::create_dir(&staging.path))
                .map_err(|error| ImageError::io("preparing a build", error))?;
            Ok(staging)
        })
        .await
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn packages(&self) -> &PackageCache {
        &self.packages
    }

    /// The lock to hand to programs that work in the folder, so that it stays taken while they live.
    pub(crate) fn lock(&self) -> Option<&File> {
        self.lock.as_deref()
    }

    /// Runs blocking work on the folder. Such work goes on when its future is dropped; it keeps the lock until then.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Path) -> Result<T, ImageError> + Send + 'static,
    ) -> Result<T, ImageError> {
        let (path, lock) = (self.path.clone(), self.lock.clone());
        blocking(doing, move || {
            let result = work(&path);
            drop(lock);
            result
        })
        .await
    }

    /// Hashes the files, writes the manifest, makes all of it durable and puts it in its place at once.
    async fn commit<T>(mut self, entry: PathBuf, built: Built<T>) -> Result<(), ImageError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        blocking("saving a finished image", move || match write_and_rename(&self.path, &entry, built) {
            Ok(Replaced::Nothing) => {
                drop(self.lock.take());
                Ok(())
            }
            // The former entry now lies in the staging folder.
            Ok(Replaced::FormerEntry) => self.remove(),
            Err(error) => {
                self.remove()?;
                Err(ImageError::io("saving a finished image", error))
            }
        })
        .await
    }

    async fn discard(self) -> Result<(), ImageError> {
        blocking("removing an unfinished image", move || self.remove()).await
    }

    fn remove(mut self) -> Result<(), ImageError> {
        remove(&self.path, &self.packages)
            .map_err(|error| ImageError::io("removing an unfinished image", error))?;
        self.lock = None;
        Ok(())
    }
}

impl Drop for Staging {
    /// A build that nobody waits for any more. Removing takes longer than a drop may, so a thread does it; it keeps
    /// the lock meanwhile. If the process ends first, the next one to open the store finishes the work.
    fn drop(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        let (path, packages) = (std::mem::take(&mut self.path), self.packages.clone());
        std::thread::spawn(move || {
            if let Err(error) = remove(&path, &packages) {
                tracing::warn!(%error, path = %path.display(), "could not remove an unfinished image");
            }
            drop(lock);
        });
    }
}

enum Replaced {
    Nothing,
    FormerEntry,
}

fn write_and_rename<T>(staging: &Path, entry: &Path, built: Built<T>) -> io::Result<Replaced>
where
    T: Serialize + DeserializeOwned,
{
    let records = built
        .files
        .iter()
        .map(|(name, content)| FileRecord::take(staging, name, *content))
        .collect::<io::Result<Vec<_>>>()?;
    Manifest::new(records, built.details).write(staging)?;
    // One call for all files: a kernel has more than a thousand.
    syncfs(File::open(staging)?)?;
    let replaced = match renameat_with(CWD, staging, CWD, entry, RenameFlags::NOREPLACE) {
        Ok(()) => Replaced::Nothing,
        Err(rustix::io::Errno::EXIST) => {
            renameat_with(CWD, staging, CWD, entry, RenameFlags::EXCHANGE)?;
            Replaced::FormerEntry
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(parent) = entry.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(replaced)
}

/// Removes the staging folders whose builders are gone.
pub(super) fn sweep(store: &ImageStore) -> Result<(), ImageError> {
    let failed = |error| ImageError::io("removing unfinished images", error);
    for entry in fs::read_dir(store.staging_root()).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let lock = open_lock(&store.lock_path(&name.to_string_lossy())).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {
                tracing::info!(path = %entry.path().display(), "removing what an interrupted build left");
                remove(&entry.path(), &store.package_cache()).map_err(failed)?;
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Lock files are never removed: whoever waits for one must not be left holding a file without a name.
fn open_lock(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).read(true).open(path)
}

/// Removes a staging folder; packages that were downloaded into it are kept for the next try.
fn remove(path: &Path, packages: &PackageCache) -> io::Result<()> {
    if let Err(error) = packages.harvest(&path.join(PackageCache::IN_STAGING)) {
        tracing::warn!(%error, "could not keep downloaded packages");
    }
    let mut attempt = 0;
    loop {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => return Ok(()),
            Err(error) if attempt == REMOVE_ATTEMPTS => return Err(error),
            Err(_) => {
                attempt += 1;
                std::thread::sleep(REMOVE_PAUSE);
            }
        }
    }
}
