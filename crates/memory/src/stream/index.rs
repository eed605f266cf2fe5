//! What is where in a packed file: for each chunk its pages, its place in the blob and the digest of its bytes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{CHUNK_BYTES, Chunk, ChunkError, PageMap};
use crate::PAGE_BYTES;

/// SHA-256 of the packed bytes of a chunk. Shown as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Reads what is shown of a digest: 64 hexadecimal digits, small letters. `None` for anything else.
    pub fn parse(text: &str) -> Option<Digest> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut bytes = [0; 32];
        if !rest.is_empty() || pairs.len() != bytes.len() {
            return None;
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = value(*high)? << 4 | value(*low)?;
        }
        Some(Digest(bytes))
    }

    /// The digest itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The index of one packed file. It is always consistent in itself: chunks lie in the blob one after the other, none is longer than
/// [`CHUNK_BYTES`], and no page lies past the end of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    length: u64,
    packed_length: u64,
    /// One for each chunk of the file; `None` for zeros alone.
    chunks: Vec<Option<Packed>>,
}

/// A chunk that has bytes in the blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packed {
    start: u64,
    pub(super) pages: PageMap,
    pub(super) digest: Digest,
}

/// The number of the chunk that holds this offset of a file.
pub fn chunk_of(offset: u64) -> u32 {
    u32::try_from(offset / CHUNK_BYTES).unwrap_or(u32::MAX)
}

impl Index {
    /// An index of a file of this length, at most [`super::LENGTH_MAX`], of which no chunk is known yet.
    pub(super) fn new(length: u64) -> Index {
        Index { length, packed_length: 0, chunks: Vec::with_capacity(length.div_ceil(CHUNK_BYTES) as usize) }
    }

    /// Adds what is known about the next chunk: nothing for zeros alone, otherwise its pages, at least one, and its digest.
    pub(super) fn push(&mut self, chunk: Option<(PageMap, Digest)>) {
        self.chunks.push(chunk.map(|(pages, digest)| {
            let start = self.packed_length;
            self.packed_length += pages.count() as u64 * PAGE_BYTES;
            Packed { start, pages, digest }
        }));
    }

    pub(super) fn chunks(&self) -> &[Option<Packed>] {
        &self.chunks
    }

    fn packed(&self, number: u32) -> Option<&Packed> {
        self.chunks.get(number as usize)?.as_ref()
    }

    /// Bytes of the original file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of the blob.
    pub fn packed_length(&self) -> u64 {
        self.packed_length
    }

    /// Chunks of the file, those of zeros included. The last number is one less.
    pub fn chunk_count(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// Where a chunk lies in the original file. Empty at the end of it for a number that is too large.
    pub fn file_range(&self, number: u32) -> Range<u64> {
        let start = (u64::from(number) * CHUNK_BYTES).min(self.length);
        start..(start + CHUNK_BYTES).min(self.length)
    }

    /// Where a chunk's bytes lie in the blob; `None` for a chunk of zeros, and for one that is not there.
    pub fn blob_range(&self, number: u32) -> Option<Range<u64>> {
        let packed = self.packed(number)?;
        Some(packed.start..packed.start + packed.pages.count() as u64 * PAGE_BYTES)
    }

    /// The digest of a chunk's packed bytes; `None` for a chunk of zeros, and for one that is not there.
    pub fn digest(&self, number: u32) -> Option<Digest> {
        Some(self.packed(number)?.digest)
    }

    /// Which pages of a chunk are stored, so that zero pages can be given without fetching anything. Empty for a chunk of zeros.
    pub fn pages(&self, number: u32) -> PageMap {
        self.packed(number).map(|packed| packed.pages).unwrap_or_default()
    }

    /// A chunk, if these are its bytes: by length and by digest. A chunk of zeros has no bytes.
    pub fn verified(&self, number: u32, bytes: impl Into<Arc<Vec<u8>>>) -> Result<Chunk, ChunkError> {
        let bytes = bytes.into();
        if let Some(digest) = self.digest(number)
            && Digest::of(&bytes) != digest
        {
            return Err(ChunkError::Digest { number });
        }
        self.trusted(number, bytes)
    }

    /// A chunk made of bytes whose digest was found to be right before; only their length is looked at.
    pub fn trusted(&self, number: u32, bytes: impl Into<Arc<Vec<u8>>>) -> Result<Chunk, ChunkError> {
        if number >= self.chunk_count() {
            return Err(ChunkError::Number { number, count: self.chunk_count() });
        }
        let range = self.file_range(number);
        Chunk::new(number, self.pages(number), (range.end - range.start) as u32, bytes.into())
    }
}
