//! Loop devices: a file as a disk.
//!
//! A device is attached with "clear when unused". So a process that dies between attaching and mounting leaves nothing,
//! and unmounting is all that it takes to detach. It goes through the page cache: clones have no cached pages in common,
//! so the first reading of a clone would otherwise go to the disk for bytes that are in memory, and scattered writes would
//! reach it one by one. Measured with 64 MB in 16,384 pieces on a busy machine: 2 to 3 s to reach the disk, against 2 to
//! 28 s with direct I/O.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::ioctl;

/// Attempts to get a device while others take the free ones first.
const ATTEMPTS_MAX: u32 = 64;

/// How long to wait for a device to detach. It takes a moment after its last user is gone; a longer one means that there
/// still is a user.
const DETACH_TIMEOUT: Duration = Duration::from_secs(1);

/// An attached loop device, held open.
#[derive(Debug)]
pub(super) struct LoopDevice {
    name: String,
    file: File,
}

impl LoopDevice {
    /// Attaches an image to a free device.
    pub(super) fn attach(image: &File) -> io::Result<LoopDevice> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        for _ in 0..ATTEMPTS_MAX {
            let name = format!("loop{}", ioctl::loop_free(&control)?);
            let file = match open(&name) {
                Ok(file) => file,
                // The node of a device made just now may be on its way.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    std::thread::yield_now();
                    continue;
                }
                Err(error) => return Err(error),
            };
            match ioctl::loop_configure(&file, image) {
                Ok(()) => return Ok(LoopDevice { name, file }),
                // Somebody else was faster.
                Err(Errno::BUSY) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "no free loop device could be had"))
    }

    /// Every loop device that has a file.
    pub(super) fn all() -> io::Result<Vec<LoopDevice>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/sys/block")? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !name.starts_with("loop") || !entry.path().join("loop").exists() {
                continue;
            }
            // It may have been detached meanwhile, or have no node here.
            let Ok(file) = open(&name) else { continue };
            found.push(LoopDevice { name, file });
        }
        Ok(found)
    }

    /// The device an image is attached to already, by whomever.
    pub(super) fn of_image(image: &Metadata) -> io::Result<Option<LoopDevice>> {
        for device in Self::all()? {
            if device.holds(image)? {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The loop device with this device number; `None` when it is a device of another kind.
    pub(super) fn of_number((major, minor): (u32, u32)) -> io::Result<Option<LoopDevice>> {
        let directory = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        if !directory.join("loop").exists() {
            return Ok(None);
        }
        let link = std::fs::read_link(directory)?;
        let Some(name) = link.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
        Ok(Some(LoopDevice { name: name.to_owned(), file: open(name)? }))
    }

    /// Whether this image is what the device is attached to.
    pub(super) fn holds(&self, image: &Metadata) -> io::Result<bool> {
        match ioctl::loop_status(&self.file) {
            Ok(status) => Ok(status.device == image.dev() && status.inode == image.ino()),
            Err(Errno::NXIO) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The file it is attached to, as the kernel names it.
    pub(super) fn backing_file(&self) -> Option<PathBuf> {
        let text = std::fs::read_to_string(format!("/sys/block/{}/loop/backing_file", self.name)).ok()?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    }

    /// Where it can be mounted from.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/{}", self.name))
    }

    /// Lets the device go. Returns whether it is detached; if not, somebody else still uses it, and it detaches
    /// itself when that ends.
    pub(super) fn detach(self, image: &Metadata) -> io::Result<bool> {
        match ioctl::loop_clear(&self.file) {
            Ok(()) | Err(Errno::NXIO | Errno::BUSY) => {}
            Err(errno) => return Err(errno.into()),
        }
        drop(self.file);
        // Detaching ends in the kernel's own time after the last close, and tells nobody.
        let deadline = Instant::now() + DETACH_TIMEOUT;
        while let Some(device) = LoopDevice::of_image(image)? {
            drop(device);
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(true)
    }
}

fn open(name: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/dev/{name}"))
}
