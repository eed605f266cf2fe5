//! An index as bytes.
//!
//! ```text
//! "PIDX"  version u32  chunk bytes u32  page bytes u32  file length u64  count u64  count × chunk  SHA-256 of all before
//! chunk: 0 u8                                            zeros alone
//!        1 u8  page map 128 bytes  SHA-256 32 bytes      the pages in the map, at least one
//! ```
//!
//! Little endian. Chunks lie in the blob in order and without gaps, so their places need not be written. The digest at the end covers every
//! byte before it. Each index has one encoding, and the decoder allocates nothing beyond a small multiple of its input.

use sha2::{Digest as _, Sha256};

use super::{CHUNK_BYTES, Digest, Index, LENGTH_MAX, PageMap};
use crate::PAGE_BYTES;

const MAGIC: [u8; 4] = *b"PIDX";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const DIGEST_BYTES: usize = 32;
const ZEROS: u8 = 0;
const PACKED: u8 = 1;

/// Largest index worth reading: that of a file of [`LENGTH_MAX`] bytes without a chunk of zeros.
pub const INDEX_BYTES_MAX: u64 = LENGTH_MAX / CHUNK_BYTES * (1 + PageMap::BYTES + DIGEST_BYTES) as u64
    + (HEADER_BYTES + DIGEST_BYTES) as u64;

/// Why bytes are not an index.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// They end too soon or go on too long.
    #[error("an index of {actual} bytes has not the length its header asks for")]
    Length {
        /// Bytes there are.
        actual: usize,
    },
    /// They do not begin as an index does.
    #[error("this is not an index")]
    Magic,
    /// They were written by a later version of this program.
    #[error("an index of version {version} is not understood")]
    Version {
        /// The version found.
        version: u32,
    },
    /// They changed since they were written.
    #[error("the index is damaged")]
    Damaged,
    /// They hold an impossible value although their digest is right.
    #[error("the index describes an impossible file")]
    Impossible,
}

impl Index {
    /// The index as bytes, at most [`INDEX_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let packed = self.chunks().iter().flatten().count();
        let length =
            HEADER_BYTES + self.chunks().len() + packed * (PageMap::BYTES + DIGEST_BYTES) + DIGEST_BYTES;
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&MAGIC);
        for word in [VERSION, CHUNK_BYTES as u32, PAGE_BYTES as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.length(), self.chunks().len() as u64] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for chunk in self.chunks() {
            match chunk {
                None => bytes.push(ZEROS),
                Some(chunk) => {
                    bytes.push(PACKED);
                    bytes.extend_from_slice(&chunk.pages.to_bytes());
                    bytes.extend_from_slice(chunk.digest.as_bytes());
                }
            }
        }
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        bytes
    }

    /// Reads back what [`encode`](Index::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Index, IndexError> {
        let actual = bytes.len();
        let wrong_length = IndexError::Length { actual };
        if actual as u64 > INDEX_BYTES_MAX {
            return Err(wrong_length);
        }
        let (content, digest) = bytes.split_last_chunk::<DIGEST_BYTES>().ok_or(wrong_length.clone())?;
        let (header, body) = content.split_first_chunk::<HEADER_BYTES>().ok_or(wrong_length.clone())?;
        if header[..4] != MAGIC {
            return Err(IndexError::Magic);
        }
        let version = u32_at(header, 4);
        if version != VERSION {
            return Err(IndexError::Version { version });
        }
        if Sha256::digest(content).as_slice() != digest {
            return Err(IndexError::Damaged);
        }
        let (length, count) = (u64_at(header, 16), u64_at(header, 24));
        let possible = u64::from(u32_at(header, 8)) == CHUNK_BYTES
            && u64::from(u32_at(header, 12)) == PAGE_BYTES
            && length <= LENGTH_MAX
            && count == length.div_ceil(CHUNK_BYTES);
        if !possible {
            return Err(IndexError::Impossible);
        }
        // Each chunk takes a byte at least.
        if count > body.len() as u64 {
            return Err(wrong_length);
        }
        let mut index = Index::new(length);
        let mut rest = body;
        for number in 0..count as u32 {
            let (kind, after) = rest.split_first().ok_or(wrong_length.clone())?;
            rest = after;
            let chunk = match *kind {
                ZEROS => None,
                PACKED => {
                    let (map, after) = rest.split_first_chunk().ok_or(wrong_length.clone())?;
                    let (digest, after) = after.split_first_chunk().ok_or(wrong_length.clone())?;
                    rest = after;
                    let map = PageMap::from_bytes(map);
                    let range = index.file_range(number);
                    let pages = (range.end - range.start).div_ceil(PAGE_BYTES) as usize;
                    if map.count() == 0 || !map.ends_before(pages) {
                        return Err(IndexError::Impossible);
                    }
                    Some((map, Digest::from_bytes(*digest)))
                }
                _ => return Err(IndexError::Impossible),
            };
            index.push(chunk);
        }
        if rest.is_empty() { Ok(index) } else { Err(wrong_length) }
    }
}

fn u32_at(header: &[u8; HEADER_BYTES], offset: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| header[offset + index]))
}

fn u64_at(header: &[u8; HEADER_BYTES], offset: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| header[offset + index]))
}
