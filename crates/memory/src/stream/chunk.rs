//! One chunk of a packed file in memory.

use std::sync::Arc;

use super::PageMap;
use crate::PAGE_BYTES;

/// The bytes of a chunk, known to be the ones that were packed, and how to find a page in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pages: PageMap,
    length: u32,
    /// Shared, because many machines may use the same chunk at a time.
    bytes: Arc<Vec<u8>>,
}

/// Why bytes are not those of a chunk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The file has no such chunk.
    #[error("there is no chunk {number} in a file of {count}")]
    Number {
        /// The number asked for.
        number: u32,
        /// How many there are.
        count: u32,
    },
    /// There are too few or too many.
    #[error("chunk {number} has {actual} bytes where {expected} were packed")]
    Length {
        /// The chunk.
        number: u32,
        /// Bytes that were packed.
        expected: usize,
        /// Bytes there are.
        actual: usize,
    },
    /// They are others than those that were packed.
    #[error("the bytes of chunk {number} are not the ones that were packed")]
    Digest {
        /// The chunk.
        number: u32,
    },
}

impl Chunk {
    pub(super) fn new(
        number: u32,
        pages: PageMap,
        length: u32,
        bytes: Arc<Vec<u8>>,
    ) -> Result<Chunk, ChunkError> {
        let expected = pages.count() * PAGE_BYTES as usize;
        if bytes.len() != expected {
            return Err(ChunkError::Length { number, expected, actual: bytes.len() });
        }
        Ok(Chunk { pages, length, bytes })
    }

    /// A page by its number within the chunk; `None` when it is all zeros, and for pages that the chunk does not have. Always 4 KiB: what
    /// lies past the end of the file is zeros.
    pub fn page(&self, page: usize) -> Option<&[u8]> {
        let start = self.pages.place(page)? * PAGE_BYTES as usize;
        self.bytes.get(start..start + PAGE_BYTES as usize)
    }

    /// Which pages are stored.
    pub fn pages(&self) -> &PageMap {
        &self.pages
    }

    /// Bytes of the original file that the chunk stands for.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The stored pages, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
