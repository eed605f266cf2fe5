//! Baked templates that labs begin with: each is made once and kept between runs, for all suites.
//!
//! Kept as plain files, so that nothing is mounted between runs. Made anew when the guest program, the engine, the kernel or the
//! template changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use domain::SnapshotId;
use image::template::{TemplateSpec, minimal};
use node::{Node, NodeConfig, PrestartedVmms};
use serde_json::Value;
use storage::PoolSize;

use crate::lab::{BUILD_POOL_BYTES, LARGE_POOL_BYTES, address_pool};
use crate::{cache, census, command, engine, leftovers};

/// What all templates are made with: kept with the suites' own template only.
const BOOT_FILES: [&str; 3] = ["kernels", "initramfs", "apt-answers.json"];

/// A baked template as plain files.
#[derive(Debug, Clone)]
pub struct Baked {
    directory: PathBuf,
    snapshot: SnapshotId,
}

/// How much of what is kept a pool gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Images and snapshots: sandboxes can be started from their disks, templates be baked anew.
    Everything,
    /// The snapshots alone, for small pools.
    Snapshot,
}

/// The template that every suite starts from.
pub fn template() -> TemplateSpec {
    minimal()
}

impl Baked {
    /// The template that every suite starts from.
    pub async fn base() -> Result<Self> {
        Self::find_or_make(&template(), None).await
    }

    /// A template of the catalogue.
    pub async fn of(spec: &TemplateSpec) -> Result<Self> {
        let base = Self::base().await?;
        if spec.name == template().name { Ok(base) } else { Self::find_or_make(spec, Some(&base)).await }
    }

    /// Other processes wait while one makes it. Only the suites' own template is made without a base.
    async fn find_or_make(spec: &TemplateSpec, base: Option<&Self>) -> Result<Self> {
        let cache = cache::directory()?.join("baked");
        fs::create_dir_all(&cache)?;
        let lock = cache.join(format!("{}.lock", spec.name));
        let _lock = tokio::task::block_in_place(|| cache::lock(&lock))?;
        if base.is_none() {
            tokio::task::block_in_place(leftovers::sweep)?;
        }
        let directory = cache.join(&spec.name);
        let stamp = stamp(spec, base)?;
        if fs::read_to_string(directory.join("stamp")).ok().as_ref() != Some(&stamp) {
            make(spec, base, &directory, &stamp)
                .await
                .with_context(|| format!("make the template {} for the suites", spec.name))?;
        }
        let names = census::entries(&directory.join("snapshots"))?;
        let snapshot = names.iter().find_map(|name| SnapshotId::parse(name).ok());
        Ok(Self { directory, snapshot: snapshot.context("no snapshot is kept")? })
    }

    /// Its snapshot.
    pub fn snapshot(&self) -> &SnapshotId {
        &self.snapshot
    }

    /// Puts a copy into a pool, with or without the images it was made from.
    pub fn copy_to(&self, pool: &Path, contents: Contents) -> Result<()> {
        let snapshots = self.directory.join("snapshots");
        match contents {
            Contents::Everything => command::copy_into(&[&snapshots, &self.images()], pool),
            Contents::Snapshot => command::copy_into(&[&snapshots], pool),
        }
    }

    /// The images it was made from, as plain files.
    pub fn images(&self) -> PathBuf {
        self.directory.join("images")
    }
}

async fn make(spec: &TemplateSpec, base: Option<&Baked>, directory: &Path, stamp: &str) -> Result<()> {
    let data_dir = leftovers::make_directory("bake")?;
    let (range, _held) = cache::address_range()?;
    let mut config = NodeConfig::new(&data_dir);
    config.pool_size = PoolSize::Bytes(if base.is_some() { LARGE_POOL_BYTES } else { BUILD_POOL_BYTES });
    config.addresses = address_pool(range)?;
    config.prestarted_vmms = PrestartedVmms::always(0);
    let engine = engine::engine()?;
    let node = Node::open(config, move |_| Ok(engine)).await?;
    let images = data_dir.join("pool/images");
    let boot_files = base.map_or_else(|| directory.join("images"), Baked::images);
    tokio::task::block_in_place(|| -> Result<()> {
        // What has not changed since the last run is not built again.
        copy_named(&boot_files, &BOOT_FILES, &images)?;
        copy_roots(&directory.join("images/rootfs"), spec, &images.join("rootfs"))
    })?;
    let snapshot = node.template(spec, &|_| {}).await?;
    node.close().await;
    tokio::task::block_in_place(|| {
        let new = directory.with_extension("new");
        drop(fs::remove_dir_all(&new));
        fs::create_dir_all(new.join("images/rootfs"))?;
        fs::create_dir_all(new.join("snapshots"))?;
        if base.is_none() {
            copy_named(&images, &BOOT_FILES, &new.join("images"))?;
        }
        copy_roots(&images.join("rootfs"), spec, &new.join("images/rootfs"))?;
        let snapshots = data_dir.join("pool/snapshots");
        command::copy_into(&[&snapshots.join(snapshot.as_str())], &new.join("snapshots"))?;
        fs::write(new.join("stamp"), stamp)?;
        drop(fs::remove_dir_all(directory));
        fs::rename(&new, directory)?;
        leftovers::remove(&data_dir)
    })
}

/// Copies what is there of some files and folders.
fn copy_named(from: &Path, names: &[&str], to: &Path) -> Result<()> {
    let found: Vec<PathBuf> = names.iter().map(|name| from.join(name)).filter(|path| path.exists()).collect();
    copy_all(&found, to)
}

/// Copies the root file systems that were made for a template.
fn copy_roots(from: &Path, spec: &TemplateSpec, to: &Path) -> Result<()> {
    let wanted = serde_json::to_value(&spec.rootfs)?;
    let is_wanted = |entry: &PathBuf| {
        let manifest = fs::read(entry.join("manifest.json")).ok();
        let manifest: Option<Value> = manifest.and_then(|text| serde_json::from_slice(&text).ok());
        manifest.is_some_and(|manifest| manifest["details"]["spec"] == wanted)
    };
    let entries = fs::read_dir(from).into_iter().flatten().flatten().map(|entry| entry.path());
    copy_all(&entries.filter(is_wanted).collect::<Vec<_>>(), to)
}

fn copy_all(sources: &[PathBuf], to: &Path) -> Result<()> {
    if sources.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    command::copy_into(&sources.iter().map(PathBuf::as_path).collect::<Vec<_>>(), to)
}

/// What a kept template depends on.
fn stamp(spec: &TemplateSpec, base: Option<&Baked>) -> Result<String> {
    // Without its clock: where that is measured, every process finds another.
    let engine = engine::engine()?.fingerprint().kind();
    let kernels = match base {
        Some(base) => census::entries(&base.images().join("kernels"))?,
        None => BTreeSet::new(),
    };
    ensure!(base.is_none() || !kernels.is_empty(), "no kernel is kept");
    Ok(format!("{} {engine} {kernels:?} {}", image::guest_binary_digest(), serde_json::to_string(spec)?))
}
