//! Which pages of a chunk hold anything but zeros.

use super::CHUNK_PAGES;

const WORDS: usize = CHUNK_PAGES / 64;

/// A bit for each page of a chunk: set when the page is stored, clear when it is all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageMap {
    words: [u64; WORDS],
}

impl PageMap {
    /// Bytes of a map when it is written down.
    pub(super) const BYTES: usize = CHUNK_PAGES / 8;

    /// A map of a chunk whose first pages are all stored, however they look.
    pub(super) fn first(count: usize) -> PageMap {
        let mut map = PageMap::default();
        (0..count.min(CHUNK_PAGES)).for_each(|page| map.insert(page));
        map
    }

    /// Whether a page is stored. Pages that a chunk does not have are not.
    pub fn contains(&self, page: usize) -> bool {
        page < CHUNK_PAGES && self.words[page / 64] & 1 << (page % 64) != 0
    }

    /// How many pages are stored.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The pages that are stored, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..CHUNK_PAGES).filter(|page| self.contains(*page))
    }

    pub(super) fn insert(&mut self, page: usize) {
        self.words[page / 64] |= 1 << (page % 64);
    }

    /// Where a stored page lies among the stored ones; `None` for a page of zeros.
    pub(super) fn place(&self, page: usize) -> Option<usize> {
        if !self.contains(page) {
            return None;
        }
        let before: u32 = self.words[..page / 64].iter().map(|word| word.count_ones()).sum();
        let within = self.words[page / 64] & ((1 << (page % 64)) - 1);
        Some((before + within.count_ones()) as usize)
    }

    /// Whether no page from `pages` on is stored.
    pub(super) fn ends_before(&self, pages: usize) -> bool {
        (pages..CHUNK_PAGES).all(|page| !self.contains(page))
    }

    pub(super) fn to_bytes(self) -> [u8; PageMap::BYTES] {
        let mut bytes = [0; PageMap::BYTES];
        for (part, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words) {
            *part = word.to_le_bytes();
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; PageMap::BYTES]) -> PageMap {
        let mut map = PageMap::default();
        for (word, part) in map.words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*part);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_map_counts_and_places_its_pages(pages in prop::collection::btree_set(0..CHUNK_PAGES, 0..CHUNK_PAGES)) {
            let mut map = PageMap::default();
            for page in &pages {
                map.insert(*page);
            }
            prop_assert_eq!(map.count(), pages.len());
            prop_assert_eq!(map.iter().collect::<Vec<_>>(), pages.iter().copied().collect::<Vec<_>>());
            for page in 0..CHUNK_PAGES {
                let place = pages.contains(&page).then(|| pages.range(..page).count());
                prop_assert_eq!(map.place(page), place);
            }
            prop_assert!(map.ends_before(pages.last().map_or(0, |last| last + 1)));
            prop_assert!(pages.last().is_none_or(|last| !map.ends_before(*last)));
            prop_assert_eq!(PageMap::from_bytes(&map.to_bytes()), map);
            prop_assert!(!map.contains(CHUNK_PAGES));
        }
    }
}
