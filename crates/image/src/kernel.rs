//! The kernel that guests boot: taken from a Debian package or from files of the operator.

mod debian;
mod file;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::bzimage;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::manifest::{Content, Manifest};
use crate::progress::Reporter;
use crate::store::{Built, ImageStore, Staging};

const VMLINUX: &str = "vmlinux";
const MODULES: &str = "modules";

/// Changes when kernels are put together in another way, so that old ones are made anew.
const BUILDER_VERSION: &str = "kernel-1";

/// Where the kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KernelSource {
    /// A package from this host's package sources. A package that only depends on the current kernel is followed.
    Debian {
        /// The package's name.
        package: String,
    },
    /// Files supplied by the operator, such as a kernel for a host with software virtualization.
    File {
        /// An uncompressed kernel or a bzImage.
        vmlinux: PathBuf,
        /// `lib/modules/<release>` of that kernel; none if everything is compiled in.
        modules: Option<PathBuf>,
    },
}

impl Default for KernelSource {
    fn default() -> Self {
        Self::Debian { package: "linux-image-cloud-amd64".to_owned() }
    }
}

/// A kernel ready to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelImage {
    /// The uncompressed ELF kernel.
    pub path: PathBuf,
    /// What `uname -r` will say in the guest.
    pub release: String,
    /// SHA-256 of the kernel.
    pub digest: Digest,
    /// Its modules, laid out as in `lib/modules/<release>`; none if everything is compiled in.
    pub modules: Option<PathBuf>,
    /// Digest of the modules, if there are any.
    pub(crate) modules_digest: Option<Digest>,
}

/// What the manifest of a kernel records besides its files.
#[derive(Debug, Serialize, Deserialize)]
struct KernelDetails {
    release: String,
    /// Where it came from, for people.
    origin: String,
}

pub(crate) async fn ensure(
    store: &ImageStore,
    source: &KernelSource,
    reporter: Reporter<'_>,
) -> Result<KernelImage, ImageError> {
    let (entry, manifest) = match source {
        KernelSource::Debian { package } => debian::ensure(store, package, reporter).await?,
        KernelSource::File { vmlinux, modules } => {
            file::ensure(store, vmlinux, modules.as_deref(), reporter).await?
        }
    };
    image(&entry, manifest)
}

/// Like [`ensure`], but what was found earlier does not count.
pub(crate) async fn renew(
    store: &ImageStore,
    source: &KernelSource,
    reporter: Reporter<'_>,
) -> Result<KernelImage, ImageError> {
    match source {
        KernelSource::Debian { package } => {
            let (entry, manifest) = debian::renew(store, package, reporter).await?;
            image(&entry, manifest)
        }
        KernelSource::File { .. } => ensure(store, source, reporter).await,
    }
}

fn image(entry: &Path, manifest: Manifest<KernelDetails>) -> Result<KernelImage, ImageError> {
    let digest_of = |name| manifest.file(name).map(|record| record.digest.clone());
    let Some(digest) = digest_of(VMLINUX) else {
        let source = std::io::Error::other("the manifest names no kernel");
        return Err(ImageError::io("reading a finished kernel", source));
    };
    let modules_digest = digest_of(MODULES);
    Ok(KernelImage {
        path: entry.join(VMLINUX),
        digest,
        modules: modules_digest.is_some().then(|| entry.join(MODULES)),
        modules_digest,
        release: manifest.details.release,
    })
}

/// The uncompressed kernel in a file, which is one already or a bzImage. Blocks.
pub fn unpack_kernel(file: &Path) -> Result<Vec<u8>, ImageError> {
    let content = fs::read(file)
        .map_err(|error| ImageError::io(format!("reading the kernel {}", file.display()), error))?;
    Ok(bzimage::extract_vmlinux(content)?)
}

/// Unpacks the kernel file into the staging folder and describes what is there.
async fn finish(
    staging: &Staging,
    kernel_file: PathBuf,
    origin: String,
) -> Result<Built<KernelDetails>, ImageError> {
    staging
        .blocking("unpacking the kernel", move |folder| {
            let failed = |error| ImageError::io("unpacking the kernel", error);
            let vmlinux = unpack_kernel(&kernel_file)?;
            let release = bzimage::release(&vmlinux)?;
            fs::write(folder.join(VMLINUX), vmlinux).map_err(failed)?;
            let mut files = vec![(VMLINUX, Content::Plain)];
            if folder.join(MODULES).is_dir() {
                files.push((MODULES, Content::Tree));
            }
            Ok(Built { files, details: KernelDetails { release, origin } })
        })
        .await
}
