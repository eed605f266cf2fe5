//! Puts pages in place: the one a guest waits for first, with those neighbours that are at hand.
//!
//! Nothing here waits. When the process is in the middle of giving memory back the kernel refuses until that event has been
//! read, and the caller comes again.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use super::PageError;
use super::regions::{HUGE_PAGE_BYTES, Regions};
use super::state::State;
use super::userfault::Userfault;
use crate::PAGE_BYTES;
use crate::stream::{CHUNK_BYTES, Chunk, PageMap};

/// Bytes around a page, from a multiple of it to the next, of which those that are stored are put in place with it. A guest
/// that touches a page touches its neighbours soon, and a fault takes as long as copying some ten pages; but what is never
/// touched takes memory.
pub(super) const AROUND_BYTES: u64 = 64 << 10;

/// The same for zeros, which take no memory.
const ZEROS_AROUND_BYTES: u64 = 512 << 10;

/// How often a huge page is tried before the host is taken to have none left.
const HUGE_TRIES: u32 = 3;

/// Why a page was not put in place.
#[derive(Debug)]
pub(super) enum Interrupt {
    /// Events have to be read first.
    Changing,
    /// There is no such process any more.
    Gone,
    /// It will not be.
    Failed(PageError),
}

/// What pages are put in place with. Borrows everything for one page.
pub(super) struct Placing<'a> {
    pub(super) userfault: &'a Userfault,
    pub(super) regions: &'a Regions,
    pub(super) state: &'a mut State,
}

