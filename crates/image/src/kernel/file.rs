//! A kernel from files the operator supplies. They are copied: what the store holds does not change when they do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{BUILDER_VERSION, KernelDetails, MODULES, finish};
use crate::digest::{Digest, KeyBuilder};
use crate::error::{ImageError, blocking};
use crate::manifest::Manifest;
use crate::progress::Reporter;
use crate::store::{ImageStore, Kind, Reuse, Staging, Wanted};

pub(super) async fn ensure(
    store: &ImageStore,
    vmlinux: &Path,
    modules: Option<&Path>,
    reporter: Reporter<'_>,
) -> Result<(PathBuf, Manifest<KernelDetails>), ImageError> {
    let (vmlinux, modules) = (vmlinux.to_owned(), modules.map(Path::to_owned));
    let (kernel_file, module_folder) = (vmlinux.clone(), modules.clone());
    let key = blocking("reading the kernel", move || {
        let digests = || -> io::Result<_> {
            let modules = module_folder.as_deref().map(Digest::of_tree).transpose()?;
            Ok((Digest::of_file(&kernel_file)?, modules))
        };
        let (kernel, modules) = digests().map_err(|error| {
            ImageError::io(format!("reading the kernel {}", kernel_file.display()), error)
        })?;
        let modules = modules.map_or_else(String::new, |digest| digest.to_string());
        Ok(KeyBuilder::new(BUILDER_VERSION).field("file").field(kernel.as_str()).field(modules).finish())
    })
    .await?;
    let wanted = Wanted { kind: Kind::Kernel, key: key.short(), reuse: Reuse::IfPresent };
    store
        .find_or_build(wanted, reporter, async |staging: &Staging| {
            reporter.at(0.0, "copying the kernel");
            if let Some(modules) = modules {
                staging
                    .blocking("copying the kernel's modules", move |folder| {
                        copy_tree(&modules, &folder.join(MODULES))
                            .map_err(|error| ImageError::io("copying the kernel's modules", error))
                    })
                    .await?;
            }
            let origin = vmlinux.display().to_string();
            finish(staging, vmlinux, origin).await
        })
        .await
}

/// Copies folders and files; links are copied as links.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    let mut open = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = open.pop() {
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
            if kind.is_dir() {
                fs::create_dir(&target)?;
                open.push((entry.path(), target));
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
            } else {
                fs::copy(entry.path(), target)?;
            }
        }
    }
    Ok(())
}
