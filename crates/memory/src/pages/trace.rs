//! Which pages a guest asked for, in order, so that the next one finds them in place.
//!
//! ```text
//! magic "PTRC", version u8, 3 zeros │ count u32 │ page u32 … │ xxh3-64 of all before
//! ```
//! All numbers are little-endian. A trace is only a hint: pages that a memory does not have are passed over.

use xxhash_rust::xxh3::xxh3_64;

/// Most pages in a trace: those asked for later are not noted. Each stands for its neighbours too, so this is far more than the
/// gigabyte that a guest may touch before it has anything to do.
pub const TRACE_PAGES_MAX: usize = 1 << 16;

/// Longest trace when written down.
pub const TRACE_BYTES_MAX: usize = HEADER_BYTES + TRACE_PAGES_MAX * PAGE_NUMBER_BYTES + SUM_BYTES;

const MAGIC_AND_VERSION: [u8; 8] = *b"PTRC\x01\0\0\0";
const HEADER_BYTES: usize = 12;
const PAGE_NUMBER_BYTES: usize = 4;
const SUM_BYTES: usize = 8;

/// Numbers of 4 KiB pages of a memory, in the order in which they were first needed. At most [`TRACE_PAGES_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    pages: Vec<u32>,
}

/// Why bytes are not a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// They are too few, too many, or not as many as they say.
    #[error("{length} bytes are not a trace")]
    Length {
        /// How many there are.
        length: usize,
    },
    /// They begin differently, or are of another version.
    #[error("the bytes are not a trace that is understood")]
    Magic,
    /// They are not the ones that were written.
    #[error("the trace is damaged")]
    Damaged,
}

impl Trace {
    /// Page numbers in order.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Adds a page while there is room.
    pub(super) fn push(&mut self, page: u32) {
        if self.pages.len() < TRACE_PAGES_MAX {
            self.pages.push(page);
        }
    }

    /// The trace as bytes, at most [`TRACE_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.pages.len() * PAGE_NUMBER_BYTES + SUM_BYTES);
        bytes.extend(MAGIC_AND_VERSION);
        bytes.extend((self.pages.len() as u32).to_le_bytes());
        bytes.extend(self.pages.iter().flat_map(|page| page.to_le_bytes()));
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// The trace that [`Trace::encode`] made into these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Trace, TraceError> {
        let length = bytes.len();
        if length > TRACE_BYTES_MAX {
            return Err(TraceError::Length { length });
        }
        let wrong_length = || TraceError::Length { length };
        let (content, sum) = bytes.split_last_chunk::<SUM_BYTES>().ok_or_else(wrong_length)?;
        let (magic, rest) = content.split_first_chunk::<8>().ok_or_else(wrong_length)?;
        let (count, pages) = rest.split_first_chunk::<4>().ok_or_else(wrong_length)?;
        if *magic != MAGIC_AND_VERSION {
            return Err(TraceError::Magic);
        }
        if pages.len() != u32::from_le_bytes(*count) as usize * PAGE_NUMBER_BYTES {
            return Err(wrong_length());
        }
        if xxh3_64(content) != u64::from_le_bytes(*sum) {
            return Err(TraceError::Damaged);
        }
        let pages = pages.as_chunks::<PAGE_NUMBER_BYTES>().0;
        Ok(Trace { pages: pages.iter().map(|page| u32::from_le_bytes(*page)).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_trace_is_read_as_it_was_written(pages in proptest::collection::vec(any::<u32>(), 0..300)) {
            let trace = Trace { pages };
            prop_assert_eq!(Trace::decode(&trace.encode()), Ok(trace));
        }

        #[test]
        fn other_bytes_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), flip in any::<prop::sample::Index>()) {
            prop_assert!(Trace::decode(&bytes).is_err());
            let trace = Trace { pages: bytes.iter().map(|byte| u32::from(*byte)).collect() };
            bytes = trace.encode();
            let at = flip.index(bytes.len());
            bytes[at] ^= 0x10;
            prop_assert!(Trace::decode(&bytes).is_err());
            bytes[at] ^= 0x10;
            bytes.truncate(at);
            prop_assert!(Trace::decode(&bytes).is_err());
        }

        #[test]
        fn a_right_sum_makes_no_other_bytes_a_trace(
            count in prop_oneof![0_u32..20, any::<u32>()],
            pages in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut bytes = [&MAGIC_AND_VERSION[..], &count.to_le_bytes(), &pages].concat();
            bytes.extend(xxh3_64(&bytes).to_le_bytes());
            if let Ok(trace) = Trace::decode(&bytes) {
                prop_assert_eq!(trace.encode(), bytes);
            }
        }
    }

    #[test]
    fn a_trace_has_an_end() {
        let mut trace = Trace::default();
        for page in 0..TRACE_PAGES_MAX as u32 + 10 {
            trace.push(page);
        }
        assert_eq!(trace.pages().len(), TRACE_PAGES_MAX);
        assert_eq!(trace.encode().len(), TRACE_BYTES_MAX);
        assert_eq!(Trace::decode(&trace.encode()), Ok(trace));
    }
}
