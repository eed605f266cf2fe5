//! Gives a tap to a program that opens it by name: the tap stays when its descriptor is closed, belongs to the machine's user, and
//! is reached from the namespace it lies in.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// From the kernel's `linux/if_tun.h`.
const TUNSETPERSIST: libc::Ioctl = 0x4004_54cb;
const TUNSETOWNER: libc::Ioctl = 0x4004_54cc;
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;

/// Name of the tap in its namespace, as every snapshot has it.
pub(super) const NAME: &str = "tap0";

/// Lets go of the tap, so that a process of this user can open it; returns the namespace it lies in. When that namespace is removed
/// the tap goes with it.
pub fn hand_over(tap: OwnedFd, uid: u32) -> io::Result<OwnedFd> {
    let call = |request, value: libc::c_ulong| {
        // SAFETY: the descriptor is open for the whole call, and these requests take a number, not a pointer.
        let result = unsafe { libc::ioctl(tap.as_raw_fd(), request, value) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    };
    let descriptor = call(TUNGETDEVNETNS, 0)?;
    // SAFETY: the kernel made a new descriptor for us, which nobody else owns.
    let namespace = unsafe { OwnedFd::from_raw_fd(descriptor) };
    call(TUNSETOWNER, libc::c_ulong::from(uid))?;
    call(TUNSETPERSIST, 1)?;
    Ok(namespace)
}
