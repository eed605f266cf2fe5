//! Where the bytes of a file lie on the disk, and where it has none.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::SeekFrom;
use rustix::ioctl::{Direction, Opcode, Updater, opcode};

/// `FIEMAP_EXTENT_LAST`.
const LAST: u32 = 0x1;

/// Extents asked for at once: 14 KiB of stack.
pub const EXTENTS_PER_CALL: usize = 256;

const FIEMAP_FLAG_SYNC: u32 = 1;

/// A piece of a file that lies in one piece on the disk: `struct fiemap_extent` of `linux/fiemap.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct RawExtent {
    /// Where it is in the file.
    pub logical: u64,
    /// Where it is on the disk.
    pub physical: u64,
    /// Bytes.
    pub length: u64,
    reserved64: [u64; 2],
    /// `FIEMAP_EXTENT_…`
    pub flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` of `linux/fiemap.h`, with its extents.
#[repr(C)]
struct ExtentMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    capacity: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_PER_CALL],
}

/// `_IOWR('f', 11, struct fiemap)`, of which only the 32 bytes before the extents count.
const FS_IOC_FIEMAP: Opcode = opcode::from_components(Direction::ReadWrite, b'f', 11, 32);

/// The first extents of `file` that end after `start`, at most [`EXTENTS_PER_CALL`], after writing back what is dirty.
fn extents(file: impl AsFd, start: u64) -> io::Result<Vec<RawExtent>> {
    let mut map = ExtentMap {
        start,
        length: u64::MAX - start,
        flags: FIEMAP_FLAG_SYNC,
        mapped: 0,
        capacity: EXTENTS_PER_CALL as u32,
        reserved: 0,
        extents: [RawExtent::default(); EXTENTS_PER_CALL],
    };
    // SAFETY: the argument is a `struct fiemap` followed by as many extents as `capacity` says; the kernel writes no
    // more than those.
    unsafe { rustix::ioctl::ioctl(file, Updater::<FS_IOC_FIEMAP, ExtentMap>::new(&mut map)) }?;
    Ok(map.extents[..EXTENTS_PER_CALL.min(map.mapped as usize)].to_vec())
}

/// Calls `visit` for the extents of a file in order until it returns `false`. Returns `false` where the file system
/// has no extents to show. What is dirty is written back first.
pub fn for_each_extent(file: &File, mut visit: impl FnMut(&RawExtent) -> bool) -> io::Result<bool> {
    use rustix::io::Errno;
    let mut start = 0;
    loop {
        let extents = match extents(file, start) {
            Ok(extents) => extents,
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR) => continue,
                Some(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL) if start == 0 => {
                    return Ok(false);
                }
                _ => return Err(error),
            },
        };
        for extent in &extents {
            if !visit(extent) || extent.flags & LAST != 0 {
                return Ok(true);
            }
        }
        match extents.last() {
            Some(last) if last.logical.saturating_add(last.length) > start => {
                start = last.logical + last.length
            }
            _ => return Ok(true),
        }
    }
}

/// Where a file is not a hole: ascending, apart from each other, within `length`. What was written goes to the disk first.
///
/// Asked by extents. Seeking is no way to find data where files are clones: XFS of Linux before 6.9 passes over data that lies
/// beside a hole, when something near was written and the data is not in memory.
pub fn data_ranges(file: &File, length: u64) -> io::Result<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let told = for_each_extent(file, |extent| {
        let range = extent.logical..extent.logical.saturating_add(extent.length).min(length);
        match ranges.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => ranges.push(range),
        }
        extent.logical < length
    })?;
    // A file system without extents, such as one in memory, has no clones either.
    if told { Ok(ranges) } else { seek_data(file, length) }
}

/// The same by what the file system says at once, without writing anything. What it calls a hole may be data.
pub(crate) fn seek_data(file: &File, length: u64) -> io::Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < length {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < length => start,
            Ok(_) | Err(rustix::io::Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(length);
        if end <= start {
            return Err(io::Error::other("the file system reports an empty extent"));
        }
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}
