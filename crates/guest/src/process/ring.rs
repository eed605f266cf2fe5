//! The newest output of a process, and the offsets it has.

use std::collections::VecDeque;

/// Most a ring holds.
pub(crate) const RING_BYTES_MAX: usize = 1024 * 1024;

/// Bytes `start()..end()` of everything a process wrote to one channel.
#[derive(Default)]
pub(crate) struct Ring {
    data: VecDeque<u8>,
    start: u64,
}

impl Ring {
    /// Offset of the oldest byte held.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Offset one past the newest byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.data.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.data.extend(bytes);
    }

    /// Counts bytes that are not kept. The ring must be empty.
    pub(crate) fn skip(&mut self, count: usize) {
        debug_assert!(self.data.is_empty(), "bytes are skipped only where none are held");
        self.start += count as u64;
    }

    /// Forgets up to `count` of the oldest bytes, but none at or after `until`; returns how many.
    pub(crate) fn drop_oldest(&mut self, count: usize, until: u64) -> usize {
        let most = usize::try_from(until.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let count = count.min(most).min(self.data.len());
        self.data.drain(..count);
        self.start += count as u64;
        count
    }

    /// Appends to `out` up to `most` bytes beginning at `offset`, which must lie in the ring; returns how many.
    pub(crate) fn copy(&self, offset: u64, most: usize, out: &mut Vec<u8>) -> usize {
        let from =
            usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX).min(self.data.len());
        let (first, second) = self.data.as_slices();
        let head = first.get(from..).unwrap_or_default();
        let tail = second.get(from.saturating_sub(first.len())..).unwrap_or_default();
        let from_head = head.len().min(most);
        let from_tail = tail.len().min(most - from_head);
        out.extend_from_slice(&head[..from_head]);
        out.extend_from_slice(&tail[..from_tail]);
        from_head + from_tail
    }

    /// Gives unused memory back.
    pub(crate) fn shrink(&mut self) {
        self.data.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_what_was_written_not_what_is_held() {
        let mut ring = Ring::default();
        ring.push(b"hello ");
        assert_eq!(ring.drop_oldest(4, 3), 3);
        ring.push(b"world");
        assert_eq!((ring.start(), ring.end(), ring.len()), (3, 11, 8));
        let mut out = Vec::new();
        assert_eq!(ring.copy(4, 4, &mut out), 4);
        assert_eq!(out, b"o wo");
        assert_eq!(ring.copy(11, 4, &mut out), 0);
        assert_eq!(ring.drop_oldest(100, u64::MAX), 8);
        ring.skip(5);
        assert_eq!((ring.start(), ring.end()), (16, 16));
    }
}
