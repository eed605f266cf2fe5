//! The control calls of block devices and file systems that no library wraps safely: loop devices and unused space.
//!
//! The only module of this crate with `unsafe` code. It contains the kernel's structures and one function per
//! call, no policy.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, Updater, opcode};

const LOOP_CLR_FD: Opcode = 0x4C01;
const LOOP_GET_STATUS64: Opcode = 0x4C05;
const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;

/// The device detaches itself when nobody has it open or mounted any more.
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopInfo {
    /// Device number of the file system that holds the file.
    pub(crate) device: u64,
    /// Inode of the file.
    pub(crate) inode: u64,
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

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// A call without an argument whose return value is the answer.
struct Returns<const OPCODE: Opcode>;

// SAFETY: the opcode given takes no argument, so a null pointer is right, and the value is returned as it is.
unsafe impl<const OPCODE: Opcode> Ioctl for Returns<OPCODE> {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<u32> {
        Ok(output as u32)
    }
}

/// The number of a loop device that nobody uses at this moment, making one when all are in use.
pub(crate) fn loop_free(control: &File) -> rustix::io::Result<u32> {
    // SAFETY: `LOOP_CTL_GET_FREE` takes no argument and returns a number.
    unsafe { rustix::ioctl::ioctl(control, Returns::<LOOP_CTL_GET_FREE>) }
}

/// Attaches `image` to a free loop device, until nobody uses that any more.
pub(crate) fn loop_configure(device: &File, image: &File) -> rustix::io::Result<()> {
    let info = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: LO_FLAGS_AUTOCLEAR,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let config = LoopConfig { fd: image.as_raw_fd() as u32, block_size: 0, info, reserved: [0; 8] };
    // SAFETY: the argument is a `struct loop_config` that lives until the call returns; the descriptor in it is
    // borrowed from `image`.
    unsafe { rustix::ioctl::ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

/// What a loop device is attached to; `ENXIO` when to nothing.
pub(crate) fn loop_status(device: &File) -> rustix::io::Result<LoopInfo> {
    // SAFETY: the kernel fills a `struct loop_info64`, every bit pattern of which is a value.
    unsafe { rustix::ioctl::ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) }
}

/// Detaches a loop device, at once or when its last user is done.
pub(crate) fn loop_clear(device: &File) -> rustix::io::Result<()> {
    // SAFETY: `LOOP_CLR_FD` takes no argument.
    unsafe { rustix::ioctl::ioctl(device, NoArg::<LOOP_CLR_FD>::new()) }
}

/// `struct fstrim_range` of `linux/fs.h`.
#[repr(C)]
struct TrimRange {
    start: u64,
    length: u64,
    length_min: u64,
}

/// `_IOWR('X', 121, struct fstrim_range)`.
const FITRIM: Opcode = opcode::read_write::<TrimRange>(b'X', 121);

/// Gives free pieces of at least `length_min` bytes of the file system that holds `directory` back to its device.
/// Returns how many bytes were given back.
pub(crate) fn trim(directory: &File, length_min: u64) -> rustix::io::Result<u64> {
    let mut range = TrimRange { start: 0, length: u64::MAX, length_min };
    // SAFETY: the argument is a `struct fstrim_range`, which the kernel reads and updates.
    unsafe { rustix::ioctl::ioctl(directory, Updater::<FITRIM, TrimRange>::new(&mut range)) }?;
    Ok(range.length)
}
