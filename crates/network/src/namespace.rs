//! Named network namespaces under `/run/netns`, laid out as `ip netns` does.
//!
//! The functions that move a thread (`leave_host`, `enter`) may be called only on a thread that ends afterwards.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

const DIRECTORY: &str = "/run/netns";
/// Where the calling thread's namespace can be opened.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";
/// More mounts than this on one name are not ours to untangle.
const STACKED_MOUNTS_MAX: u32 = 16;

fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// Makes the directory, as a mount whose changes other mount namespaces see, so that removing a name removes it there
/// too. Safe to repeat, also beside `ip netns`, which takes the same lock.
pub(crate) fn prepare_directory() -> io::Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    let directory = File::open(DIRECTORY)?;
    flock(&directory, FlockOperation::LockExclusive)?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match mount_change(DIRECTORY, shared) {
        // Not a mount point yet.
        Err(Errno::INVAL) => {
            mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            Ok(mount_change(DIRECTORY, shared)?)
        }
        other => Ok(other?),
    }
}

/// Moves the calling thread into a new, empty network namespace, which vanishes with it unless it is published.
pub(crate) fn leave_host() -> io::Result<File> {
    // SAFETY: only the network namespace is unshared; file descriptors stay shared with the other threads.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    File::open(OWN_NAMESPACE)
}

/// Gives the calling thread's namespace a name, under which it stays until it is removed.
pub(crate) fn publish(name: &str) -> io::Result<()> {
    let path = path(name);
    OpenOptions::new().write(true).create_new(true).open(&path)?;
    Ok(mount_bind(OWN_NAMESPACE, &path)?)
}

/// Moves the calling thread into the namespace called `name`. `NotFound` if there is none.
pub(crate) fn enter(name: &str) -> io::Result<()> {
    let namespace = File::open(path(name))?;
    match move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)) {
        // A name whose mount was never made or is gone.
        Err(Errno::INVAL) => Err(io::ErrorKind::NotFound.into()),
        other => Ok(other?),
    }
}

/// Removes a name. The namespace itself goes when nothing uses it any more. Absent is fine.
pub(crate) fn remove(name: &str) -> io::Result<()> {
    let path = path(name);
    for _ in 0..STACKED_MOUNTS_MAX {
        match unmount(&path, UnmountFlags::DETACH) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(error) => return Err(error.into()),
        }
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Every name in the directory.
pub(crate) fn list() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(DIRECTORY)? {
        // A name that is not UTF-8 is not ours.
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}
