//! Owners, modes, extended attributes and times of what was made.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, flistxattr,
    fremovexattr, fsetxattr, futimens, utimensat,
};
use rustix::io::Errno;

use super::error::UnpackCause;
use crate::tar::{Entry, Mtime};

/// Longest list of attributes' names that the kernel gives.
const LIST_BYTES_MAX: usize = 1 << 16;
/// What a program may do without being the superuser's.
const CAPABILITY: &[u8] = b"security.capability";

/// Only attributes that mean something in any system. Others are about the host (overlays, labels of its security modules).
pub(crate) fn is_kept(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == CAPABILITY
}

/// Gives a file or directory everything but its time. The owner comes first: changing it takes set-user-id bits and capabilities away.
/// Tells how many attributes were left out.
pub(super) fn set(fd: impl AsFd, entry: &Entry) -> Result<u64, UnpackCause> {
    let fd = fd.as_fd();
    fchown(fd, Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)))
        .map_err(UnpackCause::host("set its owner"))?;
    set_mode(fd, entry.mode)?;
    set_xattrs(fd, &entry.xattrs)
}

pub(super) fn set_mode(fd: impl AsFd, mode: u32) -> Result<(), UnpackCause> {
    fchmod(fd, Mode::from(mode & 0o7777)).map_err(UnpackCause::host("set its mode"))
}

fn set_xattrs(fd: BorrowedFd<'_>, xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<u64, UnpackCause> {
    let mut skipped = 0;
    for (name, value) in xattrs {
        if !is_kept(name) {
            skipped += 1;
            continue;
        }
        match fsetxattr(fd, name.as_slice(), value, XattrFlags::empty()) {
            Ok(()) => {}
            // A file system without them: a program can do without a note, but not without what it is allowed to do.
            Err(Errno::OPNOTSUPP) if name != CAPABILITY => skipped += 1,
            Err(errno) => return Err(UnpackCause::host("set an extended attribute")(errno)),
        }
    }
    Ok(skipped)
}

/// Takes away attributes that a directory had and the entry no longer has.
pub(super) fn drop_xattrs(fd: impl AsFd, entry: &Entry) -> Result<(), UnpackCause> {
    let mut list = Vec::with_capacity(LIST_BYTES_MAX);
    match flistxattr(fd.as_fd(), rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(errno) => return Err(UnpackCause::host("list extended attributes")(errno)),
    }
    for name in
        list.split(|byte| *byte == 0).filter(|name| is_kept(name) && !entry.xattrs.contains_key(*name))
    {
        fremovexattr(fd.as_fd(), name).map_err(UnpackCause::host("remove an extended attribute"))?;
    }
    Ok(())
}

pub(super) fn set_time(fd: impl AsFd, mtime: Mtime) -> Result<(), UnpackCause> {
    futimens(fd, &timestamps(mtime)).map_err(UnpackCause::host("set its time"))
}

/// Owner and time of a link itself; it has nothing else.
pub(super) fn set_link(parent: impl AsFd, name: &[u8], entry: &Entry) -> Result<(), UnpackCause> {
    let owner = (Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)));
    chownat(parent.as_fd(), name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(UnpackCause::host("set its owner"))?;
    utimensat(parent.as_fd(), name, &timestamps(entry.mtime), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(UnpackCause::host("set its time"))
}

fn timestamps(mtime: Mtime) -> Timestamps {
    let time = Timespec { tv_sec: mtime.seconds, tv_nsec: i64::from(mtime.nanoseconds) };
    Timestamps { last_access: time, last_modification: time }
}
