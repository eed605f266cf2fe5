//! Reads scattered pages of a process in few calls.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;

use super::CaptureError;
use crate::mapping::GuestMemory;
use crate::ranges::length;

/// Fills `buffer` with the bytes of `window`, one range after the other. No range crosses from one part to the next.
pub(super) fn read(
    memory: &GuestMemory,
    window: &[Range<u64>],
    buffer: &mut [u8],
) -> Result<(), CaptureError> {
    let parts = memory.parts();
    let address_of = |offset: u64| {
        let part = parts.partition_point(|part| part.end() <= offset);
        parts[part].address_of(offset)
    };
    let mut remote: Vec<libc::iovec> = window
        .iter()
        .map(|range| libc::iovec {
            iov_base: address_of(range.start) as *mut libc::c_void,
            iov_len: length(range) as usize,
        })
        .collect();
    let mut first = 0;
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = &mut buffer[filled..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let remote_left = &remote[first..];
        // SAFETY: the kernel writes only to `local`, which is `rest`, borrowed for the call. The remote addresses are
        // checked by the kernel against the other process.
        let read = unsafe {
            libc::process_vm_readv(
                memory.pid() as libc::pid_t,
                &raw const local,
                1,
                remote_left.as_ptr(),
                remote_left.len() as libc::c_ulong,
                0,
            )
        };
        let offset = window[first].start;
        if read <= 0 {
            let source = match read {
                0 => io::Error::from(io::ErrorKind::UnexpectedEof),
                _ => io::Error::last_os_error(),
            };
            if source.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(match memory.is_alive() {
                true => CaptureError::Read { pid: memory.pid(), offset, source },
                false => CaptureError::Gone { pid: memory.pid() },
            });
        }
        filled += read as usize;
        // A short read ends inside some range: drop the ranges before it and the part that has been read.
        let mut done = read as usize;
        while first < remote.len() && done >= remote[first].iov_len {
            done -= remote[first].iov_len;
            first += 1;
        }
        if let Some(partial) = remote.get_mut(first) {
            partial.iov_base = partial.iov_base.wrapping_byte_add(done);
            partial.iov_len -= done;
        }
    }
    Ok(())
}
