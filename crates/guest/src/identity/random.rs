//! The kernel's random number generator. Two guests restored from one snapshot would draw the same numbers without this.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use guest_link::message::ENTROPY_BYTES;

use crate::kernel::{check, check_long};

/// `struct rand_pool_info` with its bytes.
#[repr(C)]
struct Pool {
    entropy_bits: libc::c_int,
    bytes: libc::c_int,
    data: [u8; ENTROPY_BYTES],
}

const RNDADDENTROPY: libc::c_ulong = 0x4008_5203;
const RNDRESEEDCRNG: libc::c_ulong = 0x5207;

/// Mixes fresh bytes in and makes the generator use them at once.
pub(super) fn reseed(device: &File, entropy: &[u8; ENTROPY_BYTES]) -> io::Result<()> {
    let bytes = ENTROPY_BYTES as libc::c_int;
    let pool = Pool { entropy_bits: 8 * bytes, bytes, data: *entropy };
    // SAFETY: `RNDADDENTROPY` reads the two integers and as many bytes as the second says, all of which lie in `pool`.
    check(unsafe { libc::ioctl(device.as_raw_fd(), RNDADDENTROPY, &raw const pool) })?;
    // SAFETY: `RNDRESEEDCRNG` takes no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), RNDRESEEDCRNG) })?;
    Ok(())
}

/// Draws from the reseeded generator.
pub(super) fn sample() -> io::Result<[u8; 16]> {
    let mut sample = [0; 16];
    // SAFETY: the kernel writes at most `sample.len()` bytes.
    let count =
        check_long(unsafe { libc::syscall(libc::SYS_getrandom, sample.as_mut_ptr(), sample.len(), 0) })?;
    if count as usize == sample.len() { Ok(sample) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
