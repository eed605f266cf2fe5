//! What a file is besides its contents: owner, mode, extended attributes, times.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use crate::boot::c_path;
use crate::kernel::check;

/// Permission bits of a file until it has its own.
pub(super) const PRIVATE_MODE: u32 = 0o600;

/// Longest list of names, and longest value, that the kernel gives.
const ATTRIBUTE_BYTES_MAX: usize = 64 * 1024;

/// What a copy gets.
pub(super) struct Attributes {
    owner: (u32, u32),
    /// `None` for a symbolic link, which has none.
    mode: Option<u32>,
    times: [libc::timespec; 2],
}

impl Attributes {
    /// Those of a file, or what is said instead.
    pub(super) fn of(metadata: &Metadata, owner: Option<(u32, u32)>, mode: Option<u32>) -> Attributes {
        let time = |seconds, nanoseconds| libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        Attributes {
            owner: owner.unwrap_or((metadata.uid(), metadata.gid())),
            mode: (!metadata.is_symlink()).then(|| mode.unwrap_or(metadata.mode()) & 0o7777),
            times: [
                time(metadata.atime(), metadata.atime_nsec()),
                time(metadata.mtime(), metadata.mtime_nsec()),
            ],
        }
    }

    /// Gives them to a copy. In this order, because each may undo what comes after it.
    pub(super) fn apply(&self, from: &Path, to: &Path) -> io::Result<()> {
        lchown(to, Some(self.owner.0), Some(self.owner.1))?;
        if let Some(mode) = self.mode {
            fs::set_permissions(to, Permissions::from_mode(mode))?;
        }
        copy_extended(from, to, self.mode.is_none())?;
        let path = c_path(to)?;
        // A directory's name may be a link; what was copied then lies behind it.
        let flags = if self.mode.is_none() { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
        // SAFETY: the path is a C string and the kernel reads two times.
        check(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), self.times.as_ptr(), flags) })?;
        Ok(())
    }
}

/// Copies extended attributes, those of a link itself if it is one. What the target cannot have is left out.
fn copy_extended(from: &Path, to: &Path, link: bool) -> io::Result<()> {
    let (from, to) = (c_path(from)?, c_path(to)?);
    let mut names = vec![0_u8; ATTRIBUTE_BYTES_MAX];
    // SAFETY: the path is a C string, and the kernel writes no more than the length of the buffer.
    let length = unsafe {
        let (buffer, size) = (names.as_mut_ptr().cast(), names.len());
        match link {
            true => libc::llistxattr(from.as_ptr(), buffer, size),
            false => libc::listxattr(from.as_ptr(), buffer, size),
        }
    };
    let Some(length) = length_of(length)? else { return Ok(()) };
    let mut value = vec![0_u8; if length > 0 { ATTRIBUTE_BYTES_MAX } else { 0 }];
    for name in names[..length].split_inclusive(|byte| *byte == 0) {
        let name = std::ffi::CStr::from_bytes_with_nul(name).map_err(|_| io::ErrorKind::InvalidData)?;
        // SAFETY: path and name are C strings, and the kernel writes no more than the length of the buffer.
        let length = unsafe {
            let (buffer, size) = (value.as_mut_ptr().cast(), value.len());
            match link {
                true => libc::lgetxattr(from.as_ptr(), name.as_ptr(), buffer, size),
                false => libc::getxattr(from.as_ptr(), name.as_ptr(), buffer, size),
            }
        };
        let Some(length) = length_of(length)? else { continue };
        // SAFETY: path and name are C strings, and the kernel reads as much of the buffer as it filled.
        let set = unsafe {
            let value = value.as_ptr().cast();
            match link {
                true => libc::lsetxattr(to.as_ptr(), name.as_ptr(), value, length, 0),
                false => libc::setxattr(to.as_ptr(), name.as_ptr(), value, length, 0),
            }
        };
        length_of(set as isize)?;
    }
    Ok(())
}

/// A length, an error, or nothing where there are no such attributes.
fn length_of(result: isize) -> io::Result<Option<usize>> {
    match usize::try_from(result) {
        Ok(length) => Ok(Some(length)),
        Err(_) => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOTSUP | libc::ENODATA)) => Ok(None),
            error => Err(error),
        },
    }
}
