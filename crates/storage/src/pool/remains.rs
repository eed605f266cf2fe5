//! What is left of a pool whose owner has ended: mounts and loop devices, whatever became of its files.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::loop_device::LoopDevice;
use super::{image, mounts};
use crate::ioctl;

/// How long a process that has just ended may hold its files.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(5);
const IN_USE_PAUSE: Duration = Duration::from_millis(10);
/// What the kernel writes after the name of a file that was deleted.
const DELETED: &str = " (deleted)";

/// What was let go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Released {
    /// Mounts.
    pub mounts: usize,
    /// Loop devices.
    pub loop_devices: usize,
}

/// A loop device whose pool image was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The device.
    pub device: PathBuf,
    /// Where the data directory was.
    pub data_dir: PathBuf,
}

/// Mount points in a directory, the innermost first.
pub fn mounts_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    // The kernel's list knows no symlinks.
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mut found = mounts::places()?;
    found.retain(|place| place.starts_with(&directory) && *place != directory);
    found.reverse();
    Ok(found)
}

/// Unmounts everything in a data directory and lets go of the loop devices of its pool image, there or deleted. Fails while a process
/// uses files in it. Safe to repeat.
pub fn release(data_dir: &Path) -> io::Result<Released> {
    let mut released = Released::default();
    let ours = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    let devices = || {
        let all = LoopDevice::all()?.into_iter();
        io::Result::Ok(
            all.filter(|device| owner(device).is_some_and(|(owner, _)| owner == ours)).collect::<Vec<_>>(),
        )
    };
    // They mostly go with the mount.
    let before = devices()?.len();
    for place in mounts_below(data_dir)? {
        let deadline = Instant::now() + IN_USE_TIMEOUT;
        loop {
            match rustix::mount::unmount(&place, UnmountFlags::NOFOLLOW) {
                Ok(()) => {
                    released.mounts += 1;
                    break;
                }
                Err(Errno::INVAL | Errno::NOENT) => break,
                Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(IN_USE_PAUSE),
                Err(errno) => {
                    let text = format!("{} cannot be unmounted: {errno}", place.display());
                    return Err(io::Error::new(io::Error::from(errno).kind(), text));
                }
            }
        }
    }
    for device in devices()? {
        // One that is mounted elsewhere goes by itself later.
        match ioctl::loop_clear(device.file()) {
            Ok(()) | Err(Errno::NXIO | Errno::BUSY) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    released.loop_devices = before.saturating_sub(devices()?.len());
    Ok(released)
}

/// Loop devices of pool images that were deleted.
pub fn orphans() -> io::Result<Vec<Orphan>> {
    let devices = LoopDevice::all()?;
    let orphan = |device: &LoopDevice| match owner(device)? {
        (data_dir, true) => Some(Orphan { device: device.path(), data_dir }),
        (_, false) => None,
    };
    Ok(devices.iter().filter_map(orphan).collect())
}

/// The data directory of a pool image, and whether the image was deleted.
fn owner(device: &LoopDevice) -> Option<(PathBuf, bool)> {
    let text = device.backing_file()?.into_os_string().into_string().ok()?;
    let (path, is_deleted) = match text.strip_suffix(DELETED) {
        Some(path) => (path, true),
        None => (text.as_str(), false),
    };
    let path = Path::new(path);
    (path.file_name()? == image::IMAGE).then(|| Some((path.parent()?.to_owned(), is_deleted)))?
}
