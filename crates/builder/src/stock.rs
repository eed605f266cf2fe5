//! What a builder keeps between builds: layers, and the content of images. Knows no machine.

mod pull;
mod unpack;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dockerfile::CacheKey;
use image::DiskSize;
use oci::{Layout, LayoutError};
use tokio::sync::{Mutex, RwLock, RwLockReadGuard};

use crate::caches::Caches;
use crate::error::BuildError;
use crate::layers::Layers;
use crate::request::Collected;
use crate::settings::BuilderSettings;
use crate::staging::{Staging, blocking};

pub(crate) use unpack::{Making, grown};

/// Changes when disks are made in another way, so that old layers are no longer found.
const VERSION: &str = "1";

/// Layers and content of images, in a directory of a node's pool.
pub(crate) struct Stock {
    pub(crate) settings: BuilderSettings,
    pub(crate) layers: Arc<Layers>,
    pub(crate) caches: Caches,
    directory: PathBuf,
    layout: Layout,
    /// Read by builds, written by whoever removes content of images that no build uses.
    sweeping: RwLock<()>,
    /// Layers are removed by one at a time.
    collecting: Mutex<()>,
}

impl Stock {
    /// Opens the one in `directory`, which is made if it is not there. Blocks.
    pub(crate) fn open(directory: PathBuf, settings: BuilderSettings) -> Result<Self, BuildError> {
        let failed = BuildError::host("open the directory of builds");
        std::fs::create_dir_all(directory.join("staging")).map_err(failed)?;
        let layers = Layers::open(directory.join("layers")).map_err(failed)?;
        let caches = Caches::new(Layers::open(directory.join("caches")).map_err(failed)?);
        let layout =
            Layout::open(&directory.join("oci")).map_err(|error| failed(std::io::Error::other(error)))?;
        Ok(Self {
            settings,
            layers,
            caches,
            directory,
            layout,
            sweeping: RwLock::default(),
            collecting: Mutex::default(),
        })
    }

    /// While the answer lives, content of images stays.
    pub(crate) async fn in_use(&self) -> RwLockReadGuard<'_, ()> {
        self.sweeping.read().await
    }

    pub(crate) fn staging(&self) -> Result<Staging, BuildError> {
        Staging::make(&self.directory.join("staging"))
    }

    /// Where the node has put everything that builds make.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Removes layers until they are within the bound, and content of images of which no layer is left.
    pub(crate) async fn collect(&self) -> Result<Collected, BuildError> {
        let _alone = self.collecting.lock().await;
        let (layers, staging) = (Arc::clone(&self.layers), self.staging()?);
        let bytes_max = self.settings.layers_bytes_max;
        let failed = BuildError::host("remove old layers");
        let (caches, caches_bytes_max) = (Arc::clone(self.caches.kept()), self.settings.caches_bytes_max);
        let removed = blocking(move || {
            caches.collect(caches_bytes_max, &staging).map_err(failed)?;
            layers.collect(bytes_max, &staging).map_err(failed)
        })
        .await?;
        let mut collected =
            Collected { layers: removed.layers, bytes: removed.bytes, kept_bytes: removed.kept_bytes };
        // Later, when a build uses content now.
        if let Ok(_unused) = self.sweeping.try_write() {
            let layout = self.layout.clone();
            collected.bytes += blocking(move || {
                let sweep = || -> Result<u64, LayoutError> {
                    for image in layout.images()? {
                        let named = image.annotations.get(oci::NAME_ANNOTATION);
                        if let Some(name) =
                            named.filter(|_| !removed.images.contains(&image.digest.to_string()))
                        {
                            layout.forget(name)?;
                        }
                    }
                    layout.sweep()
                };
                match sweep() {
                    Err(LayoutError::InUse { .. }) => Ok(0),
                    done => done.map_err(|error| failed(std::io::Error::other(error))),
                }
            })
            .await?;
        }
        Ok(collected)
    }
}

/// The key of a disk that no step made: `what` stands for its content.
pub(crate) fn base_key(what: &str, size: DiskSize) -> CacheKey {
    CacheKey::of_base(&format!("{what} on {} MiB, version {VERSION}", size.mib()))
}

/// The key of a disk with a system that comes from elsewhere. It was made to trust further authorities: whoever trusts others finds
/// another disk.
pub(crate) fn foreign_key(what: &str, making: Making<'_>) -> CacheKey {
    match making.authorities.digest() {
        None => base_key(what, making.size),
        Some(digest) => base_key(&format!("{what} trusting {digest}"), making.size),
    }
}

#[cfg(test)]
mod tests;
