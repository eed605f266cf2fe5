//! Which pages of a guest's RAM its VM has written since the RAM file was mapped privately.
//!
//! The kernel replaces a page of a private file mapping by an anonymous one at the first write, so "present or
//! swapped, and not of a file" is "changed". Linux 6.7 answers that for a whole range in one call
//! (`PAGEMAP_SCAN`); older kernels are asked page by page through `/proc/PID/pagemap`. What is reported in excess is
//! harmless: its bytes are read from the process all the same. Where the guest gave memory back, pages that are not
//! there are zeros, whatever the file holds.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::PAGE_BYTES;
use crate::mapping::{GuestMemory, Part, Sharing};
use crate::ranges;

/// Regions taken from the kernel per call: 96 KiB of buffer.
const REGIONS_PER_CALL: usize = 4096;

/// Pages taken from `/proc/PID/pagemap` per read: 256 KiB of buffer, 128 MiB of RAM.
const ENTRIES_PER_READ: usize = 32768;

/// Why the changed pages could not be told.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The VMM ended before or while it was asked. No answer can be trusted.
    #[error("the VMM process {pid} has ended")]
    Gone {
        /// The process asked.
        pid: u32,
    },
    /// The RAM is shared with its file: it has no private pages, and the file is what the guest sees.
    #[error("the memory of process {pid} is shared with its file and needs no capture")]
    Shared {
        /// The process asked.
        pid: u32,
    },
    /// The kernel refused.
    #[error("could not scan the memory of process {pid}")]
    Scan {
        /// The process asked.
        pid: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What differs, or may differ, from the file. Ranges are ascending, apart from each other, in whole pages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// What the process holds pages of its own for.
    pub(crate) held: Vec<Range<u64>>,
    /// What it holds nothing for and is not of the file any more: zeros.
    pub(crate) zero: Vec<Range<u64>>,
}

impl Changes {
    /// Both together.
    pub(crate) fn all(&self) -> Vec<Range<u64>> {
        ranges::union(&self.held, &self.zero)
    }
}

impl GuestMemory {
    /// Ranges of the RAM (offsets from its beginning) that differ, or may differ, from the file: ascending, apart from
    /// each other, in whole pages. The VM should be paused; of one that runs, the answer is out of date.
    pub fn changed(&self) -> Result<Vec<Range<u64>>, ScanError> {
        Ok(self.changes()?.all())
    }

    pub(crate) fn changes(&self) -> Result<Changes, ScanError> {
        if self.sharing() == Sharing::Shared {
            return Err(ScanError::Shared { pid: self.pid() });
        }
        let held = self.held()?;
        let zero = ranges::difference(self.given_back(), &held);
        Ok(Changes { held, zero })
    }

    /// What the process holds pages of its own for.
    fn held(&self) -> Result<Vec<Range<u64>>, ScanError> {
        self.scan(Pages::Held)
    }

    /// Where the process has the kernel's one page of zeros, which needs no reading. Nothing where the kernel cannot tell.
    pub(crate) fn held_zeros(&self) -> Result<Vec<Range<u64>>, ScanError> {
        self.scan(Pages::Zeros)
    }

    /// Ranges that the process has in place as they are in the file: what the guest read, and what lies close to it. Like all
    /// that a running machine is asked, out of date at once.
    pub fn in_place(&self) -> Result<Vec<Range<u64>>, ScanError> {
        self.scan(Pages::OfFile)
    }

    fn scan(&self, pages: Pages) -> Result<Vec<Range<u64>>, ScanError> {
        let mut ranges = Vec::new();
        for part in self.parts() {
            let scanned =
                self.scan_by_ioctl(part, pages, &mut ranges).and_then(|is_known| match (is_known, pages) {
                    (true, _) | (false, Pages::Zeros) => Ok(()),
                    (false, _) => self.scan_by_pagemap(part, pages, &mut ranges),
                });
            scanned.map_err(|source| {
                // Some kernels refuse to scan a process that has ended; that it ended is the reason to give.
                if self.is_alive() { ScanError::Scan { pid: self.pid(), source } } else { self.gone() }
            })?;
        }
        // On other kernels an ended process has no pages at all, which looks like "nothing changed". Alive now means alive then.
        if self.is_alive() { Ok(ranges) } else { Err(self.gone()) }
    }

