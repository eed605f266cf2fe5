//! Opens a tap. The only file with ioctls.

use std::{
    fs::OpenOptions,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

/// Name of the tap in every namespace.
pub(crate) const TAP: &str = "tap0";

/// Makes `tap0` in the network namespace of the calling thread.
///
/// It lives as long as the descriptor or a copy of it does, and carries frames behind a virtio header
/// (`IFF_VNET_HDR`), which lets a VMM pass checksum and segmentation work through.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: `ifreq` is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(TAP.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the descriptor is open for the whole call, and TUNSETIFF reads and writes one `ifreq`, which `request` is.
    if unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(device.into())
}
