//! The first file system of a guest: our program as `/init` and the modules it loads before it can see its disk.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cpio::Archive;
use crate::digest::{Digest, KeyBuilder};
use crate::error::ImageError;
use crate::guest_binary::{guest_binary, guest_binary_digest};
use crate::kernel::KernelImage;
use crate::manifest::Content;
use crate::modules::{Module, boot_modules};
use crate::progress::Reporter;
use crate::store::{Built, ImageStore, Kind, Reuse, Staging, Wanted};

const FILE: &str = "initramfs.cpio";
/// Changes when the archive is put together in another way, so that old ones are made anew.
const BUILDER_VERSION: &str = "initramfs-2";
/// Where the guest program finds what to load: one absolute path per line, in order.
const MODULE_LIST: &str = "modules.list";

/// An initramfs ready to boot, not compressed: unpacking it would cost an emulated guest more than reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initramfs {
    /// The archive.
    pub path: PathBuf,
    /// SHA-256 of the archive.
    pub digest: Digest,
}

#[derive(Debug, Serialize, Deserialize)]
struct InitramfsDetails {
    kernel_release: String,
    guest_binary: Digest,
    modules: Vec<String>,
}

pub(crate) async fn ensure(
    store: &ImageStore,
    kernel: &KernelImage,
    reporter: Reporter<'_>,
) -> Result<Initramfs, ImageError> {
    let key = KeyBuilder::new(BUILDER_VERSION)
        .field(kernel.digest.as_str())
        .field(kernel.modules_digest.as_ref().map_or("", Digest::as_str))
        .field(guest_binary_digest().as_str())
        .finish();
    let wanted = Wanted { kind: Kind::Initramfs, key: key.short(), reuse: Reuse::IfPresent };
    let (release, modules_dir) = (kernel.release.clone(), kernel.modules.clone());
    let (entry, manifest) = store
        .find_or_build(wanted, reporter, async |staging: &Staging| {
            reporter.at(0.0, "gathering kernel modules");
            staging
                .blocking("writing the initramfs", move |folder| {
                    let modules = modules_dir.as_deref().map(boot_modules).transpose()?.unwrap_or_default();
                    let names = modules.iter().map(|module| module.name.clone()).collect();
                    fs::write(folder.join(FILE), archive(modules)?)
                        .map_err(|error| ImageError::io("writing the initramfs", error))?;
                    let details = InitramfsDetails {
                        kernel_release: release,
                        guest_binary: guest_binary_digest(),
                        modules: names,
                    };
                    Ok(Built { files: vec![(FILE, Content::Plain)], details })
                })
                .await
        })
        .await?;
    let digest = manifest.file(FILE).map(|record| record.digest.clone()).ok_or_else(|| {
        let source = std::io::Error::other("the manifest names no archive");
        ImageError::io("reading a finished initramfs", source)
    })?;
    Ok(Initramfs { path: entry.join(FILE), digest })
}

fn archive(modules: Vec<Module>) -> Result<Vec<u8>, ImageError> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "root-disk", "modules"] {
        archive.directory(folder, 0o755)?;
    }
    // The kernel opens it for PID 1 before anything is mounted.
    archive.character_device("dev/console", 0o600, (5, 1))?;
    archive.file("init", 0o755, guest_binary().to_vec())?;
    let mut list = String::new();
    for module in modules {
        let path = format!("modules/{}.ko", module.name);
        list.push_str(&format!("/{path}\n"));
        archive.file(&path, 0o644, module.content)?;
    }
    archive.file(MODULE_LIST, 0o644, list.into_bytes())?;
    Ok(archive.finish())
}
