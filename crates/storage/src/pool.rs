//! The directory in which files are cloned without being copied.
//!
//! A data directory on XFS or btrfs is used as it is; on anything else a sparse XFS image is made in it and mounted
//! ([`image`]). Which of them it is gets decided by trying to clone a file, never by the name of a file system. Where
//! neither works, the pool is a plain directory, clones are copies, and [`Pool::reflink`] says why.

mod early;
pub mod image;
mod loop_device;
mod mkfs;
mod mounts;
mod remains;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::clone;
use crate::ioctl;
use crate::kill_point;
use crate::lock::DataDir;
use crate::program::ProgramError;
use crate::random::random_name;
pub use early::EarlyWrites;
use image::{Image, ImageError, Place};
pub use remains::{Orphan, Released, mounts_below, orphans, release};

/// Smallest image that XFS can be made in with current tools.
pub const IMAGE_BYTES_MIN: u64 = 300 << 20;

/// Smallest image made by itself: below it the disk is too full to be of use.
const DEFAULT_BYTES_MIN: u64 = 1 << 30;

/// Space that [`Pool::require_free`] never gives away: the file system needs some to work.
const RESERVE_BYTES: u64 = 32 << 20;

/// Smallest free piece that is given back to the disk below.
const TRIM_BYTES_MIN: u64 = 64 << 10;

/// How long what was given back may take to show as free.
const TRIM_TIMEOUT: Duration = Duration::from_secs(1);

const DIRECTORY: &str = "pool";
const PROBE: &str = ".probe-";

/// How to make a pool. Of one that exists, nothing is changed.
#[derive(Debug, Clone, Default)]
pub struct PoolConfig {
    /// How large an image may grow.
    pub size: PoolSize,
}

/// Size of a pool image. It is sparse: it takes what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PoolSize {
    /// Nine tenths of what is free on the disk, in whole GiB.
    #[default]
    MostOfFreeSpace,
    /// So many bytes, at least [`IMAGE_BYTES_MIN`].
    Bytes(u64),
}

/// Whether clones share their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reflink {
    /// They do.
    Yes,
    /// They are copies: right, but slow and large.
    No(Obstacle),
}

/// Why a pool has no reflinks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// There is no tool to format an image.
    #[error("mkfs.xfs is not installed")]
    NoMkfs,
    /// There are no loop devices to be had.
    #[error("no loop device can be used: {0}")]
    NoLoopDevice(String),
    /// XFS cannot be mounted here.
    #[error("an XFS image cannot be mounted: {0}")]
    NoMount(String),
    /// The pool was begun as a plain directory and holds files.
    #[error("the pool was made as a plain directory and holds files")]
    MadeWithout,
    /// An operator mounted a file system without reflinks at the pool.
    #[error("the file system mounted as the pool has no reflinks")]
    Mounted,
}

