//! The folder where finished images live and are found again.
//!
//! ```text
//! kernels/<key>/    vmlinux, modules/, manifest.json     complete or absent:
//! initramfs/<key>/  initramfs.cpio, manifest.json        made in staging/, synced,
//! rootfs/<key>/     rootfs.ext4, manifest.json           then renamed
//! staging/<kind>-<key>/   being made, or left by a builder that was killed
//! locks/<kind>-<key>      held by whoever makes it, in this process or another
//! packages/               downloaded packages that further builds may reuse
//! apt/                    package lists, where the host's own do not serve
//! apt-answers.json        what the host's apt was asked before
//! ```

mod entry;
mod package_cache;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use self::entry::{Built, Staging, Wanted};
pub(crate) use self::package_cache::PackageCache;
use crate::answers::Answers;
use crate::error::{ImageError, blocking};
use crate::initramfs::{self, Initramfs};
use crate::kernel::{self, KernelImage, KernelSource};
use crate::manifest::Manifest;
use crate::progress::{Progress, Reporter, Stage};
use crate::rootfs::{self, Authorities, Rootfs, RootfsSpec};

/// Whether a finished entry is good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Yes: make it only if it is absent.
    IfPresent,
    /// No: make it again and replace the old one when the new one is complete.
    Rebuild,
}

/// What an entry is; names its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Kernel,
    Initramfs,
    Rootfs,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Kernel, Self::Initramfs, Self::Rootfs];

    const fn folder(self) -> &'static str {
        match self {
            Self::Kernel => "kernels",
            Self::Initramfs => "initramfs",
            Self::Rootfs => "rootfs",
        }
    }
}

/// A file of a finished entry whose content is no longer what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The folder of the entry. Removing it makes the next use build it again.
    pub entry: PathBuf,
    /// The damaged file in it; `manifest.json` when the entry as a whole cannot be read.
    pub file: String,
}

/// A folder of images. Cheap to clone; several processes may open one folder.
#[derive(Debug, Clone)]
pub struct ImageStore {
    dir: Arc<Path>,
    /// Where authorities are that guests trust besides the public ones.
    authorities: Option<Arc<Path>>,
}

impl ImageStore {
    /// Opens the store in `dir`, making it if it is absent, and removes what killed builders left in it. Only root may
    /// look into it afterwards. Guests trust the host's own authorities.
    pub async fn open(dir: impl Into<PathBuf>) -> Result<Self, ImageError> {
        let dir = dir.into();
        let store = blocking("opening the image store", move || {
            let folders = Kind::ALL.map(Kind::folder).into_iter().chain(["staging", "locks", "packages"]);
            let make = || -> std::io::Result<PathBuf> {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
                let dir = dir.canonicalize()?;
                fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
                for folder in folders {
                    fs::create_dir_all(dir.join(folder))?;
                }
                Ok(dir)
            };
            let dir = make().map_err(|error| ImageError::io("opening the image store", error))?;
            Ok(Self { dir: dir.into(), authorities: Some(Path::new(Authorities::HOST_FOLDER).into()) })
        })
        .await?;
        let sweeper = store.clone();
        blocking("removing unfinished images", move || entry::sweep(&sweeper)).await?;
        Ok(store)
    }

    /// The same with authorities of another folder, or with none.
    #[must_use]
    pub fn with_authorities(self, folder: Option<&Path>) -> Self {
        Self { authorities: folder.map(Arc::from), ..self }
    }

    /// What guests trust besides the public authorities, as it is now.
    pub async fn authorities(&self) -> Result<Authorities, ImageError> {
        let Some(folder) = self.authorities.clone() else { return Ok(Authorities::none()) };
        blocking("reading the host's certificates", move || {
            Authorities::read(&folder)
                .map_err(|error| ImageError::io("reading the host's certificates", error))
        })
        .await
    }

    /// The kernel that `source` names, made if it is absent. After an error nothing is left behind.
    pub async fn kernel(
        &self,
        source: &KernelSource,
        progress: &dyn Progress,
    ) -> Result<KernelImage, ImageError> {
        kernel::ensure(self, source, Reporter { stage: Stage::Kernel, progress }).await
    }

