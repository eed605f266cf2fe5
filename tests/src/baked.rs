//! The template every suite starts from, made once and kept between runs.
//!
//! Kept as plain files, so that nothing is mounted between runs. Made anew when the guest program, the engine or the template
//! changed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use image::template::{TemplateSpec, minimal};
use node::{MachinesWaiting, Node, NodeConfig};
use storage::PoolSize;

use crate::lab::{BUILD_POOL_BYTES, address_pool};
use crate::{cache, command, engine, leftovers};

/// Parts of the image cache that are worth keeping.
const IMAGES: [&str; 4] = ["kernels", "initramfs", "rootfs", "apt-answers.json"];

/// A baked template as plain files.
#[derive(Debug, Clone)]
pub struct Base {
    directory: PathBuf,
}

/// The template that suites use.
pub fn template() -> TemplateSpec {
    minimal()
}

impl Base {
    /// Finds it, or makes it; other processes wait meanwhile.
    pub async fn ensure() -> Result<Self> {
        let cache = cache::directory()?;
        let lock = tokio::task::block_in_place(|| cache::lock(&cache.join("base.lock")))?;
        tokio::task::block_in_place(leftovers::sweep)?;
        let base = Self { directory: cache.join("base") };
        let stamp = stamp()?;
        if fs::read_to_string(base.directory.join("stamp")).ok().as_ref() != Some(&stamp) {
            base.make(&stamp).await.context("make the template that the suites use")?;
        }
        drop(lock);
        Ok(base)
    }

    async fn make(&self, stamp: &str) -> Result<()> {
        let data_dir = leftovers::make_directory("base")?;
        let (range, _held) = cache::address_range()?;
        let mut config = NodeConfig::new(&data_dir);
        config.pool_size = PoolSize::Bytes(BUILD_POOL_BYTES);
        config.addresses = address_pool(range)?;
        config.machines_waiting = MachinesWaiting::always(0);
        let engine = engine::engine()?;
        let node = Node::open(config, move |_| Ok(engine)).await?;
        let pool = data_dir.join("pool");
        // What has not changed since the last run is not built again.
        let images = self.directory.join("images");
        if images.exists() {
            let kept = IMAGES.iter().map(|name| images.join(name)).filter(|path| path.exists());
            let kept: Vec<_> = kept.collect();
            let kept: Vec<&Path> = kept.iter().map(PathBuf::as_path).collect();
            tokio::task::block_in_place(|| command::copy_into(&kept, &pool.join("images")))?;
        }
        let snapshot = node.template(&template(), &|_| {}).await?;
        node.close().await;
        tokio::task::block_in_place(|| {
            let new = self.directory.with_extension("new");
            drop(fs::remove_dir_all(&new));
            fs::create_dir_all(new.join("images"))?;
            fs::create_dir_all(new.join("snapshots"))?;
            let images: Vec<_> = IMAGES.iter().map(|name| pool.join("images").join(name)).collect();
            let images: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
            command::copy_into(&images, &new.join("images"))?;
            command::copy_into(&[&pool.join("snapshots").join(snapshot.as_str())], &new.join("snapshots"))?;
            fs::write(new.join("stamp"), stamp)?;
            drop(fs::remove_dir_all(&self.directory));
            fs::rename(&new, &self.directory)?;
            leftovers::remove(&data_dir)
        })
    }

    /// Puts a copy of the baked template into a pool, with or without the images it was made from.
    pub fn copy_to(&self, pool: &Path, contents: Contents) -> Result<()> {
        let mut parts = vec![self.directory.join("snapshots")];
        if contents == Contents::Everything {
            parts.push(self.directory.join("images"));
        }
        let parts: Vec<&Path> = parts.iter().map(PathBuf::as_path).collect();
        command::copy_into(&parts, pool)
    }

    /// The image cache, as plain files.
    pub fn images(&self) -> PathBuf {
        self.directory.join("images")
    }
}

/// How much of the base a pool gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Images and snapshot: sandboxes can be started from their disks, templates be baked anew.
    Everything,
    /// The snapshot alone, for small pools.
    Snapshot,
}

fn stamp() -> Result<String> {
    let spec = serde_json::to_string(&template())?;
    // Without its clock: where that is measured, every process finds another.
    let engine = engine::engine()?.fingerprint().kind();
    Ok(format!("{} {engine} {spec}", image::guest_binary_digest()))
}