    fn gone(&self) -> ScanError {
        ScanError::Gone { pid: self.pid() }
    }

    /// Adds what a part holds, or returns `false` where the kernel does not know the call.
    fn scan_by_ioctl(&self, part: &Part, pages: Pages, ranges: &mut Vec<Range<u64>>) -> io::Result<bool> {
        static UNKNOWN_TO_KERNEL: AtomicBool = AtomicBool::new(false);
        if UNKNOWN_TO_KERNEL.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let end = part.address + part.length;
        let mut regions = vec![PageRegion::default(); REGIONS_PER_CALL];
        let mut start = part.address;
        while start < end {
            let mut question = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                start,
                end,
                regions: regions.as_mut_ptr() as u64,
                regions_length: regions.len() as u64,
                category_inverted: if pages == Pages::OfFile { 0 } else { IS_FILE },
                category_mask: match pages {
                    Pages::Held => IS_FILE,
                    Pages::Zeros => IS_FILE | IS_ZERO,
                    Pages::OfFile => IS_FILE | IS_PRESENT,
                },
                category_anyof_mask: IS_PRESENT | IS_SWAPPED,
                ..ScanArguments::default()
            };
            // SAFETY: the argument is a `struct pm_scan_arg` of the size it states; the kernel writes at most
            // `regions_length` entries to `regions`, which live until after the call.
            let filled = unsafe { libc::ioctl(self.pagemap().as_raw_fd(), PAGEMAP_SCAN, &raw mut question) };
            if filled < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::ENOTTY) if start == part.address => {
                        UNKNOWN_TO_KERNEL.store(true, Ordering::Relaxed);
                        return Ok(false);
                    }
                    _ => return Err(error),
                }
            }
            let filled = &regions[..regions.len().min(filled as usize)];
            // Linux 6.18 leaves `walk_end` behind the last region when its own buffer of 512 regions ran over, so go by
            // whichever is further: what lies before a reported region has been walked.
            let walked = question.walk_end.max(filled.last().map_or(0, |last| last.end));
            if walked <= start {
                return Err(io::Error::other("the kernel's scan of the memory does not advance"));
            }
            for region in filled {
                if region.start < start || region.end > end {
                    return Err(io::Error::other("the kernel's scan of the memory is out of order"));
                }
                let offset = |address: u64| part.offset + (address - part.address);
                append(ranges, offset(region.start)..offset(region.end));
                start = region.end;
            }
            start = walked;
        }
        Ok(true)
    }

    fn scan_by_pagemap(&self, part: &Part, pages: Pages, ranges: &mut Vec<Range<u64>>) -> io::Result<()> {
        const ENTRY_BYTES: usize = 8;
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const OF_FILE: u64 = 1 << 61;
        let is_wanted = |entry: u64| match pages {
            Pages::OfFile => entry & PRESENT != 0 && entry & OF_FILE != 0,
            Pages::Held | Pages::Zeros => entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0,
        };
        let count = part.length / PAGE_BYTES;
        let first = part.address / PAGE_BYTES;
        let mut buffer = vec![0; ENTRIES_PER_READ * ENTRY_BYTES];
        let mut page = 0;
        while page < count {
            let wanted = buffer.len().min((count - page) as usize * ENTRY_BYTES);
            let read = self.pagemap().read_at(&mut buffer[..wanted], (first + page) * ENTRY_BYTES as u64)?;
            if read < ENTRY_BYTES {
                // End of file is how the kernel says that the process is gone; `held` asks again and reports it.
                return Ok(());
            }
            for entry in buffer[..read].as_chunks::<ENTRY_BYTES>().0 {
                if is_wanted(u64::from_ne_bytes(*entry)) {
                    let offset = part.offset + page * PAGE_BYTES;
                    append(ranges, offset..offset + PAGE_BYTES);
                }
                page += 1;
            }
        }
        Ok(())
    }
}

/// Adds a range after all others, growing the last one when they touch.
fn append(ranges: &mut Vec<Range<u64>>, next: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => ranges.push(next),
    }
}

/// Which pages are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    Held,
    Zeros,
    OfFile,
}

