//! Trees become disks: an image's layers, a tarball, or nothing at all.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::{Authorities, DiskSize, Journal as DiskJournal, TreeDisk, prepare_guest_tree};
use oci::{Image, Limits, Policy, SpecialFiles, Unpacker};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::pull::Watched;
use super::{Stock, base_key, foreign_key};
use crate::error::BuildError;
use crate::layers::{About, Layer, disk_in};
use crate::log::{Journal, Part};
use crate::staging::{Staging, blocking};

/// How a disk is made, and who wants to know.
#[derive(Clone, Copy)]
pub(crate) struct Making<'a> {
    /// Whose caches its steps use.
    pub(crate) owner: &'a str,
    pub(crate) size: DiskSize,
    /// What systems that come from elsewhere are made to trust.
    pub(crate) authorities: &'a Authorities,
    pub(crate) journal: &'a Journal<'a>,
    pub(crate) cancelled: &'a CancellationToken,
}

impl Stock {
    /// A disk with an image on it.
    pub(crate) async fn image_disk(&self, image: &Image, making: Making<'_>) -> Result<Layer, BuildError> {
        let digest = image.descriptor.digest.to_string();
        let key = foreign_key(&format!("image {digest}"), making).to_string();
        let part = making.journal.begin(&format!("unpack {digest}"));
        let about = About { image: Some(digest), ..About::default() };
        self.found_or(part, &key, about, making, async |staging, part| {
            let policy = Policy { limits: Limits::for_disk(making.size.mib()), ..Policy::default() };
            self.unpack_layers(image, staging, policy, making, part).await
        })
        .await
    }

    async fn unpack_layers(
        &self,
        image: &Image,
        staging: &Staging,
        policy: Policy,
        making: Making<'_>,
        part: &Part<'_>,
    ) -> Result<u64, BuildError> {
        let mib = making.size.mib();
        let (image, layout, cancelled) = (image.clone(), self.layout.clone(), making.cancelled.clone());
        let (sender, mut labels) = tokio::sync::mpsc::unbounded_channel();
        let unpacked = staging.blocking(move |folder| {
            let failed = |error| BuildError::unpack(error, mib);
            let mut unpacker = Unpacker::new(&folder.join(ROOT), policy).map_err(failed)?;
            let layers = &image.manifest.layers;
            for (number, (layer, diff_id)) in layers.iter().zip(&image.config.rootfs.diff_ids).enumerate() {
                let label = format!("layer {} of {}", number + 1, layers.len());
                let _ = sender.send(label.clone());
                let source = layout.open_blob(layer).map_err(|error| BuildError::import(error.into()))?;
                let source = Watched { source, cancelled: cancelled.clone() };
                unpacker.layer(&label, source, diff_id).map_err(failed)?;
            }
            Ok(unpacker.unpacked().entries)
        });
        let says = async {
            while let Some(label) = labels.recv().await {
                part.say(&label);
            }
        };
        tokio::join!(unpacked, says).0
    }

    /// A disk with the files of a tarball.
    pub(crate) async fn tarball_disk(&self, path: &Path, making: Making<'_>) -> Result<Layer, BuildError> {
        let part = making.journal.begin("unpack the root file system");
        let (path, cancelled) = (path.to_owned(), making.cancelled.clone());
        let open = move || -> Result<Watched<File>, BuildError> {
            let source = File::open(&path).map_err(BuildError::host("open the root file system"))?;
            let is_file = source.metadata().is_ok_and(|about| about.is_file());
            match is_file {
                true => Ok(Watched { source, cancelled: cancelled.clone() }),
                false => Err(BuildError::Source { problem: "the root file system is not a file".to_owned() }),
            }
        };
        let mut source = open()?;
        let content = blocking(move || {
            let mut hash = Sha256::new();
            match io::copy(&mut source, &mut hash) {
                Err(_) if source.cancelled.is_cancelled() => return Err(BuildError::Cancelled),
                read => read.map_err(BuildError::host("read the root file system"))?,
            };
            Ok(format!("{:x}", hash.finalize()))
        });
        let key = foreign_key(&format!("tarball {}", content.await?), making).to_string();
        self.found_or(part, &key, About::default(), making, async |staging, _| {
            // Packed by hand, often with a few devices in it.
            let limits = Limits::for_disk(making.size.mib());
            let policy = Policy { limits, special_files: SpecialFiles::Skip, ..Policy::default() };
            let (source, mib) = (open()?, making.size.mib());
            staging
                .blocking(move |folder| {
                    let failed = |error| BuildError::unpack(error, mib);
                    let mut unpacker = Unpacker::new(&folder.join(ROOT), policy).map_err(failed)?;
                    unpacker.tarball("the root file system", source).map_err(failed)?;
                    Ok(unpacker.unpacked().entries)
                })
                .await
        })
        .await
    }

