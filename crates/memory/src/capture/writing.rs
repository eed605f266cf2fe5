//! Writes captured pages over their places in the target: neighbours together, long runs of zeros as holes.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;

use super::CaptureError;
use crate::PAGE_BYTES;
use crate::ranges::length;

/// Shortest run of zeros that becomes a hole. Punching one takes as long as writing some 100 KiB, so shorter runs are
/// written, unless the target has zeros there already.
const HOLE_BYTES_MIN: usize = 16 * PAGE_BYTES as usize;

const ZERO_PAGE: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// Writes the bytes of `window` to their places. Returns how many were left to holes.
pub(super) fn write(target: &File, window: &[Range<u64>], buffer: &[u8]) -> Result<u64, CaptureError> {
    let mut runs = Vec::new();
    let mut rest = buffer;
    for range in window {
        let bytes =
            rest.split_off(..length(range) as usize).expect("the buffer holds every range of the window");
        split_runs(range.start, bytes, &mut runs);
    }
    // Holes first: punching one flushes what is dirty around it, and so far nothing is.
    let mut zero_bytes = 0;
    for run in runs.iter_mut().filter(|run| run.zero) {
        match clear(target, run.offset, run.bytes.len() as u64)
            .map_err(|source| explain(run.offset, source))?
        {
            true => zero_bytes += run.bytes.len() as u64,
            false => run.zero = false,
        }
    }
    for run in runs.iter().filter(|run| !run.zero) {
        target.write_all_at(run.bytes, run.offset).map_err(|source| explain(run.offset, source))?;
    }
    Ok(zero_bytes)
}

/// Makes ranges read as zeros. What the target has there is read, which takes little where nothing is stored. Returns how many bytes take no
/// space afterwards.
pub(super) fn clear_all(target: &File, ranges: &[Range<u64>]) -> Result<u64, CaptureError> {
    let mut zero_bytes = 0;
    for range in ranges {
        match clear(target, range.start, length(range)).map_err(|source| explain(range.start, source))? {
            true => zero_bytes += length(range),
            false => {
                for offset in range.clone().step_by(PAGE_BYTES as usize) {
                    target.write_all_at(&ZERO_PAGE, offset).map_err(|source| explain(offset, source))?;
                }
            }
        }
    }
    Ok(zero_bytes)
}

/// Lets the kernel begin to write a range of a file to the disk; one of no length is the whole file. Only a hint: whoever needs the
/// bytes there syncs.
pub fn start_writing_out(target: &File, range: Range<u64>) {
    let (offset, length) = (range.start as libc::off64_t, length(&range) as libc::off64_t);
    // SAFETY: the call takes numbers only.
    unsafe { libc::sync_file_range(target.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
}

fn explain(offset: u64, source: io::Error) -> CaptureError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CaptureError::NoSpace,
        _ => CaptureError::Write { offset, source },
    }
}

/// Neighbouring pages that are written together, or are all zero.
struct Run<'a> {
    offset: u64,
    bytes: &'a [u8],
    zero: bool,
}

/// Splits bytes into runs. Zeros stand alone when they are long enough for a hole or when there is nothing else.
fn split_runs<'a>(offset: u64, bytes: &'a [u8], runs: &mut Vec<Run<'a>>) {
    let is_zero = |page: &[u8; PAGE_BYTES as usize]| *page == ZERO_PAGE;
    let (pages, _) = bytes.as_chunks::<{ PAGE_BYTES as usize }>();
    let mut push = |range: Range<usize>, zero: bool| {
        if !range.is_empty() {
            runs.push(Run { offset: offset + range.start as u64, bytes: &bytes[range], zero });
        }
    };
    // Bytes from `written` to `start` are to be written; nothing is decided about those after.
    let (mut written, mut start) = (0, 0);
    for run in pages.chunk_by(|one, next| is_zero(one) == is_zero(next)) {
        let end = start + run.len() * PAGE_BYTES as usize;
        if is_zero(&run[0]) && (end - start >= HOLE_BYTES_MIN || end - start == bytes.len()) {
            push(written..start, false);
            push(start..end, true);
            written = end;
        }
        start = end;
    }
    push(written..start, false);
}

/// Makes a range read as zeros without storing any. Returns `false` when zeros have to be written.
fn clear(target: &File, offset: u64, length: u64) -> io::Result<bool> {
    // Whether there is a hole already is not asked: see `extents`.
    if reads_as_zeros(target, offset, length)? {
        return Ok(true);
    }
    if length < HOLE_BYTES_MIN as u64 {
        return Ok(false);
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(target, flags, offset, length) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn reads_as_zeros(target: &File, offset: u64, length: u64) -> io::Result<bool> {
    let mut buffer = [1; HOLE_BYTES_MIN];
    let end = offset + length;
    for at in (offset..end).step_by(buffer.len()) {
        let read = &mut buffer[..(end - at).min(HOLE_BYTES_MIN as u64) as usize];
        target.read_exact_at(read, at)?;
        if read.as_chunks::<{ PAGE_BYTES as usize }>().0.iter().any(|page| *page != ZERO_PAGE) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_stand_alone_when_they_are_many_or_all() {
        let page = PAGE_BYTES as usize;
        let long = HOLE_BYTES_MIN / page;
        // Each letter is a page: `0` of zeros, `x` of data, `-` a run of zeros just long enough for a hole.
        let check = |pages: &str, expected: &[(usize, usize, bool)]| {
            let mut bytes = Vec::new();
            for page_kind in pages.chars() {
                match page_kind {
                    '0' => bytes.extend(vec![0; page]),
                    'x' => bytes.extend([vec![0; page - 1], vec![1]].concat()),
                    _ => bytes.extend(vec![0; HOLE_BYTES_MIN]),
                }
            }
            let mut runs = Vec::new();
            split_runs(0, &bytes, &mut runs);
            let shape: Vec<_> = runs
                .iter()
                .map(|run| (run.offset as usize / page, run.bytes.len() / page, run.zero))
                .collect();
            assert_eq!(shape, expected, "{pages}");
        };
        check("", &[]);
        check("x", &[(0, 1, false)]);
        check("00", &[(0, 2, true)]);
        check("0x00x0", &[(0, 6, false)]);
        check("-", &[(0, long, true)]);
        check("x-x", &[(0, 1, false), (1, long, true), (1 + long, 1, false)]);
        check("-0xx", &[(0, long + 1, true), (long + 1, 2, false)]);
        check("x0x-", &[(0, 3, false), (3, long, true)]);
    }
}
