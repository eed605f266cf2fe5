//! What `RUN --mount=type=cache` leaves for later builds: a disk for each owner and id, outside of all layers.
//!
//! ```text
//! caches/<key>/disk.ext4     as a machine left it; mounted only in machines of the same owner
//!              layer.json    when it was used last
//! ```
//!
//! A build's machine gets a clone, and what a step left in it takes the place of what is kept. Builds do not wait for each other: of two
//! that use a cache at the same time, the one that ends a step last is the one whose cache is kept. A disk that no guest can mount any
//! more is thrown away and begun anew. Those unused for longest go when all together take more than is allowed.

use std::path::PathBuf;
use std::sync::Arc;

use image::{DiskSize, Journal, TreeDisk};
use sha2::{Digest, Sha256};

use crate::error::BuildError;
use crate::layers::{About, Layer, Layers, disk_in};
use crate::staging::Staging;

/// The most that one cache can hold; a step that writes more is told that the disk is full.
const CACHE_BYTES: u64 = 8 << 30;
/// The directory on its disk that steps see. Beside it is what belongs to the file system.
pub(crate) const CONTENT: &str = "/content";
/// An empty tree to make an empty disk from.
const EMPTY: &str = "empty";

/// All caches of a node.
pub(crate) struct Caches {
    kept: Arc<Layers>,
}

/// A disk to clone, which stays while this lives.
pub(crate) enum CacheDisk {
    /// As a build left it.
    Kept(Layer),
    /// Nothing is on it.
    Empty(Staging),
}

impl CacheDisk {
    pub(crate) fn file(&self) -> PathBuf {
        match self {
            Self::Kept(layer) => layer.disk(),
            Self::Empty(staging) => disk_in(staging.path()),
        }
    }
}

fn key(owner: &str, id: &str) -> String {
    let mut hash = Sha256::new();
    for text in [owner, id] {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    format!("{:x}", hash.finalize())
}

impl Caches {
    pub(crate) fn new(kept: Arc<Layers>) -> Self {
        Self { kept }
    }

    /// All of them, to be bounded.
    pub(crate) fn kept(&self) -> &Arc<Layers> {
        &self.kept
    }

    /// The disk of a cache; an empty one, made in `staging`, when none is kept.
    pub(crate) async fn disk(
        &self,
        owner: &str,
        id: &str,
        staging: Staging,
    ) -> Result<CacheDisk, BuildError> {
        if let Some(kept) = self.kept.find(&key(owner, id)) {
            return Ok(CacheDisk::Kept(kept));
        }
        let disk = TreeDisk {
            root: &staging.directory(EMPTY)?,
            file: &disk_in(staging.path()),
            size: DiskSize::from_bytes(CACHE_BYTES).map_err(BuildError::Size)?,
            identity: "cache",
            files: 0,
            journal: Journal::Kept,
        };
        disk.write().await.map_err(BuildError::image)?;
        Ok(CacheDisk::Empty(staging))
    }

    /// Keeps the disk at [`disk_in`] a staging directory, which has nothing else in it, in place of what was kept.
    pub(crate) async fn put(&self, owner: &str, id: &str, staging: &Staging) -> Result<(), BuildError> {
        let (kept, key) = (Arc::clone(&self.kept), key(owner, id));
        staging.blocking(move |folder| kept.replace(&key, folder, About::default())).await
    }

    /// Forgets one.
    pub(crate) async fn forget(&self, owner: &str, id: &str, staging: &Staging) -> Result<(), BuildError> {
        let (kept, key) = (Arc::clone(&self.kept), key(owner, id));
        let failed = BuildError::host("forget a cache");
        staging.blocking(move |folder| kept.forget(&key, folder).map_err(failed)).await
    }
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn owners_and_ids_are_told_apart() {
        assert_eq!(key("a", "/root/.cache"), key("a", "/root/.cache"));
        assert_ne!(key("a", "bc"), key("ab", "c"));
        assert_ne!(key("a", "x"), key("b", "x"));
    }
}