    /// Whether the newest kernel that `source` names was looked for so long ago that [`Self::renew_kernel`] is due.
    pub fn is_kernel_old(&self, source: &KernelSource) -> bool {
        match source {
            KernelSource::Debian { package } => self.answers().is_kernel_old(package),
            KernelSource::File { .. } => false,
        }
    }

    /// Looks for the newest kernel that `source` names and makes it if it is absent; [`Self::kernel`] gives it from then
    /// on, and the one before if this fails.
    pub async fn renew_kernel(
        &self,
        source: &KernelSource,
        progress: &dyn Progress,
    ) -> Result<KernelImage, ImageError> {
        kernel::renew(self, source, Reporter { stage: Stage::Kernel, progress }).await
    }

    /// Forgets what the host's package sources were found to have: the next use asks them again.
    pub async fn look_anew(&self) -> Result<(), ImageError> {
        let answers = self.answers();
        blocking("forgetting earlier answers", move || {
            answers.forget().map_err(|error| ImageError::io("forgetting earlier answers", error))
        })
        .await
    }

    /// The initramfs for `kernel`, made if it is absent: it depends on the kernel and on the guest program inside
    /// this library. After an error nothing is left behind.
    pub async fn initramfs(
        &self,
        kernel: &KernelImage,
        progress: &dyn Progress,
    ) -> Result<Initramfs, ImageError> {
        initramfs::ensure(self, kernel, Reporter { stage: Stage::Initramfs, progress }).await
    }

    /// The root file system that `spec` describes, made if it is absent or if `reuse` asks for it. After an error
    /// nothing is left behind, and what was there before is still there.
    pub async fn rootfs(
        &self,
        spec: &RootfsSpec,
        reuse: Reuse,
        progress: &dyn Progress,
    ) -> Result<Rootfs, ImageError> {
        rootfs::ensure(self, spec, reuse, Reporter { stage: Stage::Rootfs, progress }).await
    }

    /// Reads every finished entry completely and tells which differ from when they were made.
    pub async fn verify(&self) -> Result<Vec<Damage>, ImageError> {
        let store = self.clone();
        blocking("verifying images", move || {
            let mut damages = Vec::new();
            for kind in Kind::ALL {
                store.verify_kind(kind, &mut damages)?;
            }
            Ok(damages)
        })
        .await
    }

    fn verify_kind(&self, kind: Kind, damages: &mut Vec<Damage>) -> Result<(), ImageError> {
        let failed = |error| ImageError::io("verifying images", error);
        for entry in fs::read_dir(self.dir.join(kind.folder())).map_err(failed)? {
            let entry = entry.map_err(failed)?.path();
            let mut found = |file: &str| damages.push(Damage { entry: entry.clone(), file: file.to_owned() });
            match Manifest::<serde_json::Value>::load(&entry).map_err(failed)? {
                None => found(crate::manifest::MANIFEST),
                Some(manifest) => {
                    for record in &manifest.files {
                        if !record.is_intact(&entry).map_err(failed)? {
                            found(&record.name);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn entry(&self, kind: Kind, key: &str) -> PathBuf {
        self.dir.join(kind.folder()).join(key)
    }

    pub(crate) fn package_cache(&self) -> PackageCache {
        PackageCache::new(self.dir.join("packages"))
    }

    /// What apt was asked before.
    pub(crate) fn answers(&self) -> Answers {
        Answers::new(self.dir.join("apt-answers.json"))
    }

    /// For package lists of our own, where the host's are absent or old.
    pub(crate) fn apt_folder(&self) -> PathBuf {
        self.dir.join("apt")
    }

    fn staging_root(&self) -> PathBuf {
        self.dir.join("staging")
    }

    fn staging_path(&self, name: &str) -> PathBuf {
        self.dir.join("staging").join(name)
    }

    fn lock_path(&self, name: &str) -> PathBuf {
        self.dir.join("locks").join(name)
    }
}
