//! What is known about every page of a served memory.

use std::ops::Range;

use super::PageCounts;
use super::trace::Trace;
use crate::PAGE_BYTES;

/// Which pages are in place, which were given back, and what was asked for. The unit is the page of the memory's regions.
#[derive(Debug)]
pub(super) struct State {
    page_bytes: u64,
    placed: Bits,
    removed: Bits,
    pub(super) trace: Trace,
    pub(super) counts: PageCounts,
}

impl State {
    /// Nothing is in place, nothing given back. `trace` is what has been asked for already.
    pub(super) fn new(length: u64, page_bytes: u64, trace: Trace) -> State {
        let pages = (length / page_bytes) as usize;
        let (placed, removed) = (Bits::new(pages), Bits::new(pages));
        State { page_bytes, placed, removed, trace, counts: PageCounts::default() }
    }

    pub(super) fn is_placed(&self, offset: u64) -> bool {
        self.placed.get((offset / self.page_bytes) as usize)
    }

    /// Whether the guest gave the page back at any time: what was packed is never seen there again.
    pub(super) fn is_removed(&self, offset: u64) -> bool {
        self.removed.get((offset / self.page_bytes) as usize)
    }

    pub(super) fn set_placed(&mut self, range: Range<u64>) {
        self.placed.set(self.pages(range), true);
    }

    /// The guest gives a range back, of which only whole pages count.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        let range = range.start.next_multiple_of(self.page_bytes)..range.end;
        self.placed.set(self.pages(range.clone()), false);
        self.removed.set(self.pages(range), true);
    }

    /// A page that had to be fetched because the guest asked for it.
    pub(super) fn note(&mut self, offset: u64) {
        if let Ok(page) = u32::try_from(offset / PAGE_BYTES) {
            self.trace.push(page);
        }
    }

    /// What was given back at any time: ascending, apart from each other.
    pub(super) fn removed(&self) -> Vec<Range<u64>> {
        let bytes =
            |pages: Range<usize>| pages.start as u64 * self.page_bytes..pages.end as u64 * self.page_bytes;
        self.removed.ranges().into_iter().map(bytes).collect()
    }

    fn pages(&self, range: Range<u64>) -> Range<usize> {
        (range.start / self.page_bytes) as usize..(range.end / self.page_bytes) as usize
    }
}

/// One bit per page: 2 MiB for the largest memory.
#[derive(Debug)]
struct Bits {
    words: Vec<u64>,
}

impl Bits {
    fn new(count: usize) -> Bits {
        Bits { words: vec![0; count.div_ceil(64)] }
    }

    fn get(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn set(&mut self, range: Range<usize>, value: bool) {
        let mut at = range.start;
        while at < range.end {
            let Some(word) = self.words.get_mut(at / 64) else { return };
            let count = (64 - at % 64).min(range.end - at);
            let mask = (u64::MAX >> (64 - count)) << (at % 64);
            match value {
                true => *word |= mask,
                false => *word &= !mask,
            }
            at += count;
        }
    }

    fn ranges(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (index, word) in self.words.iter().enumerate().filter(|(_, word)| **word != 0) {
            for at in (0..64).filter(|bit| word >> bit & 1 == 1).map(|bit| index * 64 + bit) {
                match ranges.last_mut() {
                    Some(last) if last.end == at => last.end += 1,
                    _ => ranges.push(at..at + 1),
                }
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_what_a_list_of_booleans_is(
            steps in proptest::collection::vec((0_usize..300, 0_usize..200, any::<bool>()), 0..30),
        ) {
            let (mut bits, mut expected) = (Bits::new(300), vec![false; 300]);
            for (start, length, value) in steps {
                let range = start..(start + length).min(300);
                bits.set(range.clone(), value);
                expected[range].fill(value);
            }
            for (index, value) in expected.iter().enumerate() {
                prop_assert_eq!(bits.get(index), *value);
            }
            let members: Vec<usize> = bits.ranges().into_iter().flatten().collect();
            let set: Vec<usize> = (0..300).filter(|index| expected[*index]).collect();
            prop_assert_eq!(members, set);
        }
    }
}
