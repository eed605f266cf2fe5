//! Checksums of pages that are in memory already, so that they are not read from their file again.

use std::ops::Range;

use super::{Checksums, ZERO_SUM, sum_of};
use crate::PAGE_BYTES;
use crate::ranges::length;

/// Checksums of parts of a file, page by page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageSums {
    /// Where each part begins, and the sums of its pages.
    parts: Vec<(u64, Vec<u64>)>,
}

impl PageSums {
    /// Adds the bytes of ranges of whole pages, one after the other.
    pub(crate) fn add(&mut self, ranges: &[Range<u64>], mut bytes: &[u8]) {
        for range in ranges {
            let (part, rest) = bytes.split_at(length(range) as usize);
            self.parts.push((range.start, part.chunks(PAGE_BYTES as usize).map(sum_of).collect()));
            bytes = rest;
        }
    }

    /// Adds ranges of whole pages that hold zeros.
    pub(crate) fn add_zeros(&mut self, ranges: &[Range<u64>]) {
        let zeros = |range: &Range<u64>| vec![ZERO_SUM; (length(range) / PAGE_BYTES) as usize];
        self.parts.extend(ranges.iter().map(|range| (range.start, zeros(range))));
    }

    /// Adds those of others, of other pages.
    pub(crate) fn append(&mut self, mut others: PageSums) {
        self.parts.append(&mut others.parts);
    }
}

impl Checksums {
    /// The sums of a file of the same length in which only these pages differ. `None` where sums are not of pages, or pages
    /// are beyond the end.
    pub fn with_pages(&self, pages: &PageSums) -> Option<Checksums> {
        if u64::from(self.chunk_bytes) != PAGE_BYTES {
            return None;
        }
        let mut sums = self.clone();
        for (start, part) in &pages.parts {
            let first = (start / PAGE_BYTES) as usize;
            sums.sums.get_mut(first..first + part.len())?.copy_from_slice(part);
        }
        Some(sums)
    }
}