impl Obstacle {
    /// What an operator can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Obstacle::NoMkfs => "install xfsprogs (apt-get install xfsprogs), then restart",
            Obstacle::NoLoopDevice(_) => {
                "load the loop module (modprobe loop) and run as root with /dev/loop-control"
            }
            Obstacle::NoMount(_) => "load the xfs module (modprobe xfs) and run with CAP_SYS_ADMIN",
            Obstacle::MadeWithout => "stop the server, move the pool directory away and restart",
            Obstacle::Mounted => "mount an XFS (mkfs.xfs -m reflink=1) or btrfs file system there instead",
        }
    }
}

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The disk is too full.
    #[error("{free} bytes are free and {required} are needed")]
    NoSpace {
        /// Bytes that can be had.
        free: u64,
        /// Bytes that it takes.
        required: u64,
    },
    /// The size asked for is too small.
    #[error("a pool of {bytes} bytes is too small: XFS needs {IMAGE_BYTES_MIN}")]
    TooSmall {
        /// The size asked for.
        bytes: u64,
    },
    /// Something else is mounted at the pool.
    #[error("{} is mounted from {}, which is not this data directory's pool: unmount it first", place.display(), backing.display())]
    ForeignMount {
        /// The pool.
        place: PathBuf,
        /// The file or device that is mounted there.
        backing: PathBuf,
    },
    /// The image exists and cannot be mounted. It is never replaced: it holds data.
    #[error("the pool image {} cannot be used; `xfs_repair {}` may mend it", image.display(), image.display())]
    Unusable {
        /// The image.
        image: PathBuf,
        /// Why.
        #[source]
        source: ImageError,
    },
    /// The pool can be seen but not written.
    #[error("the pool {} cannot be written", path.display())]
    Broken {
        /// The pool.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The image could not be made.
    #[error("could not make the pool in {}", path.display())]
    Make {
        /// The data directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: ImageError,
    },
    /// The pool could not be closed.
    #[error("could not close the pool {}", path.display())]
    Close {
        /// The pool.
        path: PathBuf,
        /// Why.
        #[source]
        source: ImageError,
    },
    /// The file system could not be asked.
    #[error("could not look at {}", path.display())]
    Look {
        /// What was looked at.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What closing a pool came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// Nothing of it is left on the host but its files.
    Completely,
    /// It is not mounted here any more, but in the mount namespace of some other process, which copied it when it began.
    /// The loop device goes when that process does; until then the pool can be opened again all the same.
    HereOnly,
}

/// An open pool. Dropping it changes nothing on the host, so that VMs outlive the process; [`Pool::close`] unmounts.
#[derive(Debug)]
pub struct Pool {
    path: PathBuf,
    data_dir: PathBuf,
    image: Option<Image>,
    reflink: Reflink,
}

impl Pool {
    /// Opens the pool of a data directory, making it at first use and finding it again after any kind of end.
    pub fn open(data_dir: &DataDir, config: &PoolConfig) -> Result<Pool, PoolError> {
        let data_dir = data_dir.path();
        let path = data_dir.join(DIRECTORY);
        let look = |source| PoolError::Look { path: path.clone(), source };
        let image = Image::of(data_dir);
        image.sweep().map_err(look)?;
        sweep_probes(data_dir).map_err(look)?;
        kill_point::reached();
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(look)?;
        kill_point::reached();

        let image = match image.look_at(&path).map_err(look)? {
            Place::Foreign(backing) => return Err(PoolError::ForeignMount { place: path, backing }),
            // Using the disk would hide what the image holds.
            Place::Disk(backing) if image.exists().map_err(look)? => {
                return Err(PoolError::ForeignMount { place: path, backing });
            }
            Place::Disk(_) => None,
            Place::Ours => {
                let unusable = |source| PoolError::Unusable { image: image.path(), source };
                image.make_private(&path).map_err(unusable)?;
                Some(image)
            }
            Place::Free if image.exists().map_err(look)? => {
                image.mount(&path).map_err(|source| PoolError::Unusable { image: image.path(), source })?;
                Some(image)
            }
            Place::Free if can_share(data_dir)? => None,
            Place::Free if std::fs::read_dir(&path).map_err(look)?.next().is_some() => {
                return Ok(Pool::without(data_dir, path, Obstacle::MadeWithout));
            }
            Place::Free => match make(&image, &path, config) {
                Ok(()) => Some(image),
                Err(Unmade::For(obstacle)) => return Ok(Pool::without(data_dir, path, obstacle)),
                Err(Unmade::Error(error)) => return Err(error),
            },
        };
        let reflink = match can_share(&path)? {
            true => Reflink::Yes,
            false => return Ok(Pool::without(data_dir, path, Obstacle::Mounted)),
        };
        Ok(Pool { path, data_dir: data_dir.to_owned(), image, reflink })
    }

    fn without(data_dir: &Path, path: PathBuf, obstacle: Obstacle) -> Pool {
        tracing::warn!(why = %obstacle, hint = obstacle.hint(), "the pool has no reflinks: clones are full copies");
        Pool { path, data_dir: data_dir.to_owned(), image: None, reflink: Reflink::No(obstacle) }
    }

    /// Where files of the pool go.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the disk begin with what is written to the pool from now on, for as long as the result lives. For who writes much
    /// and waits for it.
    pub fn write_early(&self) -> EarlyWrites {
        self.image.as_ref().map_or_else(EarlyWrites::none, |image| EarlyWrites::of(&image.path()))
    }

    /// Whether clones in it share their bytes.
    pub fn reflink(&self) -> &Reflink {
        &self.reflink
    }

    /// Bytes that can still be written. A sparse image has no more than the disk below it.
    pub fn free_bytes(&self) -> Result<u64, PoolError> {
        let inside = free_bytes(&self.path)?;
        match self.image {
            Some(_) => Ok(inside.min(free_bytes(&self.data_dir)?)),
            None => Ok(inside),
        }
    }

    /// Fails unless so many bytes can be written and the file system keeps some to itself. May take a while when the disk
    /// below is nearly full: then what was freed is given back to it first.
    pub fn require_free(&self, bytes: u64) -> Result<(), PoolError> {
        let required = bytes.saturating_add(RESERVE_BYTES);
        if self.free_bytes()? >= required {
            return Ok(());
        }
        if free_bytes(&self.path)? >= required {
            // What was deleted just now takes a moment to become free, and the kernel answers before the disk has it back.
            let deadline = Instant::now() + TRIM_TIMEOUT;
            while self.free_bytes()? < required && Instant::now() < deadline {
                self.trim()?;
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let free = self.free_bytes()?;
        if free < required { Err(PoolError::NoSpace { free, required }) } else { Ok(()) }
    }

    /// Gives the space of deleted files back to the disk below an image, and returns how many bytes are free for it to
    /// use. For quiet moments: deleting does not do it, and what was deleted just now may be passed over.
    pub fn trim(&self) -> Result<u64, PoolError> {
        if self.image.is_none() {
            return Ok(0);
        }
        let failed = |source| PoolError::Look { path: self.path.clone(), source };
        let directory = File::open(&self.path).map_err(failed)?;
        // Space whose freeing is not yet in the log is passed over.
        rustix::fs::syncfs(&directory).map_err(|errno| failed(errno.into()))?;
        ioctl::trim(&directory, TRIM_BYTES_MIN).map_err(|errno| failed(errno.into()))
    }

    /// Unmounts the pool if it is an image and detaches its loop device. Fails while anybody has files open in it, and
    /// then it stays as it is.
    pub fn close(self) -> Result<Closed, PoolError> {
        match &self.image {
            Some(image) => image
                .unmount(&self.path)
                .map_err(|source| PoolError::Close { path: self.path.clone(), source }),
            None => Ok(Closed::Completely),
        }
    }
}

/// Whether files in a directory can share their bytes, by trying.
pub fn can_share(directory: &Path) -> Result<bool, PoolError> {
    let broken = |source| PoolError::Broken { path: directory.to_owned(), source };
    let mut source = probe_file(directory).map_err(broken)?;
    let target = probe_file(directory).map_err(broken)?;
    source.write_all(&[1; 4096]).map_err(broken)?;
    clone::share(&source, &target).map_err(broken)
}

/// A file without a name.
fn probe_file(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!("{PROBE}{}", random_name()?));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

fn sweep_probes(data_dir: &Path) -> io::Result<()> {
    for directory in [data_dir.to_owned(), data_dir.join(DIRECTORY)] {
        let entries = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PROBE) {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

enum Unmade {
    /// This host cannot, and the pool goes on without.
    For(Obstacle),
    Error(PoolError),
}

/// Makes the image and mounts it. When this host turns out to be unable to, no image is left.
fn make(image: &Image, path: &Path, config: &PoolConfig) -> Result<(), Unmade> {
    if !mkfs::is_installed() {
        return Err(Unmade::For(Obstacle::NoMkfs));
    }
    let data_dir = path.parent().unwrap_or(path);
    let bytes = image_bytes(data_dir, config.size).map_err(Unmade::Error)?;
    match image.make(bytes) {
        Ok(()) => {}
        Err(ImageError::Format(ProgramError::Missing { .. })) => return Err(Unmade::For(Obstacle::NoMkfs)),
        Err(source) => return Err(Unmade::Error(PoolError::Make { path: data_dir.to_owned(), source })),
    }
    let unable = match image.mount(path) {
        Ok(()) => return Ok(()),
        Err(ImageError::Attach(error)) => Obstacle::NoLoopDevice(error.to_string()),
        Err(ImageError::Mount(error)) => Obstacle::NoMount(error.to_string()),
        Err(source) => return Err(Unmade::Error(PoolError::Make { path: data_dir.to_owned(), source })),
    };
    let remove = image.remove().map_err(ImageError::Make);
    remove.map_err(|source| Unmade::Error(PoolError::Make { path: data_dir.to_owned(), source }))?;
    Err(Unmade::For(unable))
}

fn image_bytes(data_dir: &Path, size: PoolSize) -> Result<u64, PoolError> {
    match size {
        PoolSize::Bytes(bytes) if bytes < IMAGE_BYTES_MIN => Err(PoolError::TooSmall { bytes }),
        PoolSize::Bytes(bytes) => Ok(bytes),
        PoolSize::MostOfFreeSpace => {
            let free = free_bytes(data_dir)?;
            let bytes = (free / 10 * 9) >> 30 << 30;
            if bytes < DEFAULT_BYTES_MIN {
                return Err(PoolError::NoSpace { free, required: DEFAULT_BYTES_MIN / 9 * 10 });
            }
            Ok(bytes)
        }
    }
}

fn free_bytes(path: &Path) -> Result<u64, PoolError> {
    let status = rustix::fs::statvfs(path);
    let status = status.map_err(|errno| PoolError::Look { path: path.to_owned(), source: errno.into() })?;
    Ok(status.f_bavail * status.f_frsize)
}

#[cfg(test)]
mod tests;
