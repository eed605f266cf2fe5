//! What two clones still share, told by where their bytes lie on the disk.
//!
//! A clone begins with the very blocks of its source, and a write gives it new ones. So comparing block addresses
//! finds what changed without reading a byte. Whatever is not plainly the same block counts as changed: blocks not
//! yet placed, inline data, compressed data, preallocated space. Dirty pages are written back first, because XFS shows
//! the old block of a clone until then.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use memory::extents::for_each_extent;

/// Most extents compared. A file in more pieces counts as changed as a whole.
const EXTENTS_MAX: usize = 1 << 20;

const UNWRITTEN: u32 = 0x800;
const SHARED: u32 = 0x2000;
/// Unknown, delayed, encoded, encrypted, not aligned, inline, tail: the address does not stand for the bytes.
const NO_ADDRESS: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;

/// Ranges in which `changed`, a clone of `base`, may differ from it: ascending, apart from each other, up to the end of the
/// longer file. `base` must not be written meanwhile. Where the file system cannot tell, the whole file is returned.
pub fn changed_ranges(base: &File, changed: &File) -> io::Result<Vec<Range<u64>>> {
    let (old, new) = (base.metadata()?, changed.metadata()?);
    let longest = old.len().max(new.len());
    let shortest = old.len().min(new.len());
    let whole = Vec::from_iter((longest > 0).then_some(0..longest));
    if old.dev() != new.dev() {
        return Ok(whole);
    }
    let (Some(old), Some(new)) = (segments(base, shortest)?, segments(changed, shortest)?) else {
        return Ok(whole);
    };
    let mut ranges = differences(&old, &new);
    if shortest < longest {
        append(&mut ranges, shortest..longest);
    }
    Ok(ranges)
}

/// Bytes on disk that would be free if this file were deleted. Where the file system cannot tell, all it occupies.
pub fn unique_bytes(file: &File) -> io::Result<u64> {
    let mut bytes = 0;
    let known = for_each_extent(file, |extent| {
        if extent.flags & SHARED == 0 {
            bytes += extent.length;
        }
        true
    })?;
    if known { Ok(bytes) } else { Ok(file.metadata()?.blocks() * 512) }
}

/// Bytes on disk that files take together, counted as they are added: blocks that several of them share count once.
#[derive(Debug, Default)]
pub struct JointBytes {
    /// Where each range of blocks that was counted begins and ends. They do not touch.
    counted: BTreeMap<u64, u64>,
}

impl JointBytes {
    /// Counts a file: the bytes it takes that no earlier one does. Where the file system cannot tell, all it occupies.
    pub fn add(&mut self, file: &File) -> io::Result<u64> {
        let (mut bytes, mut blocks) = (0, Vec::new());
        let known = for_each_extent(file, |extent| {
            match extent.flags & NO_ADDRESS {
                0 => blocks.push(extent.physical..extent.physical.saturating_add(extent.length)),
                _ => bytes += extent.length,
            }
            blocks.len() < EXTENTS_MAX
        })?;
        if !known || blocks.len() >= EXTENTS_MAX {
            return Ok(file.metadata()?.blocks() * 512);
        }
        Ok(bytes + blocks.into_iter().map(|range| self.count(range)).sum::<u64>())
    }

    /// How much of a range was not counted yet; now it is.
    fn count(&mut self, range: Range<u64>) -> u64 {
        let (mut joint, mut fresh) = (range.clone(), range.end - range.start);
        // From the last that could touch it backwards.
        while let Some((&start, &end)) = self.counted.range(..=joint.end).next_back() {
            if end < joint.start {
                break;
            }
            self.counted.remove(&start);
            fresh -= end.min(range.end).saturating_sub(start.max(range.start));
            joint = joint.start.min(start)..joint.end.max(end);
        }
        self.counted.insert(joint.start, joint.end);
        fresh
    }
}

/// What a part of a file is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Nothing: it reads as zeros.
    Hole,
    /// Blocks at this distance from their place in the file.
    Blocks { distance: u64 },
    /// Bytes that have no address to compare.
    Opaque,
}

type Segment = (Range<u64>, Content);

/// A file as segments that cover `0..length` without gaps; `None` where that cannot be told.
fn segments(file: &File, length: u64) -> io::Result<Option<Vec<Segment>>> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut at = 0;
    let known = for_each_extent(file, |extent| {
        let range = extent.logical.clamp(at, length)
            ..(extent.logical.saturating_add(extent.length)).clamp(at, length);
        if at < range.start {
            segments.push((at..range.start, Content::Hole));
        }
        at = range.end;
        let content = match extent.flags & (NO_ADDRESS | UNWRITTEN) {
            0 => Content::Blocks { distance: extent.physical.wrapping_sub(extent.logical) },
            _ => Content::Opaque,
        };
        if !range.is_empty() {
            segments.push((range, content));
        }
        at < length && segments.len() < EXTENTS_MAX
    })?;
    if !known || segments.len() >= EXTENTS_MAX {
        return Ok(None);
    }
    if at < length {
        segments.push((at..length, Content::Hole));
    }
    Ok(Some(segments))
}

/// Where two coverings of the same length differ.
fn differences(old: &[Segment], new: &[Segment]) -> Vec<Range<u64>> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut ranges = Vec::new();
    while let (Some((left, one)), Some((right, other))) = (old.peek(), new.peek()) {
        let common = left.start.max(right.start)..left.end.min(right.end);
        if one != other || *one == Content::Opaque {
            append(&mut ranges, common);
        }
        if left.end <= right.end {
            old.next();
        } else {
            new.next();
        }
    }
    ranges
}

fn append(ranges: &mut Vec<Range<u64>>, next: Range<u64>) {
    match ranges.last_mut() {
        _ if next.is_empty() => {}
        Some(last) if last.end >= next.start => last.end = last.end.max(next.end),
        _ => ranges.push(next),
    }
}

#[cfg(test)]
mod tests;
