//! What a jailed program has of its own besides the root it shares with others: a small directory in memory, and device nodes.
//!
//! Paths are prepared before the clone; the child makes system calls and nothing else.
#![allow(unsafe_code)]

use std::ffi::{CString, NulError};
use std::path::Path;
use std::ptr;

use super::spawn::c_string;

/// Files a jailed program may make in its room: a few sockets and what is saved.
const ROOM_FILES_MAX: u32 = 64;

/// A directory in memory, of one jailed program alone.
#[derive(Debug, Clone, Copy)]
pub struct Room<'a> {
    /// Its name in the jail's root.
    pub name: &'a str,
    /// What it holds at most, in bytes.
    pub bytes_max: u64,
    /// Empty files it begins with; others may be bound over them.
    pub files: &'a [&'a str],
    /// Named pipes it begins with.
    pub pipes: &'a [&'a str],
}

/// A device that a jailed program opens by name.
#[derive(Debug, Clone, Copy)]
pub struct DeviceNode {
    /// Its name in `/dev`.
    pub name: &'static str,
    /// Its numbers.
    pub number: (u32, u32),
}

/// The jailed program's own directory, as the child makes it.
pub(super) struct RoomPlan {
    place: CString,
    options: CString,
    files: Vec<(CString, libc::mode_t)>,
}

impl RoomPlan {
    pub(super) fn new(root: &Path, room: Room<'_>, uid: u32) -> Result<Self, NulError> {
        let place = root.join(room.name);
        let options =
            format!("size={},nr_inodes={ROOM_FILES_MAX},mode=0700,uid={uid},gid={uid}", room.bytes_max);
        let files = room.files.iter().map(|file| (file, libc::S_IFREG));
        let files = files.chain(room.pipes.iter().map(|pipe| (pipe, libc::S_IFIFO)));
        let files = files
            .map(|(name, kind)| Ok((c_string(place.join(name).as_os_str())?, kind)))
            .collect::<Result<_, NulError>>()?;
        Ok(Self { place: c_string(place.as_os_str())?, options: CString::new(options)?, files })
    }

    /// Makes the program's own directory; false with `errno` set when that fails.
    ///
    /// # Safety
    /// Only in the cloned child, on paths prepared before.
    pub(super) unsafe fn make(&self, uid: u32) -> bool {
        let kind = c"tmpfs".as_ptr();
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        // SAFETY: system calls on prepared, NUL-terminated strings.
        unsafe {
            if libc::mount(kind, self.place.as_ptr(), kind, flags, self.options.as_ptr().cast()) < 0 {
                return false;
            }
            for (file, kind) in &self.files {
                if libc::mknod(file.as_ptr(), kind | 0o600, 0) < 0 || libc::chown(file.as_ptr(), uid, uid) < 0
                {
                    return false;
                }
            }
        }
        true
    }
}

/// Its device nodes.
pub(super) struct DevicesPlan {
    place: CString,
    directories: Vec<CString>,
    nodes: Vec<(CString, libc::dev_t)>,
}

impl DevicesPlan {
    pub(super) fn new(root: &Path, devices: &[DeviceNode]) -> Result<Self, NulError> {
        let place = root.join("dev");
        let mut plan =
            Self { place: c_string(place.as_os_str())?, directories: Vec::new(), nodes: Vec::new() };
        for device in devices {
            let path = place.join(device.name);
            if let Some(parent) = path.parent().filter(|parent| *parent != place) {
                plan.directories.push(c_string(parent.as_os_str())?);
            }
            let (major, minor) = device.number;
            plan.nodes.push((c_string(path.as_os_str())?, libc::makedev(major, minor)));
        }
        Ok(plan)
    }

    /// Makes the device nodes the program may open; false with `errno` set when that fails.
    ///
    /// # Safety
    /// Only in the cloned child, on paths prepared before.
    pub(super) unsafe fn make(&self, uid: u32) -> bool {
        let kind = c"tmpfs".as_ptr();
        let place = self.place.as_ptr();
        let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
        let options = c"size=4096,nr_inodes=16,mode=0755".as_ptr();
        // SAFETY: system calls on prepared, NUL-terminated strings.
        unsafe {
            if libc::mount(kind, place, kind, flags, options.cast()) < 0 {
                return false;
            }
            for directory in &self.directories {
                if libc::mkdir(directory.as_ptr(), 0o755) < 0 && *libc::__errno_location() != libc::EEXIST {
                    return false;
                }
            }
            for (path, number) in &self.nodes {
                if libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o600, *number) < 0
                    || libc::chown(path.as_ptr(), uid, uid) < 0
                {
                    return false;
                }
            }
            let sealed = flags | libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY;
            libc::mount(ptr::null(), place, ptr::null(), sealed, ptr::null()) == 0
        }
    }
}
