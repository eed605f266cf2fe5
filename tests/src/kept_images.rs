//! Root file systems of the templates that take minutes to make, kept between runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use domain::SnapshotId;
use image::template::{TemplateSpec, catalogue};
use serde_json::Value;

use crate::lab::Lab;
use crate::{cache, command};

/// Bakes templates in a lab. What was made in an earlier run is not made again.
pub async fn bake(lab: &Lab, templates: &[TemplateSpec]) -> Result<Vec<SnapshotId>> {
    let kept = kept()?;
    let images = lab.pool().join("images/rootfs");
    provide(&images, templates)?;
    let mut baked = Vec::new();
    for template in templates {
        baked.push(lab.node().template(template, &|_| {}).await?);
        let _lock = lock(&kept)?;
        tokio::task::block_in_place(|| keep(&images, &kept))?;
    }
    Ok(baked)
}

fn kept() -> Result<PathBuf> {
    Ok(cache::directory()?.join("kept-images/rootfs"))
}

/// Puts what was made of these templates in an earlier run into a folder of root file systems.
pub fn provide(images: &Path, templates: &[TemplateSpec]) -> Result<()> {
    let kept = kept()?;
    let _lock = lock(&kept)?;
    let wanted = entries(&kept).into_iter().filter(|entry| is_of_any(entry, templates));
    let wanted: Vec<_> = wanted.filter(|entry| !in_folder(entry, images).exists()).collect();
    let wanted: Vec<&Path> = wanted.iter().map(PathBuf::as_path).collect();
    if !wanted.is_empty() {
        tokio::task::block_in_place(|| command::copy_into(&wanted, images))?;
    }
    Ok(())
}

fn lock(kept: &Path) -> Result<fs::File> {
    fs::create_dir_all(kept)?;
    tokio::task::block_in_place(|| cache::lock(&kept.with_extension("lock")))
}

/// Keeps what is new, and removes what no template is made from any more.
fn keep(images: &Path, kept: &Path) -> Result<()> {
    let catalogue = catalogue();
    for entry in entries(kept).into_iter().filter(|entry| !is_of_any(entry, &catalogue)) {
        fs::remove_dir_all(entry)?;
    }
    for entry in entries(images).into_iter().filter(|entry| !in_folder(entry, kept).exists()) {
        command::copy_into(&[&entry], kept)?;
    }
    Ok(())
}

fn in_folder(entry: &Path, folder: &Path) -> PathBuf {
    folder.join(entry.file_name().unwrap_or_default())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Whether a root file system was made for one of these templates.
fn is_of_any(entry: &Path, templates: &[TemplateSpec]) -> bool {
    let manifest = fs::read(entry.join("manifest.json")).ok();
    let manifest: Option<Value> = manifest.and_then(|text| serde_json::from_slice(&text).ok());
    let Some(manifest) = manifest else { return false };
    let spec = &manifest["details"]["spec"];
    templates
        .iter()
        .any(|template| serde_json::to_value(&template.rootfs).is_ok_and(|wanted| wanted == *spec))
}