    /// A disk with nothing on it but what every guest needs.
    pub(crate) async fn scratch_disk(&self, making: Making<'_>) -> Result<Layer, BuildError> {
        let key = base_key("scratch", making.size).to_string();
        if let Some(layer) = self.layers.find(&key) {
            return Ok(layer);
        }
        let staging = self.staging()?;
        staging.directory(ROOT)?;
        // Nothing is there that could trust anybody.
        let making = Making { authorities: &Authorities::none(), ..making };
        self.finish(staging, &key, About::default(), making, 0).await
    }

    /// The layer of a key; made by `fill`, which puts files into the staging directory's tree and counts them, if there is none.
    async fn found_or(
        &self,
        part: Part<'_>,
        key: &str,
        about: About,
        making: Making<'_>,
        fill: impl AsyncFnOnce(&Staging, &Part<'_>) -> Result<u64, BuildError>,
    ) -> Result<Layer, BuildError> {
        if let Some(layer) = self.layers.find(key) {
            part.cached();
            return Ok(layer);
        }
        let made = async {
            let staging = self.staging()?;
            staging.directory(ROOT)?;
            let files = fill(&staging, &part).await?;
            part.say("write the disk");
            self.finish(staging, key, about, making, files).await
        };
        match made.await {
            Ok(layer) => {
                part.done();
                Ok(layer)
            }
            // What was read by then ended early because of it.
            Err(_) if making.cancelled.is_cancelled() => Err(BuildError::Cancelled),
            Err(error) => {
                part.failed(&error);
                Err(error)
            }
        }
    }

    /// Makes the tree in a staging directory a layer.
    async fn finish(
        &self,
        staging: Staging,
        key: &str,
        about: About,
        making: Making<'_>,
        files: u64,
    ) -> Result<Layer, BuildError> {
        let authorities = making.authorities.clone();
        let prepare = move |folder: &Path| prepare_guest_tree(&folder.join(ROOT), &authorities);
        staging.blocking(move |folder| prepare(folder).map_err(BuildError::tree)).await?;
        let disk = TreeDisk {
            root: &staging.path().join(ROOT),
            file: &disk_in(staging.path()),
            size: making.size,
            identity: key,
            files,
            journal: DiskJournal::Kept,
        };
        disk.write().await.map_err(BuildError::image)?;
        let (layers, key) = (Arc::clone(&self.layers), key.to_owned());
        staging
            .blocking(move |folder| {
                let removed = std::fs::remove_dir_all(folder.join(ROOT));
                removed.map_err(BuildError::host("remove an unpacked tree"))?;
                layers.add(&key, folder, about)
            })
            .await
    }
}

/// The tree in a staging directory.
const ROOT: &str = "root";

/// A clone of a disk that nobody has mounted, made larger.
pub(crate) async fn grown(from: PathBuf, staging: &Staging, size: DiskSize) -> Result<(), BuildError> {
    let disk = disk_in(staging.path());
    let to = disk.clone();
    staging.blocking(move |_| storage::clone_file(&from, &to).map(drop).map_err(BuildError::clone)).await?;
    let there = std::fs::metadata(&disk).map_err(BuildError::host("look at a disk"))?.len();
    if there < size.bytes() {
        image::grow_disk(&disk, size).await.map_err(BuildError::image)?;
    }
    Ok(())
}
