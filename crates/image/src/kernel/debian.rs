//! A kernel from a Debian package. The only caller of `dpkg-deb`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{BUILDER_VERSION, KernelDetails, MODULES, finish};
use crate::apt::{self, Lists, Package};
use crate::digest::KeyBuilder;
use crate::error::ImageError;
use crate::manifest::Manifest;
use crate::progress::Reporter;
use crate::store::{ImageStore, Kind, Reuse, Staging, Wanted};
use crate::tool::{Run, Tool, ToolError};

const UNPACK_LIMIT: Duration = Duration::from_secs(300);

pub(super) async fn ensure(
    store: &ImageStore,
    package: &str,
    reporter: Reporter<'_>,
) -> Result<(PathBuf, Manifest<KernelDetails>), ImageError> {
    // The name goes to apt, which would take a pattern or a path for more than a name.
    let is_name = package.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !is_name || !package.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return Err(ImageError::KernelPackageUnknown { package: package.to_owned() });
    }
    if let Some(known) = store.answers().kernel(package) {
        match build(store, &known, reporter, &Lists::Host).await {
            // It is no longer here, and its sources have a newer one by now.
            Err(ImageError::Tool(ToolError::Failed { .. })) => {}
            other => return other,
        }
    }
    renew(store, package, reporter).await
}

/// Asks which package holds the newest kernel.
pub(super) async fn renew(
    store: &ImageStore,
    package: &str,
    reporter: Reporter<'_>,
) -> Result<(PathBuf, Manifest<KernelDetails>), ImageError> {
    match renew_from(store, package, reporter, &Lists::Host).await {
        Err(ImageError::KernelPackageUnknown { .. } | ImageError::Tool(ToolError::Failed { .. })) => {
            // The host's lists are absent, or so old that the package they name is gone.
            reporter.say("refreshing package lists");
            let lists = Lists::Own(store.apt_folder());
            lists.refresh().await?;
            renew_from(store, package, reporter, &lists).await
        }
        other => other,
    }
}

async fn renew_from(
    store: &ImageStore,
    package: &str,
    reporter: Reporter<'_>,
    lists: &Lists,
) -> Result<(PathBuf, Manifest<KernelDetails>), ImageError> {
    let found = apt::resolve_kernel(package, lists)
        .await?
        .ok_or_else(|| ImageError::KernelPackageUnknown { package: package.to_owned() })?;
    let built = build(store, &found, reporter, lists).await?;
    store.answers().keep_kernel(package, &found);
    Ok(built)
}

/// Finds the kernel of a package, or makes it.
async fn build(
    store: &ImageStore,
    found: &Package,
    reporter: Reporter<'_>,
    lists: &Lists,
) -> Result<(PathBuf, Manifest<KernelDetails>), ImageError> {
    let key = KeyBuilder::new(BUILDER_VERSION)
        .field("debian")
        .field(&found.name)
        .field(&found.version)
        .field(&found.architecture)
        .finish();
    let wanted = Wanted { kind: Kind::Kernel, key: key.short(), reuse: Reuse::IfPresent };
    store
        .find_or_build(wanted, reporter, async |staging: &Staging| {
            let kernel_file = unpack(staging, found, lists, reporter).await?;
            reporter.at(0.8, "unpacking the kernel");
            let built = finish(staging, kernel_file, format!("{} {}", found.name, found.version)).await?;
            staging
                .blocking("removing the unpacked package", |folder| {
                    fs::remove_dir_all(folder.join("package"))
                        .map_err(|error| ImageError::io("removing the unpacked package", error))
                })
                .await?;
            Ok(built)
        })
        .await
}

/// Leaves the modules in the staging folder and returns the path of the kernel.
async fn unpack(
    staging: &Staging,
    package: &Package,
    lists: &Lists,
    reporter: Reporter<'_>,
) -> Result<PathBuf, ImageError> {
    let megabytes = package.length.div_ceil(1_000_000);
    reporter.at(0.0, format!("downloading {} {} ({megabytes} MB)", package.name, package.version));
    let folder = staging.path().join("package");
    let tree = folder.join("tree");
    fs::create_dir_all(&tree).map_err(|error| ImageError::io("making a folder for the package", error))?;
    let file = apt::download(package, &folder, lists).await?;
    reporter.at(0.5, format!("unpacking {}", package.name));
    let mut run = Run::new(Tool::DpkgDeb, UNPACK_LIMIT).arg("-x").arg(&file).arg(&tree);
    if let Some(lock) = staging.lock() {
        run = run.holding(lock);
    }
    run.output().await?;

    let incomplete = |missing| ImageError::KernelPackageIncomplete { package: package.name.clone(), missing };
    let kernel = only_entry(&tree.join("boot"), "vmlinuz-").ok_or_else(|| incomplete("kernel"))?;
    // A merged /usr or not: packages of different releases differ.
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .find_map(|path| only_entry(&tree.join(path), ""))
        .ok_or_else(|| incomplete("modules"))?;
    fs::rename(modules, staging.path().join(MODULES))
        .map_err(|error| ImageError::io("moving the kernel's modules", error))?;
    Ok(kernel)
}

fn only_entry(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let mut matching = fs::read_dir(folder)
        .ok()?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path());
    let first = matching.next()?;
    matching.next().is_none().then_some(first)
}
