//! A loop device over an open file, for a trial: the kernel takes it back when its last user is gone.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// A free device may be taken by someone else before we configure it; then the next one is tried.
const ATTEMPTS_MAX: usize = 16;

/// `struct loop_info64` of the kernel.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of the kernel.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// An attached loop device. It is held by this value and by whatever mounts it, and detaches itself after both.
pub(super) struct LoopDevice {
    path: PathBuf,
    _held: File,
}

impl LoopDevice {
    /// Attaches `image` to a free device.
    pub(super) fn attach(image: &File) -> std::io::Result<LoopDevice> {
        let control = File::options().read(true).write(true).open("/dev/loop-control")?;
        let mut busy = std::io::Error::other("no free loop device");
        for _ in 0..ATTEMPTS_MAX {
            // SAFETY: the request takes no argument and returns a number.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(std::io::Error::last_os_error());
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = File::options().read(true).write(true).open(&path)?;
            // SAFETY: all fields are integers, for which zero is a value.
            let mut config: LoopConfig = unsafe { std::mem::zeroed() };
            config.fd = image.as_raw_fd() as u32;
            config.info.flags = LO_FLAGS_AUTOCLEAR;
            // SAFETY: the kernel reads one LoopConfig, laid out as it defines it, from a live value.
            match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &config) } {
                0 => return Ok(LoopDevice { path, _held: device }),
                _ => busy = std::io::Error::last_os_error(),
            }
            if busy.raw_os_error() != Some(libc::EBUSY) {
                return Err(busy);
            }
        }
        Err(busy)
    }

    /// The device file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