const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = (0b11 << 30)
    | ((size_of::<ScanArguments>() as libc::c_ulong) << 16)
    | ((b'f' as libc::c_ulong) << 8)
    | 16;

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Default, Clone)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// Maps `file` privately into this very process for as long as the value lives.
    struct Mapped {
        address: *mut u8,
        length: usize,
    }

    impl Mapped {
        fn new(file: &File, length: usize) -> Mapped {
            use rustix::mm::{MapFlags, ProtFlags};
            // SAFETY: a fresh mapping at an address the kernel picks; nothing else refers to it.
            let address = unsafe {
                rustix::mm::mmap(
                    std::ptr::null_mut(),
                    length,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE,
                    file,
                    0,
                )
            };
            Mapped { address: address.unwrap().cast(), length }
        }

        fn write(&mut self, offset: usize, value: u8) {
            assert!(offset < self.length);
            // SAFETY: inside the mapping, which lives as long as `self`.
            unsafe { self.address.add(offset).write_volatile(value) };
        }

        fn read(&self, offset: usize) -> u8 {
            assert!(offset < self.length);
            // SAFETY: inside the mapping, which lives as long as `self`.
            unsafe { self.address.add(offset).read_volatile() }
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: this value made the mapping and nothing borrows from it.
            unsafe { rustix::mm::munmap(self.address.cast(), self.length) }.unwrap();
        }
    }

    #[test]
    fn both_ways_of_asking_agree() {
        let length = 512 * PAGE_BYTES;
        let file = tempfile::tempfile().unwrap();
        file.set_len(length).unwrap();
        file.write_all_at(&[7; 3 * PAGE_BYTES as usize], 100 * PAGE_BYTES).unwrap();
        let mut mapped = Mapped::new(&file, length as usize);
        let memory = GuestMemory::find(std::process::id(), &file).unwrap();
        let [part] = *memory.parts() else { panic!("{memory:?}") };
        assert_eq!(part, Part { offset: 0, address: mapped.address as u64, length });
        assert_eq!(memory.changed().unwrap(), []);

        for page in [0, 1, 2, 100, 200, 201, 511] {
            mapped.write(page * PAGE_BYTES as usize + 17, page as u8);
        }
        assert_eq!(mapped.read(101 * PAGE_BYTES as usize), 7, "a page that was only read is of the file");
        let pages = |from: u64, to: u64| from * PAGE_BYTES..to * PAGE_BYTES;
        let expected = vec![pages(0, 3), pages(100, 101), pages(200, 202), pages(511, 512)];
        let (mut by_pagemap, mut by_ioctl) = (Vec::new(), Vec::new());
        memory.scan_by_pagemap(&part, Pages::Held, &mut by_pagemap).unwrap();
        assert_eq!(by_pagemap, expected);
        if memory.scan_by_ioctl(&part, Pages::Held, &mut by_ioctl).unwrap() {
            assert_eq!(by_ioctl, expected);
        } else {
            eprintln!("SKIPPED: this kernel has no PAGEMAP_SCAN; only /proc/PID/pagemap was tried");
        }
        let in_place = memory.in_place().unwrap();
        let is_in_place = |page: u64| in_place.iter().any(|range| range.contains(&(page * PAGE_BYTES)));
        assert!(is_in_place(101), "a page that was read is in place: {in_place:?}");
        assert!(
            !is_in_place(100) && !is_in_place(511),
            "a page that was written is not of the file: {in_place:?}"
        );
        assert!(!is_in_place(400), "a page that was left alone is not in place: {in_place:?}");
    }

    #[test]
    fn more_regions_than_one_call_returns() {
        let pages = 3 * REGIONS_PER_CALL;
        let file = tempfile::tempfile().unwrap();
        file.set_len(pages as u64 * PAGE_BYTES).unwrap();
        let mut mapped = Mapped::new(&file, pages * PAGE_BYTES as usize);
        let expected: Vec<_> =
            (0..pages as u64).step_by(2).map(|page| page * PAGE_BYTES..(page + 1) * PAGE_BYTES).collect();
        for range in &expected {
            mapped.write(range.start as usize, 1);
        }
        let memory = GuestMemory::find(std::process::id(), &file).unwrap();
        let check = |ranges: Vec<Range<u64>>| {
            let differ = ranges.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert_eq!((ranges.len(), differ), (expected.len(), None));
        };
        let mut by_pagemap = Vec::new();
        memory.scan_by_pagemap(&memory.parts()[0], Pages::Held, &mut by_pagemap).unwrap();
        check(by_pagemap);
        check(memory.changed().unwrap());
    }
}
