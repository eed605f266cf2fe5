//! Root file systems of the templates that take minutes to make, kept between runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;
use domain::SnapshotId;
use image::template::TemplateSpec;

use crate::lab::Lab;
use crate::{cache, command};

/// Bakes templates in a lab. What was made in an earlier run is not made again.
pub async fn bake(lab: &Lab, templates: &[TemplateSpec]) -> Result<Vec<SnapshotId>> {
    let kept = cache::directory()?.join("kept-images");
    let _lock = tokio::task::block_in_place(|| cache::lock(&kept.with_extension("lock")))?;
    let images = lab.pool().join("images");
    if kept.exists() {
        tokio::task::block_in_place(|| command::copy_into(&[&kept.join("rootfs")], &images))?;
    }
    let mut baked = Vec::new();
    for template in templates {
        baked.push(lab.node().template(template, &|_| {}).await?);
    }
    if names(&images.join("rootfs")) != names(&kept.join("rootfs")) {
        tokio::task::block_in_place(|| {
            drop(fs::remove_dir_all(&kept));
            fs::create_dir_all(&kept)?;
            command::copy_into(&[&images.join("rootfs")], &kept)
        })?;
    }
    Ok(baked)
}

fn names(path: &Path) -> BTreeSet<std::ffi::OsString> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}
