//! Copies the pages a paused VM has changed over a clone of the file its RAM came from.
//!
//! The VM stands still meanwhile, so this is built for speed: pages are fetched a megabyte at a time with as many
//! scattered ranges as one call takes, neighbours are written together, and two cores take turns at reading and
//! writing. Long runs of zeros become holes. The target must hold the base already; after an error it holds a mix of
//! old and new pages and must be deleted.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, SeekFrom};

use crate::changed::ScanError;
use crate::mapping::GuestMemory;
use crate::{PAGE_BYTES, parallel};

/// Bytes fetched from the VMM in one call: large enough to make calls rare, small enough to stay in the cache until
/// they are written out.
const WINDOW_BYTES: u64 = 1 << 20;

/// Ranges fetched in one call; the kernel takes no more (`IOV_MAX`).
const WINDOW_RANGES: usize = 1024;

/// Unchanged pages between two changed ranges that are copied along. One more write takes as long as copying two pages,
/// and a file in fewer pieces is synced, cloned and read back many times faster.
const GAP_BYTES_MAX: u64 = 2 * PAGE_BYTES;

/// Shortest run of zeros that becomes a hole. Punching one takes as long as writing some 100 KiB, so shorter runs are
/// written, unless the target is a hole there already.
const HOLE_BYTES_MIN: usize = 16 * PAGE_BYTES as usize;

const ZERO_PAGE: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// What a capture did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The changed ranges: ascending, apart from each other, in whole pages. Outside of them the target is the base.
    pub ranges: Vec<Range<u64>>,
    /// Bytes in those ranges.
    pub bytes: u64,
    /// Bytes found to be zeros, in and right between those ranges, that take no space in the target.
    pub zero_bytes: u64,
    /// Time to ask the kernel which pages changed.
    pub scan_time: Duration,
    /// Time to copy them.
    pub copy_time: Duration,
}

/// Why the memory could not be captured. The target is unusable.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The changed pages could not be told.
    #[error("could not find the changed pages")]
    Scan(#[from] ScanError),
    /// The VMM ended while its memory was read.
    #[error("the VMM process {pid} ended while its memory was read")]
    Gone {
        /// The process read from.
        pid: u32,
    },
    /// The target is not a clone of the base: its length differs.
    #[error("the target has {actual} bytes where the memory has {expected}")]
    TargetLength {
        /// Bytes of guest memory.
        expected: u64,
        /// Bytes of the target file.
        actual: u64,
    },
    /// The memory of the VMM could not be read.
    #[error("could not read the memory of process {pid} at offset {offset:#x}")]
    Read {
        /// The process read from.
        pid: u32,
        /// Offset in the guest's memory.
        offset: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No space is left for the changed pages.
    #[error("no space left to save the changed memory")]
    NoSpace,
    /// The target could not be written.
    #[error("could not write the memory file at offset {offset:#x}")]
    Write {
        /// Offset in the file.
        offset: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// When captured pages go to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOut {
    /// As they are written: the file is about to be synced and nobody waits for the copy alone.
    AtOnce,
    /// When the kernel or a sync likes: a guest stands still until the copy is made.
    Later,
}

/// Copies what the VM of `memory` has changed into `target`, a clone of the file it was started from. The VM must be
/// paused. When this returns `Ok`, `target` reads as the guest's memory does; it is not yet synced to disk.
pub fn capture(memory: &GuestMemory, target: &File, write_out: WriteOut) -> Result<Captured, CaptureError> {
    let actual = target.metadata().map_err(|source| CaptureError::Write { offset: 0, source })?.len();
    if actual != memory.length() {
        return Err(CaptureError::TargetLength { expected: memory.length(), actual });
    }
    let began = Instant::now();
    let ranges = memory.changed()?;
    let scan_time = began.elapsed();

    let began = Instant::now();
    let windows = windows(&joined(&ranges));
    let zero_bytes = AtomicU64::new(0);
    parallel::for_each(
        windows.len(),
        || vec![0; WINDOW_BYTES as usize],
        |buffer, index| {
            let window = &windows[index];
            let bytes = window.iter().map(length).sum::<u64>() as usize;
            read(memory, window, &mut buffer[..bytes])?;
            zero_bytes.fetch_add(write(target, window, &buffer[..bytes])?, Ordering::Relaxed);
            if write_out == WriteOut::AtOnce
                && let (Some(first), Some(last)) = (window.first(), window.last())
            {
                start_writing_out(target, first.start..last.end);
            }
            Ok::<(), CaptureError>(())
        },
    )?;
    // The reads above go by process id. The process found at first still being there proves whom they asked.
    if !memory.is_alive() {
        return Err(CaptureError::Gone { pid: memory.pid() });
    }
    Ok(Captured {
        bytes: ranges.iter().map(length).sum(),
        zero_bytes: zero_bytes.into_inner(),
        ranges,
        scan_time,
        copy_time: began.elapsed(),
    })
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Joins ranges that are no more than [`GAP_BYTES_MAX`] apart.
fn joined(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start - last.end <= GAP_BYTES_MAX => last.end = range.end,
            _ => joined.push(range.clone()),
        }
    }
    joined
}

/// Cuts the ranges into windows of at most [`WINDOW_BYTES`] and [`WINDOW_RANGES`].
fn windows(ranges: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let mut windows = Vec::new();
    let mut window = Vec::new();
    let mut room = WINDOW_BYTES;
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + room);
            window.push(start..end);
            room -= end - start;
            start = end;
            if room == 0 || window.len() == WINDOW_RANGES {
                windows.push(std::mem::take(&mut window));
                room = WINDOW_BYTES;
            }
        }
    }
    if !window.is_empty() {
        windows.push(window);
    }
    windows
}

