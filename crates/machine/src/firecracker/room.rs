//! The directory in memory that a Firecracker process writes, seen from outside its jail.
//!
//! Whoever took over the process decides what lies in it: nothing here follows a link, waits for a pipe or reads without a bound.
//! It is reached through the process, so it is there for as long as the process is, wherever the machine's directory is moved.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use tokio::net::unix::pipe;
use tokio::net::{UnixListener, UnixStream};

/// Its name in the jail's root.
pub(super) const NAME: &str = "own";
/// What it holds at most. The devices of a machine take tens of kilobytes for each processor.
pub(super) const BYTES_MAX: u64 = 16 << 20;
/// Where Firecracker listens for requests.
pub(super) const CONTROL_SOCKET: &str = "control.sock";
/// Where it listens for connections to the guest.
pub(super) const LINK_SOCKET: &str = "link.sock";
/// Where it hands over its page faults, to us.
pub(super) const PAGES_SOCKET: &str = "pages.sock";
/// Where it logs to.
pub(super) const LOG: &str = "log";
/// Where it writes what it counts.
pub(super) const COUNTERS: &str = "counters";
/// Saved devices, while they are read or written.
pub(super) const DEVICES: &str = "devices";

/// The directory.
#[derive(Debug)]
pub(super) struct Room {
    directory: OwnedFd,
}

impl Room {
    /// Opens that of a process. Whether it still is the process that was meant must be asked afterwards.
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty())?;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH;
        let directory = rustix::fs::openat2(&root, NAME, flags, Mode::empty(), resolve)?;
        Ok(Self { directory })
    }

    /// An ordinary directory in its place.
    #[cfg(test)]
    pub(super) fn standing_in(directory: OwnedFd) -> Self {
        Self { directory }
    }

    /// Connects to a socket in it, and to nothing else that may lie there under that name.
    pub(super) async fn connect(&self, name: &str) -> io::Result<UnixStream> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = rustix::fs::openat(&self.directory, name, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&socket)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(io::Error::other("there is something else in place of the socket"));
        }
        UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).await
    }

    /// Listens at a socket in it, which the process may connect to.
    pub(super) fn listen(&self, name: &str) -> io::Result<UnixListener> {
        self.remove(name)?;
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()))?;
        // By the descriptor: whatever else may lie there by now keeps its mode.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = rustix::fs::openat(&self.directory, name, flags, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode) != FileType::Socket {
            return Err(io::Error::other("there is something else in place of the socket"));
        }
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(format!("/proc/self/fd/{}", socket.as_raw_fd()), mode)?;
        Ok(listener)
    }

    /// Reads what the process writes to a pipe in it.
    pub(super) fn pipe(&self, name: &str) -> io::Result<pipe::Receiver> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let found = rustix::fs::openat(&self.directory, name, flags, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::Fifo {
            return Err(io::Error::other("there is something else in place of the pipe"));
        }
        pipe::Receiver::from_owned_fd(found)
    }

    /// Puts saved devices into it.
    pub(super) fn put_devices(&self, from: &File) -> io::Result<()> {
        self.remove_devices()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::RGRP | Mode::ROTH;
        let mut to = File::from(rustix::fs::openat(&self.directory, DEVICES, flags, mode)?);
        copy(from, &mut to)
    }

    /// Takes saved devices out of it.
    pub(super) fn take_devices(&self, mut to: &File) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = File::from(rustix::fs::openat(&self.directory, DEVICES, flags, Mode::empty())?);
        let found = from.metadata()?;
        if !found.is_file() || found.size() == 0 {
            return Err(io::Error::other("the devices were not saved"));
        }
        copy(&from, &mut to)?;
        self.remove_devices()
    }

    /// Removes saved devices, if there are any.
    pub(super) fn remove_devices(&self) -> io::Result<()> {
        self.remove(DEVICES)
    }

    /// Removes what has this name, if anything has.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Err(error) if error != rustix::io::Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn copy(from: &File, to: &mut impl Write) -> io::Result<()> {
    let copied = io::copy(&mut from.take(BYTES_MAX), to)?;
    if copied == BYTES_MAX { Err(io::Error::other("the devices are too large")) } else { Ok(()) }
}
