//! Disks: those that are attached are mounted, and one is held still while somebody clones it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use guest_link::tool::{DiskMount, HOLD_SECONDS_MAX};

use super::{Tried, Trouble, mounts};
use crate::boot::{await_path, c_path};
use crate::file::{as_path, make_parents};
use crate::kernel::check;

const FIFREEZE: libc::c_ulong = 0xc004_5877;
const FITHAW: libc::c_ulong = 0xc004_5878;

/// Mounts disks.
pub(super) fn mount_all(disks: &[DiskMount]) -> Result<(), Trouble> {
    for disk in disks {
        let (device, place) = (as_path(&disk.device), as_path(&disk.place));
        await_path(device).tried("find", device)?;
        make_parents(place, None).tried("make", place)?;
        let device = c_path(device).tried("mount", device)?;
        let access = if disk.writable { 0 } else { libc::MS_RDONLY };
        let flags = access | libc::MS_NOATIME | libc::MS_NODEV | libc::MS_NOSUID;
        mounts::mount(&device, place, c"ext4", flags, c"").tried("mount a disk at", place)?;
    }
    Ok(())
}

/// Holds the file system at a path until standard input ends: what is on the disk meanwhile is whole, as if it were unmounted.
pub(super) fn hold(path: &Path) -> Result<(), Trouble> {
    let root = File::open(path).tried("open", path)?;
    // SAFETY: `FIFREEZE` takes no argument.
    check(unsafe { libc::ioctl(root.as_raw_fd(), FIFREEZE, 0) }).tried("flush", path)?;
    let told = io::stdout().write_all(b"held\n").and_then(|()| io::stdout().flush());
    let mut input = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    let patience = i32::try_from(HOLD_SECONDS_MAX).unwrap_or(i32::MAX).saturating_mul(1000);
    // SAFETY: the kernel reads and writes one `pollfd`.
    let ended = unsafe { libc::poll(&raw mut input, 1, patience) };
    // SAFETY: `FITHAW` takes no argument.
    check(unsafe { libc::ioctl(root.as_raw_fd(), FITHAW, 0) }).tried("let go of", path)?;
    told.tried("tell of", path)?;
    match ended {
        0 => Err(Trouble(format!("nobody came for {} in {HOLD_SECONDS_MAX} s", path.display()))),
        _ => Ok(()),
    }
}
