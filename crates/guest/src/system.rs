//! The machine as a whole: what listens, what load there is, and how it stops.

pub(crate) mod disks;
pub(crate) mod metrics;
pub(crate) mod ports;
pub(crate) mod shutdown;
pub(crate) mod volumes;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;

use guest_link::message::{Failure, Response};

use crate::kernel::{check, errno};

/// `struct fstrim_range`.
#[repr(C)]
struct TrimRange {
    start: u64,
    length: u64,
    shortest: u64,
}

const FITRIM: libc::c_ulong = 0xc018_5879;

/// Flushes all file systems.
pub(crate) fn sync() {
    // SAFETY: no pointers.
    unsafe { libc::sync() };
}

/// Flushes file systems, gives unused blocks of the root back to the disk and drops clean caches.
pub(crate) fn trim() -> Result<Response, Failure> {
    sync();
    let mut range = TrimRange { start: 0, length: u64::MAX, shortest: 0 };
    let root = File::open("/").map_err(|error| failed(&error))?;
    // SAFETY: `FITRIM` reads and writes one `TrimRange`.
    match check(unsafe { libc::ioctl(root.as_raw_fd(), FITRIM, &raw mut range) }) {
        Ok(_) => {}
        // Not every disk takes blocks back.
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL)) => {}
        Err(error) => return Err(failed(&error)),
    }
    fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| failed(&error))?;
    Ok(Response::Done)
}

fn failed(error: &io::Error) -> Failure {
    Failure::File(guest_link::message::FileFailure::Other { errno: errno(error) })
}
