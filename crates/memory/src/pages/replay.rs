//! What is put in place ahead of need: pages of a trace, and what is left of chunks that were needed before.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::trace::Trace;
use crate::PAGE_BYTES;
use crate::stream::{Chunk, chunk_of};

/// Chunks of a trace that are fetched at once or wait to be put in place: 16 MiB at most.
const CHUNKS_AHEAD: usize = 4;

/// The pages of a trace by chunk, in the order in which the chunks were first asked for.
#[derive(Debug, Default)]
pub(super) struct Replay {
    ahead: VecDeque<(u32, Vec<u64>)>,
    /// Chunks on their way.
    fetching: HashMap<u32, Vec<u64>>,
    here: VecDeque<(Arc<Chunk>, VecDeque<u64>)>,
}

impl Replay {
    /// Offsets of `page_bytes` pages of a memory of `length` bytes; what lies outside is passed over.
    pub(super) fn new(trace: &Trace, length: u64, page_bytes: u64) -> Replay {
        let mut ahead: VecDeque<(u32, Vec<u64>)> = VecDeque::new();
        let mut places: HashMap<u32, usize> = HashMap::new();
        let offsets = trace.pages().iter().map(|page| u64::from(*page) * PAGE_BYTES);
        for offset in offsets.filter(|offset| *offset < length) {
            let number = chunk_of(offset);
            let place = *places.entry(number).or_insert(ahead.len());
            if place == ahead.len() {
                ahead.push_back((number, Vec::new()));
            }
            ahead[place].1.push(offset - offset % page_bytes);
        }
        Replay { ahead, ..Replay::default() }
    }

    /// The next chunk to fetch, if it is time for one.
    pub(super) fn next_chunk(&mut self) -> Option<u32> {
        if self.fetching.len() + self.here.len() >= CHUNKS_AHEAD {
            return None;
        }
        let (number, offsets) = self.ahead.pop_front()?;
        self.fetching.insert(number, offsets);
        Some(number)
    }

    /// A chunk has arrived, whoever asked for it.
    pub(super) fn arrived(&mut self, number: u32, chunk: &Arc<Chunk>) {
        if let Some(offsets) = self.fetching.remove(&number) {
            self.here.push_back((Arc::clone(chunk), offsets.into()));
        }
    }

    /// Has all that is stored in a chunk put in place. `start` is where it lies in the memory.
    pub(super) fn add_whole(&mut self, start: u64, chunk: &Arc<Chunk>, page_bytes: u64) {
        let offsets = chunk.pages().iter().map(|page| start + page as u64 * PAGE_BYTES);
        let offsets = offsets.map(|offset| offset - offset % page_bytes).collect();
        self.here.push_back((Arc::clone(chunk), offsets));
    }

    /// The next page to put in place.
    pub(super) fn next_page(&mut self) -> Option<(Arc<Chunk>, u64)> {
        while let Some((chunk, offsets)) = self.here.front_mut() {
            if let Some(offset) = offsets.pop_front() {
                return Some((Arc::clone(chunk), offset));
            }
            self.here.pop_front();
        }
        None
    }

    pub(super) fn has_page(&self) -> bool {
        self.here.iter().any(|(_, offsets)| !offsets.is_empty())
    }

    /// Stops fetching: a source that fails now is not asked for what nobody waits for.
    pub(super) fn give_up(&mut self) {
        self.ahead.clear();
        self.fetching.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::CHUNK_BYTES;

    #[test]
    fn chunks_come_in_the_order_of_their_first_page() {
        let mut trace = Trace::default();
        let pages_per_chunk = (CHUNK_BYTES / PAGE_BYTES) as u32;
        for page in [3 * pages_per_chunk, 1, 3 * pages_per_chunk + 7, 2, 100 * pages_per_chunk] {
            trace.push(page);
        }
        let mut replay = Replay::new(&trace, 10 * CHUNK_BYTES, PAGE_BYTES);
        assert_eq!(replay.ahead[0], (3, vec![3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 7 * PAGE_BYTES]));
        assert_eq!((replay.next_chunk(), replay.next_chunk(), replay.next_chunk()), (Some(3), Some(0), None));
        assert!(!replay.has_page());
    }
}
