//! Captures a memory that was served on demand.
//!
//! Such memory is anonymous, so the kernel cannot tell what was written from what was put in place. Pages the process holds
//! are compared with the base, which has to be complete by now. Pages it does not hold are those of the base, or zeros
//! where the guest gave them back. Nothing absent is read: that would be a fault of its own.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::reading::read;
use super::{CaptureError, Captured, WINDOW_BYTES, WriteOut, Written, check_length, windows};
use crate::extents::data_ranges;
use crate::mapping::GuestMemory;
use crate::ranges::{self, length};
use crate::sums::intersection;
use crate::{PAGE_BYTES, parallel};

const PAGE: usize = PAGE_BYTES as usize;

/// Copies what the VM of `memory`, which is served on demand, changed into `target`, a clone of `base`: the complete memory
/// that it is served from. The VM must be paused. When this returns `Ok`, `target` reads as the guest's memory does; it is not
/// yet synced to disk.
pub fn capture_compared(
    memory: &GuestMemory,
    base: &File,
    target: &File,
    write_out: WriteOut,
) -> Result<Captured, CaptureError> {
    check_length(memory, base)?;
    check_length(memory, target)?;
    let began = Instant::now();
    let changes = memory.changes()?;
    let zeros = memory.held_zeros()?;
    let scan_time = began.elapsed();

    let began = Instant::now();
    // Zeros differ from the base only where that has data, and reading them would take as long as reading anything else.
    let data = match zeros.is_empty() {
        true => Vec::new(),
        false => pages_with_data(base, memory.length())?,
    };
    let zero = ranges::union(&changes.zero, &intersection(&zeros, &data));
    let written = Written::clearing(target, &zero, write_out)?;
    let windows = windows(&ranges::difference(&changes.held, &zeros), memory.parts());
    let changed = Mutex::new(Vec::new());
    parallel::for_each(
        windows.len(),
        || (vec![0; WINDOW_BYTES as usize], vec![0; WINDOW_BYTES as usize]),
        |(held, packed), index| {
            let window = &windows[index];
            let bytes = window.iter().map(length).sum::<u64>() as usize;
            let (held, packed) = (&mut held[..bytes], &mut packed[..bytes]);
            read(memory, window, held)?;
            read_base(base, window, packed)?;
            let (pieces, bytes) = keep_changed(window, held, packed);
            written.write(target, &pieces, &held[..bytes])?;
            changed.lock().unwrap_or_else(PoisonError::into_inner).extend(pieces);
            Ok::<(), CaptureError>(())
        },
    )?;
    let mut changed = changed.into_inner().unwrap_or_else(PoisonError::into_inner);
    ranges::normalize(&mut changed);
    written.captured(memory, ranges::union(&changed, &zero), scan_time, began)
}

/// Where the base may hold anything but zeros. File systems may have blocks smaller than a page.
fn pages_with_data(base: &File, length: u64) -> Result<Vec<Range<u64>>, CaptureError> {
    let mut data = data_ranges(base, length).map_err(|source| CaptureError::Base { offset: 0, source })?;
    for range in &mut data {
        *range = range.start - range.start % PAGE_BYTES..range.end.next_multiple_of(PAGE_BYTES);
    }
    ranges::normalize(&mut data);
    Ok(data)
}

fn read_base(base: &File, window: &[Range<u64>], mut bytes: &mut [u8]) -> Result<(), CaptureError> {
    for range in window {
        let (piece, rest) = bytes.split_at_mut(length(range) as usize);
        base.read_exact_at(piece, range.start)
            .map_err(|source| CaptureError::Base { offset: range.start, source })?;
        bytes = rest;
    }
    Ok(())
}

/// Moves the pages of `held` that differ from `packed` to its beginning. Returns where they belong, neighbours together, and
/// how many bytes they are.
fn keep_changed(window: &[Range<u64>], held: &mut [u8], packed: &[u8]) -> (Vec<Range<u64>>, usize) {
    let mut pieces: Vec<Range<u64>> = Vec::new();
    let (mut at, mut kept) = (0, 0);
    for range in window {
        for offset in range.clone().step_by(PAGE) {
            if held[at..at + PAGE] != packed[at..at + PAGE] {
                held.copy_within(at..at + PAGE, kept);
                kept += PAGE;
                match pieces.last_mut() {
                    Some(last) if last.end == offset => last.end += PAGE_BYTES,
                    _ => pieces.push(offset..offset + PAGE_BYTES),
                }
            }
            at += PAGE;
        }
    }
    (pieces, kept)
}
