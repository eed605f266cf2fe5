//! The device that is the guest link: the virtio-serial port of that name, or a virtio socket that hosts connect to.

use std::fs::{self, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::bus;
use super::root::{await_path, await_some};
use crate::agent::LinkEnd;
use crate::kernel::check;

/// The port's name, as the machine was made with it.
const NAME: &str = "pandastack.link";

/// Where hosts connect in a machine with a virtio socket.
const PORT: libc::c_uint = 1024;

/// Connections that wait while one is served.
const WAITING_MAX: libc::c_int = 16;

/// Waits for the device and opens it.
pub(super) fn open() -> io::Result<LinkEnd> {
    if bus::has(bus::SOCKET) {
        return listen().map(LinkEnd::Listener);
    }
    let device = await_some(find)?;
    await_path(&device)?;
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(device)?;
    Ok(LinkEnd::Stream(OwnedFd::from(file)))
}

fn listen() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; the result is checked before it is owned.
    let descriptor = check(unsafe { libc::socket(libc::AF_VSOCK, kind, 0) })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: all zeroes is a valid `sockaddr_vm`.
    let mut address: libc::sockaddr_vm = unsafe { mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
    address.svm_port = PORT;
    address.svm_cid = libc::VMADDR_CID_ANY;
    let length = mem::size_of::<libc::sockaddr_vm>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `address`.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(socket.as_raw_fd(), WAITING_MAX) })?;
    Ok(socket)
}

fn find() -> Option<PathBuf> {
    for port in fs::read_dir("/sys/class/virtio-ports").ok()?.flatten() {
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim_end() == NAME {
            return Some(Path::new("/dev").join(port.file_name()));
        }
    }
    None
}
