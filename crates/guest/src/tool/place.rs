//! Paths below a directory that symbolic links cannot lead out of.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use guest_link::tool::{Found, NAMES_MAX, Place};

use super::{Tried, Trouble};
use crate::boot::c_path;
use crate::file::{as_path, kind};
use crate::kernel::check_long;

/// A file that was found, whatever its name means elsewhere.
pub(super) struct Held(OwnedFd);

impl Held {
    /// A path that leads to exactly this file, for this process.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// Finds a file.
pub(super) fn open(place: &Place) -> Result<Held, Trouble> {
    find(place).tried("find", as_path(&place.path))
}

/// Whether anything is at a path.
pub(super) fn exists(place: &Place) -> Result<bool, Trouble> {
    match find(place) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        other => other.tried("find", as_path(&place.path)).map(|_| true),
    }
}

/// What is at a path; `None` when nothing is.
pub(super) fn look(place: &Place) -> Result<Option<Found>, Trouble> {
    let shown = as_path(&place.path);
    let held = match find(place) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => return Ok(None),
        other => other.tried("find", shown)?,
    };
    let metadata = fs::metadata(held.path()).tried("look at", shown)?;
    let mut names = Vec::new();
    if metadata.is_dir() {
        for entry in fs::read_dir(held.path()).tried("list", shown)? {
            let entry = entry.tried("list", shown)?;
            let found = entry.file_type().tried("look at", shown)?;
            names.push((entry.file_name().as_bytes().to_vec(), kind(found)));
            if names.len() > NAMES_MAX {
                return Err(Trouble(format!("{} has more than {NAMES_MAX} entries", shown.display())));
            }
        }
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(Some(Found { kind: kind(metadata.file_type()), names }))
}

fn find(place: &Place) -> io::Result<Held> {
    let root = fs::File::open(as_path(&place.root))?;
    let path = c_path(Path::new(as_path(&place.path)))?;
    // SAFETY: all zeroes is a valid `open_how`.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the path is a C string, and the kernel reads one `open_how`.
    let opened = check_long(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    })?;
    let number = i32::try_from(opened).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: fresh and owned by nobody else.
    Ok(Held(unsafe { OwnedFd::from_raw_fd(number) }))
}
