//! A sparse file, memory or disk, packed into one blob that can be read a chunk at a time.
//!
//! ```text
//! file    4 MiB        4 MiB        4 MiB (all zero)   rest
//!         │            │                               │
//! blob    its pages,   its pages,   nothing            its pages        [`Index`]: which pages, where, SHA-256 of each chunk
//!         zero ones left out
//! ```
//!
//! [`pack`] makes blob and [`Index`], a [`ChunkSource`] brings chunks from wherever the blob is kept, [`Chunk`] shows the pages of one and
//! [`unpack`] writes them into a file. An index and the bytes of a blob come from elsewhere: neither is trusted, and no page is shown that
//! is not the one that was packed. A [`FileSource`] gives chunks of a file that was never packed. Nothing here knows a network or a cache.

mod chunk;
mod encoded;
mod file;
mod index;
mod pack;
mod page_map;
mod source;

pub use chunk::{Chunk, ChunkError};
pub use encoded::{INDEX_BYTES_MAX, IndexError};
pub use file::FileSource;
pub use index::{Digest, Index, chunk_of};
pub use pack::{PackError, pack, unpack};
pub use page_map::PageMap;
pub use source::{ChunkSource, FetchError};

use crate::PAGE_BYTES;

/// Bytes of the original file in a chunk, except the last one, which may have fewer.
pub const CHUNK_BYTES: u64 = 4 << 20;

/// Pages in a chunk.
pub const CHUNK_PAGES: usize = (CHUNK_BYTES / PAGE_BYTES) as usize;

/// Longest file that can be packed. Beyond it the caller gets [`PackError::TooLong`].
pub const LENGTH_MAX: u64 = 64 << 30;

#[cfg(test)]
mod tests;
