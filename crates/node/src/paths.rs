//! Where a node keeps things in its pool.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use domain::SandboxId;

/// Where builds are made before they are whole, in their directory.
pub(crate) const BUILDS_STAGING: &str = "staging";

/// The directories of a node, all on one file system so that files can be cloned and directories renamed between them.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pool: PathBuf,
}

impl Paths {
    pub(crate) fn new(pool: &Path) -> io::Result<Self> {
        let paths = Self { pool: pool.to_owned() };
        for directory in [paths.sandboxes(), paths.waiting(), paths.builds().join(BUILDS_STAGING)] {
            make_directory(&directory)?;
        }
        Ok(paths)
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.pool.join("images")
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.pool.join("snapshots")
    }

    /// What leads to snapshots in the archive.
    pub(crate) fn archived(&self) -> PathBuf {
        self.pool.join("archived")
    }

    /// Parts of snapshots that came from the archive.
    pub(crate) fn chunks(&self) -> PathBuf {
        self.pool.join("chunks")
    }

    pub(crate) fn volumes(&self) -> PathBuf {
        self.pool.join("volumes")
    }

    /// What builds of templates keep.
    pub(crate) fn builds(&self) -> PathBuf {
        self.pool.join("builds")
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.pool.join("sandboxes")
    }

    /// Machine processes that have no sandbox yet.
    pub(crate) fn waiting(&self) -> PathBuf {
        self.pool.join("waiting")
    }

    pub(crate) fn sandbox(&self, id: &SandboxId) -> PathBuf {
        self.sandboxes().join(id.as_str())
    }
}

/// Makes a directory that only root may enter, and its parents.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a directory and everything in it; one that is not there is fine.
pub(crate) fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