/// Fills `buffer` with the bytes of `window`, one range after the other.
fn read(memory: &GuestMemory, window: &[Range<u64>], buffer: &mut [u8]) -> Result<(), CaptureError> {
    let mut remote: Vec<libc::iovec> = window
        .iter()
        .map(|range| libc::iovec {
            iov_base: (memory.address() + range.start) as *mut libc::c_void,
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
        let offset = remote[first].iov_base as u64 - memory.address();
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

/// Writes the bytes of `window` to their places. Returns how many were left to holes.
fn write(target: &File, window: &[Range<u64>], buffer: &[u8]) -> Result<u64, CaptureError> {
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
        match clear(target, run.offset, run.bytes.len()).map_err(|source| explain(run.offset, source))? {
            true => zero_bytes += run.bytes.len() as u64,
            false => run.zero = false,
        }
    }
    for run in runs.iter().filter(|run| !run.zero) {
        target.write_all_at(run.bytes, run.offset).map_err(|source| explain(run.offset, source))?;
    }
    Ok(zero_bytes)
}

/// Only a hint: whoever needs the bytes on the disk syncs.
fn start_writing_out(target: &File, range: Range<u64>) {
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
fn clear(target: &File, offset: u64, length: usize) -> io::Result<bool> {
    match rustix::fs::seek(target, SeekFrom::Data(offset)) {
        Ok(data) if data >= offset + length as u64 => return Ok(true),
        Err(rustix::io::Errno::NXIO) => return Ok(true),
        _ => {}
    }
    if length < HOLE_BYTES_MIN {
        return Ok(false);
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(target, flags, offset, length as u64) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn windows_cover_the_ranges_within_bounds(gaps in proptest::collection::vec((1_u64..4, 1_u64..600), 0..3000)) {
            let mut at = 0;
            let mut ranges = Vec::new();
            for (gap, pages) in gaps {
                at += gap * PAGE_BYTES;
                ranges.push(at..at + pages * PAGE_BYTES);
                at += pages * PAGE_BYTES;
            }
            let windows = windows(&ranges);
            for window in &windows {
                prop_assert!(!window.is_empty() && window.len() <= WINDOW_RANGES);
                prop_assert!(window.iter().map(length).sum::<u64>() <= WINDOW_BYTES);
            }
            let mut joined: Vec<Range<u64>> = Vec::new();
            for piece in windows.into_iter().flatten() {
                match joined.last_mut() {
                    Some(last) if last.end == piece.start => last.end = piece.end,
                    _ => joined.push(piece),
                }
            }
            prop_assert_eq!(joined, ranges);
        }
    }

    #[test]
    fn near_ranges_are_joined_and_far_ones_are_not() {
        let page = PAGE_BYTES;
        let check = |second: Range<u64>, expected: &[(u64, u64)]| {
            let joined = joined(&[0..page, second]);
            let pages: Vec<_> = joined.iter().map(|range| (range.start / page, range.end / page)).collect();
            assert_eq!(pages, expected);
        };
        check(3 * page..4 * page, &[(0, 4)]);
        check(4 * page..5 * page, &[(0, 1), (4, 5)]);
        assert!(joined(&[]).is_empty());
    }

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
