//! Copies the pages a paused VM has changed over a clone of the file its RAM came from.
//!
//! The VM stands still meanwhile, so this is built for speed: pages are fetched a megabyte at a time with as many
//! scattered ranges as one call takes, neighbours are written together, and two cores take turns at reading and
//! writing. Long runs of zeros become holes. The target must hold the base already; after an error it holds a mix of
//! old and new pages and must be deleted.

mod compared;
mod reading;
mod writing;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::changed::ScanError;
use crate::mapping::{GuestMemory, Part};
use crate::ranges::length;
use crate::sums::PageSums;
use crate::{PAGE_BYTES, parallel};
pub use compared::capture_compared;
use reading::read;
pub use writing::start_writing_out;
use writing::{clear_all, write};

/// Bytes fetched from the VMM in one call: large enough to make calls rare, small enough to stay in the cache until
/// they are written out.
const WINDOW_BYTES: u64 = 1 << 20;

/// Ranges fetched in one call; the kernel takes no more (`IOV_MAX`).
const WINDOW_RANGES: usize = 1024;

/// Unchanged pages between two changed ranges that are copied along. One more write takes as long as copying two pages,
/// and a file in fewer pieces is synced, cloned and read back many times faster.
const GAP_BYTES_MAX: u64 = 2 * PAGE_BYTES;

/// What a capture did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The changed ranges: ascending, apart from each other, in whole pages. Outside of them the target is the base.
    pub ranges: Vec<Range<u64>>,
    /// Bytes in those ranges.
    pub bytes: u64,
    /// Bytes found to be zeros, in and right between those ranges, that take no space in the target.
    pub zero_bytes: u64,
    /// Checksums of the target where it differs from the base, and perhaps of some pages beside, if written out
    /// [`WriteOut::Later`]. Otherwise there is time to make them while the disk is at work.
    pub sums: Option<PageSums>,
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
    /// The base could not be read.
    #[error("could not read the base of the memory at offset {offset:#x}")]
    Base {
        /// Offset in the file.
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
    check_length(memory, target)?;
    let began = Instant::now();
    let changes = memory.changes()?;
    let scan_time = began.elapsed();

    let began = Instant::now();
    let written = Written::clearing(target, &changes.zero, write_out)?;
    let windows = windows(&joined(&changes.held), memory.parts());
    parallel::for_each(
        windows.len(),
        || vec![0; WINDOW_BYTES as usize],
        |buffer, index| {
            let window = &windows[index];
            let bytes = window.iter().map(length).sum::<u64>() as usize;
            read(memory, window, &mut buffer[..bytes])?;
            written.write(target, window, &buffer[..bytes])
        },
    )?;
    written.captured(memory, changes.all(), scan_time, began)
}

/// What has been written to a target so far.
struct Written {
    zero_bytes: AtomicU64,
    /// `None` where the pages go to the disk at once.
    sums: Option<Mutex<PageSums>>,
}

impl Written {
    /// Begins with what reads as zeros.
    fn clearing(target: &File, zero: &[Range<u64>], write_out: WriteOut) -> Result<Self, CaptureError> {
        let sums = (write_out == WriteOut::Later).then(|| {
            let mut sums = PageSums::default();
            sums.add_zeros(zero);
            Mutex::new(sums)
        });
        Ok(Self { zero_bytes: AtomicU64::new(clear_all(target, zero)?), sums })
    }

    /// Writes the bytes of `ranges` to their places.
    fn write(&self, target: &File, ranges: &[Range<u64>], bytes: &[u8]) -> Result<(), CaptureError> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Ok(()) };
        self.zero_bytes.fetch_add(write(target, ranges, bytes)?, Ordering::Relaxed);
        match &self.sums {
            None => start_writing_out(target, first.start..last.end),
            Some(all) => {
                let mut sums = PageSums::default();
                sums.add(ranges, bytes);
                all.lock().unwrap_or_else(PoisonError::into_inner).append(sums);
            }
        }
        Ok(())
    }

    fn captured(
        self,
        memory: &GuestMemory,
        ranges: Vec<Range<u64>>,
        scan_time: Duration,
        began: Instant,
    ) -> Result<Captured, CaptureError> {
        // What was read was asked for by process id. The process found at first still being there proves who answered.
        if !memory.is_alive() {
            return Err(CaptureError::Gone { pid: memory.pid() });
        }
        Ok(Captured {
            bytes: ranges.iter().map(length).sum(),
            zero_bytes: self.zero_bytes.into_inner(),
            ranges,
            sums: self.sums.map(|sums| sums.into_inner().unwrap_or_else(PoisonError::into_inner)),
            scan_time,
            copy_time: began.elapsed(),
        })
    }
}

fn check_length(memory: &GuestMemory, file: &File) -> Result<(), CaptureError> {
    match file.metadata().map_err(|source| CaptureError::Write { offset: 0, source })?.len() {
        actual if actual == memory.length() => Ok(()),
        actual => Err(CaptureError::TargetLength { expected: memory.length(), actual }),
    }
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

/// Cuts the ranges into windows of at most [`WINDOW_BYTES`] and [`WINDOW_RANGES`], each range within one part.
fn windows(ranges: &[Range<u64>], parts: &[Part]) -> Vec<Vec<Range<u64>>> {
    let mut windows = Vec::new();
    let mut window = Vec::new();
    let mut room = WINDOW_BYTES;
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let border = parts.iter().map(Part::end).find(|end| start < *end).unwrap_or(range.end);
            let end = range.end.min(border).min(start + room);
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn windows_cover_the_ranges_within_bounds(
            gaps in proptest::collection::vec((1_u64..4, 1_u64..600), 0..3000),
            border in 1_u64..100_000,
        ) {
            let mut at = 0;
            let mut ranges = Vec::new();
            for (gap, pages) in gaps {
                at += gap * PAGE_BYTES;
                ranges.push(at..at + pages * PAGE_BYTES);
                at += pages * PAGE_BYTES;
            }
            let border = border * PAGE_BYTES;
            let parts = [(0, border), (border, at + border)].map(|(offset, length)| Part { offset, address: 0, length });
            let windows = windows(&ranges, &parts);
            for window in &windows {
                prop_assert!(!window.is_empty() && window.len() <= WINDOW_RANGES);
                prop_assert!(window.iter().map(length).sum::<u64>() <= WINDOW_BYTES);
                prop_assert!(window.iter().all(|range| range.end <= border || range.start >= border));
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
}
