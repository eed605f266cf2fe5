//! Directories in which things are made before they are put in their place at once.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::BuildError;

/// A program that was killed may still be writing for a moment while its directory is removed.
const REMOVE_ATTEMPTS: u32 = 50;
const REMOVE_PAUSE: Duration = Duration::from_millis(20);

/// A directory of its own, removed when its last holder lets go of it. What a killed process leaves is removed when its node opens next.
#[derive(Debug, Clone)]
pub(crate) struct Staging {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    path: PathBuf,
}

impl Staging {
    /// Makes one in `parent`.
    pub(crate) fn make(parent: &Path) -> Result<Self, BuildError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            let path = parent.join(name);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { held: Arc::new(Held { path }) }),
                // Left by a process that had this number before.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(BuildError::host("make a directory for the build")(error)),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.held.path
    }

    /// A new directory in it.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf, BuildError> {
        let path = self.path().join(name);
        let made = fs::DirBuilder::new().mode(0o755).create(&path);
        made.map_err(BuildError::host("make a directory for the build"))?;
        Ok(path)
    }

    /// Runs blocking work in it. Such work goes on when its future is dropped; the directory stays until it ends.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, BuildError> + Send + 'static,
    ) -> Result<T, BuildError> {
        let held = self.clone();
        blocking(move || work(held.path())).await
    }
}

impl Drop for Held {
    /// Removing takes longer than a drop may, so a thread does it.
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        std::thread::spawn(move || {
            if let Err(error) = remove(&path) {
                tracing::warn!(%error, path = %path.display(), "could not remove what a build left");
            }
        });
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let mut attempt = 0;
    loop {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            // It was put in its place.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => return Ok(()),
            Err(error) if attempt == REMOVE_ATTEMPTS => return Err(error),
            Err(_) => {
                attempt += 1;
                std::thread::sleep(REMOVE_PAUSE);
            }
        }
    }
}

/// Runs blocking work on the thread pool made for it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BuildError> + Send + 'static,
) -> Result<T, BuildError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(BuildError::Cancelled),
    }
}
