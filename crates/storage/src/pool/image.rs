//! The pool as a file: a sparse XFS image, attached to a loop device and mounted.
//!
//! ```text
//! absent ─make─► pool.img ─attach─► loop device ─mount─► pool/
//! ```
//!
//! Every arrow may be the last thing a process does. Making happens under another name that is swept later; attaching
//! undoes itself; a mount is found again. Mounting replays the file system's log, so a crash of the machine needs no more.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::Closed;
use super::loop_device::LoopDevice;
use super::mkfs;
use super::mounts;
use crate::durable::sync_directory;
use crate::kill_point;
use crate::program::ProgramError;
use crate::random::random_name;

pub(super) const IMAGE: &str = "pool.img";
const UNFINISHED: &str = ".new";
/// How long closing waits for those who hold the pool.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(2);
const IN_USE_PAUSE: Duration = Duration::from_millis(5);

/// The image of a data directory.
#[derive(Debug)]
pub(super) struct Image {
    data_dir: PathBuf,
}

/// Why the image could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It could not be formatted.
    #[error("could not format the pool image")]
    Format(#[source] ProgramError),
    /// A step of making it failed.
    #[error("could not make the pool image")]
    Make(#[source] io::Error),
    /// It could not become a disk.
    #[error("could not attach the pool image to a loop device")]
    Attach(#[source] io::Error),
    /// The disk could not be mounted.
    #[error("could not mount the pool image")]
    Mount(#[source] io::Error),
    /// Files in it are in use.
    #[error("the pool is in use and cannot be unmounted")]
    InUse,
    /// It could not be unmounted or detached.
    #[error("could not unmount the pool image")]
    Unmount(#[source] io::Error),
}

/// What is at the place where the pool belongs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A directory, or nothing.
    Free,
    /// Our image.
    Ours,
    /// Another file's file system.
    Foreign(PathBuf),
    /// A disk that an operator mounted there.
    Disk(PathBuf),
}

impl Image {
    pub(super) fn of(data_dir: &Path) -> Image {
        Image { data_dir: data_dir.to_owned() }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.data_dir.join(IMAGE)
    }

    pub(super) fn exists(&self) -> io::Result<bool> {
        self.path().try_exists()
    }

    /// Looks what is mounted at `place`.
    pub(super) fn look_at(&self, place: &Path) -> io::Result<Place> {
        let Some(mount) = mounts::mount_at(place)? else { return Ok(Place::Free) };
        let Some(device) = LoopDevice::of_number(mount.device)? else { return Ok(Place::Disk(mount.source)) };
        match self.path().metadata() {
            Ok(image) if device.holds(&image)? => return Ok(Place::Ours),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Place::Foreign(device.backing_file().unwrap_or_else(|| device.path())))
    }

    /// Removes what making an image left behind. Nobody else makes one: the caller has the data directory.
    pub(super) fn sweep(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.data_dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(IMAGE) && name.ends_with(UNFINISHED) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Makes the image. After an error there is none.
    pub(super) fn make(&self, bytes: u64) -> Result<(), ImageError> {
        let name = random_name().map_err(ImageError::Make)?;
        let unfinished = self.data_dir.join(format!("{IMAGE}.{name}{UNFINISHED}"));
        let made = self.make_at(&unfinished, bytes);
        if made.is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
        made
    }

    fn make_at(&self, unfinished: &Path, bytes: u64) -> Result<(), ImageError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished);
        let file = file.map_err(ImageError::Make)?;
        kill_point::reached();
        file.set_len(bytes).map_err(ImageError::Make)?;
        kill_point::reached();
        mkfs::format(unfinished).map_err(ImageError::Format)?;
        kill_point::reached();
        file.sync_all().map_err(ImageError::Make)?;
        kill_point::reached();
        std::fs::rename(unfinished, self.path()).map_err(ImageError::Make)?;
        kill_point::reached();
        sync_directory(&self.data_dir).map_err(ImageError::Make)?;
        kill_point::reached();
        Ok(())
    }

    /// Mounts the image at `place`.
    pub(super) fn mount(&self, place: &Path) -> Result<(), ImageError> {
        let attach = || {
            let image = OpenOptions::new().read(true).write(true).open(self.path())?;
            // Attached already means mounted in another mount namespace, or by hand: one disk twice would be ruined.
            match LoopDevice::of_image(&image.metadata()?)? {
                Some(device) => Ok(device),
                None => LoopDevice::attach(&image),
            }
        };
        let device = attach().map_err(ImageError::Attach)?;
        kill_point::reached();
        let flags = MountFlags::NOATIME | MountFlags::NOSUID;
        // Not `discard`: freeing a file in many pieces would keep the disk busy for seconds while others wait. `trim`
        // gives the space back instead.
        rustix::mount::mount(device.path(), place, "xfs", flags, None)
            .map_err(|errno| ImageError::Mount(errno.into()))?;
        kill_point::reached();
        self.make_private(place)
    }

    /// What is mounted inside the pool is nobody else's business.
    pub(super) fn make_private(&self, place: &Path) -> Result<(), ImageError> {
        rustix::mount::mount_change(place, MountPropagationFlags::PRIVATE)
            .map_err(|errno| ImageError::Mount(errno.into()))?;
        kill_point::reached();
        Ok(())
    }

    /// Unmounts the image and lets its loop device go.
    pub(super) fn unmount(&self, place: &Path) -> Result<Closed, ImageError> {
        let image = self.path().metadata().map_err(ImageError::Unmount)?;
        if let Ok(directory) = File::open(place) {
            // What is dirty is written while the mount can still be used, so that unmounting is quick.
            let _ = rustix::fs::syncfs(&directory);
        }
        kill_point::reached();
        // A process that is just being started holds what this one has open until it runs its own program.
        let deadline = Instant::now() + IN_USE_TIMEOUT;
        loop {
            match rustix::mount::unmount(place, UnmountFlags::NOFOLLOW) {
                Ok(()) => break,
                Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(IN_USE_PAUSE),
                Err(Errno::BUSY) => return Err(ImageError::InUse),
                Err(errno) => return Err(ImageError::Unmount(errno.into())),
            }
        }
        kill_point::reached();
        let detached = match LoopDevice::of_image(&image).map_err(ImageError::Unmount)? {
            Some(device) => device.detach(&image).map_err(ImageError::Unmount)?,
            None => true,
        };
        Ok(if detached { Closed::Completely } else { Closed::HereOnly })
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        std::fs::remove_file(self.path())
    }
}
