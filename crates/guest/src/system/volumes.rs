//! File systems on volumes: mounted where the host says, and as large as their disks.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::disks;
use crate::boot::{await_path, c_path};
use crate::file::make_parents;
use crate::kernel::check;

/// `EXT4_IOC_RESIZE_FS`.
const EXT4_RESIZE: libc::c_ulong = 0x4008_6610;
/// How long a disk may take to tell that it has grown.
const GROWN_TIMEOUT: Duration = Duration::from_secs(10);
const GROWN_POLL: Duration = Duration::from_millis(2);
/// Volumes that a machine can have: `vdb` to `vdz`.
const SLOTS_MAX: u8 = 25;

/// The name of a volume's disk. The root disk is `vda`.
fn disk(slot: u8) -> io::Result<String> {
    match slot < SLOTS_MAX {
        true => Ok(format!("vd{}", char::from(b'b' + slot))),
        false => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// Mounts a volume at a directory, which is made if it is missing.
pub(crate) fn mount(slot: u8, place: &Path, read_only: bool) -> io::Result<()> {
    let disk = disk(slot)?;
    let device = PathBuf::from(format!("/dev/{disk}"));
    await_path(&device)?;
    make_parents(place, None)?;
    let (source, target) = (c_path(&device)?, c_path(place)?);
    let flags = if read_only { libc::MS_RDONLY } else { 0 };
    // SAFETY: all pointers are C strings that outlive the call.
    check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), c"ext4".as_ptr(), flags, c"".as_ptr().cast())
    })?;
    if read_only {
        return Ok(());
    }
    // It may have grown since it was last mounted. One that cannot be made larger is as good as it was.
    let _ = disk_bytes(&disk).and_then(|bytes| fill(place, bytes));
    Ok(())
}

/// Waits until a volume's disk has this size, then lets the file system on it fill it, where it is mounted.
pub(crate) fn grow(slot: u8, bytes: u64) -> io::Result<()> {
    let disk = disk(slot)?;
    await_size(&disk, bytes)?;
    match disks::mounted_at(&disk)? {
        Some(place) => fill(&place, bytes),
        None => Ok(()),
    }
}

/// Waits until the root disk has this size, then lets its file system fill it.
pub(crate) fn grow_root(bytes: u64) -> io::Result<()> {
    await_size("vda", bytes)?;
    fill(Path::new("/"), bytes)
}

fn await_size(disk: &str, bytes: u64) -> io::Result<()> {
    let begun = Instant::now();
    while disk_bytes(disk)? < bytes {
        if begun.elapsed() > GROWN_TIMEOUT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // The device tells the kernel in its own time, and nobody tells us.
        std::thread::sleep(GROWN_POLL);
    }
    Ok(())
}

fn disk_bytes(disk: &str) -> io::Result<u64> {
    let sectors = fs::read_to_string(Path::new("/sys/block").join(disk).join("size"))?;
    let sectors: u64 = sectors.trim_end().parse().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(sectors * 512)
}

/// Makes a mounted file system this large.
fn fill(place: &Path, bytes: u64) -> io::Result<()> {
    let root = File::open(place)?;
    // SAFETY: all zeroes is a valid `statfs`.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `statfs`.
    check(unsafe { libc::fstatfs(root.as_raw_fd(), &raw mut system) })?;
    let block =
        u64::try_from(system.f_bsize).ok().filter(|size| *size > 0).ok_or(io::ErrorKind::InvalidData)?;
    let blocks = bytes / block;
    // SAFETY: `EXT4_IOC_RESIZE_FS` reads one number.
    check(unsafe { libc::ioctl(root.as_raw_fd(), EXT4_RESIZE, &raw const blocks) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_follow_the_root_disk() {
        assert_eq!(disk(0).unwrap(), "vdb");
        assert_eq!(disk(24).unwrap(), "vdz");
        assert!(disk(25).is_err());
    }
}