impl Placing<'_> {
    /// Whether a page holds nothing but zeros, by the map of its chunk.
    pub(super) fn is_zero(&self, map: &PageMap, offset: u64) -> bool {
        !self.pages_in_chunk(offset).any(|page| map.contains(page))
    }

    /// Wakes who waits for a page that is in place.
    pub(super) fn wake(&self, offset: u64) -> Result<(), Interrupt> {
        let address = self.address_of(offset)?;
        self.userfault
            .wake(address, self.regions.page_bytes())
            .map_err(|errno| Interrupt::Failed(failed(offset, errno)))
    }

    /// Puts a page of zeros in place, and others right next to it.
    pub(super) fn place_zeros(&mut self, offset: u64, map: &PageMap) -> Result<(), Interrupt> {
        let step = self.regions.page_bytes();
        if step == HUGE_PAGE_BYTES {
            // The kernel has no shared huge page of zeros.
            let zeros = vec![0; step as usize];
            self.state.counts.zero_pages += step / PAGE_BYTES;
            return self.put(offset..offset + step, Some(&zeros));
        }
        let window = self.window(offset, ZEROS_AROUND_BYTES)?;
        let fits =
            |at: u64| !self.state.is_placed(at) && (self.state.is_removed(at) || self.is_zero(map, at));
        let (mut start, mut end) = (offset, offset + step);
        while start > window.start && fits(start - step) {
            start -= step;
        }
        while end < window.end && fits(end) {
            end += step;
        }
        self.state.counts.zero_pages += (end - start) / PAGE_BYTES;
        self.put(start..end, None)
    }

    /// Puts a stored page in place, and those around it that are stored and absent.
    pub(super) fn place_stored(&mut self, offset: u64, chunk: &Chunk) -> Result<(), Interrupt> {
        let step = self.regions.page_bytes();
        if step == HUGE_PAGE_BYTES {
            let page = offset..offset + step;
            self.state.counts.copied_pages += step / PAGE_BYTES;
            if self.pages_in_chunk(offset).all(|page| chunk.pages().contains(page))
                && let Some(bytes) = stored(chunk, &page)
            {
                return self.put(page, Some(bytes));
            }
            let mut bytes = vec![0; step as usize];
            let places = bytes.as_chunks_mut::<{ PAGE_BYTES as usize }>().0;
            for (place, page) in places.iter_mut().zip(self.pages_in_chunk(offset)) {
                if let Some(stored) = chunk.page(page) {
                    place.copy_from_slice(stored);
                }
            }
            return self.put(page, Some(&bytes));
        }
        let window = self.window(offset, AROUND_BYTES)?;
        let mut runs: Vec<Range<u64>> = Vec::new();
        for at in window.step_by(step as usize) {
            let fits =
                !self.state.is_placed(at) && !self.state.is_removed(at) && !self.is_zero(chunk.pages(), at);
            match runs.last_mut() {
                Some(last) if fits && last.end == at => last.end += step,
                _ if fits => runs.push(at..at + step),
                _ => {}
            }
        }
        // Whoever waits is woken before the others are copied.
        runs.sort_by_key(|run| !run.contains(&offset));
        for run in runs {
            let bytes = stored(chunk, &run).ok_or_else(|| Interrupt::Failed(failed(run.start, Errno::IO)))?;
            self.state.counts.copied_pages += (run.end - run.start) / PAGE_BYTES;
            self.put(run, Some(bytes))?;
        }
        Ok(())
    }

    /// Puts bytes, or zeros, in place over a range of one region. What is there already stays.
    fn put(&mut self, range: Range<u64>, bytes: Option<&[u8]>) -> Result<(), Interrupt> {
        let mut at = range.start;
        while at < range.end {
            let address = self.address_of(at)?;
            let put = match bytes.map(|bytes| &bytes[(at - range.start) as usize..]) {
                Some(bytes) if self.regions.page_bytes() == HUGE_PAGE_BYTES => self.copy_huge(address, bytes),
                Some(bytes) => self.userfault.copy(address, bytes),
                None => self.userfault.zero(address, range.end - at),
            };
            let end = match put {
                Ok(put) => at + put,
                Err(Errno::EXIST) => {
                    self.wake(at)?;
                    at + self.regions.page_bytes()
                }
                Err(Errno::AGAIN) => return Err(Interrupt::Changing),
                Err(Errno::SRCH) => return Err(Interrupt::Gone),
                Err(Errno::NOMEM) if self.regions.page_bytes() == HUGE_PAGE_BYTES => {
                    return Err(Interrupt::Failed(PageError::NoHugePage));
                }
                Err(errno) => return Err(Interrupt::Failed(failed(at, errno))),
            };
            self.state.set_placed(at..end);
            at = end;
        }
        Ok(())
    }

    /// Copies to a huge page; `ENOMEM` when the host has none left. The kernel may say `EEXIST` then too, so it is asked what is there.
    /// Where the bytes to copy are not in memory themselves it needs a second huge page for a moment, so they are touched before.
    fn copy_huge(&self, address: u64, bytes: &[u8]) -> Result<u64, Errno> {
        for _ in 0..HUGE_TRIES {
            std::hint::black_box(bytes.iter().step_by(PAGE_BYTES as usize).fold(0, |all, byte| all | byte));
            match self.userfault.copy(address, bytes) {
                Err(Errno::NOMEM) => {}
                Err(Errno::EXIST) if !self.userfault.has_page(address)? => {}
                copied => return copied,
            }
        }
        Err(Errno::NOMEM)
    }

    fn address_of(&self, offset: u64) -> Result<u64, Interrupt> {
        let part = self.regions.part_of(offset);
        part.map(|part| part.address_of(offset)).ok_or(Interrupt::Failed(failed(offset, Errno::FAULT)))
    }

    /// What lies around a page, within its region.
    fn window(&self, offset: u64, bytes: u64) -> Result<Range<u64>, Interrupt> {
        let part = self.regions.part_of(offset).ok_or(Interrupt::Failed(failed(offset, Errno::FAULT)))?;
        let start = offset - offset % bytes;
        Ok(start.max(part.offset)..(start + bytes).min(part.end()))
    }

    /// Numbers of the 4 KiB pages of a page within its chunk.
    fn pages_in_chunk(&self, offset: u64) -> Range<usize> {
        let first = (offset % CHUNK_BYTES / PAGE_BYTES) as usize;
        first..first + (self.regions.page_bytes() / PAGE_BYTES) as usize
    }
}

/// The bytes of neighbouring stored pages, which lie together in a chunk.
fn stored<'a>(chunk: &'a Chunk, run: &Range<u64>) -> Option<&'a [u8]> {
    let first = chunk.page((run.start % CHUNK_BYTES / PAGE_BYTES) as usize)?;
    let start = first.as_ptr().addr() - chunk.bytes().as_ptr().addr();
    chunk.bytes().get(start..start + (run.end - run.start) as usize)
}

fn failed(offset: u64, errno: Errno) -> PageError {
    PageError::Place { offset, source: Arc::new(errno.into()) }
}
