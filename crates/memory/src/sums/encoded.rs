//! Checksums as a file.
//!
//! ```text
//! "PSUM"  version u32  chunk bytes u32  zero u32  file length u64  count u64  count × sum u64  xxh3-128 of all before
//! ```
//!
//! Little endian. The digest at the end covers every byte before it, so a truncated, grown or flipped file is an error and
//! never a wrong sum. The decoder allocates nothing beyond the size of its input.

use xxhash_rust::xxh3::xxh3_128;

use super::{CHUNK_BYTES, CHUNKS_MAX, Checksums};

const MAGIC: [u8; 4] = *b"PSUM";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const DIGEST_BYTES: usize = 16;

/// Largest sums file worth reading: that of a file with [`CHUNKS_MAX`] chunks.
pub const SUMS_BYTES_MAX: u64 = CHUNKS_MAX * 8 + (HEADER_BYTES + DIGEST_BYTES) as u64;

/// Why bytes are not a sums file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They end too soon or go on too long.
    #[error("a sums file of {actual} bytes has not the length its header asks for")]
    Length {
        /// Bytes there are.
        actual: usize,
    },
    /// They do not begin as a sums file does.
    #[error("this is not a sums file")]
    Magic,
    /// They were written by a later version of this program.
    #[error("sums of version {version} are not understood")]
    Version {
        /// The version found.
        version: u32,
    },
    /// They changed since they were written.
    #[error("the sums file is damaged")]
    Damaged,
    /// The header holds an impossible value although its digest is right.
    #[error("the sums file describes an impossible file")]
    Impossible,
}

impl Checksums {
    /// The sums as the bytes of a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.sums.len() * 8 + DIGEST_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.chunk_bytes.to_le_bytes());
        bytes.extend_from_slice(&0_u32.to_le_bytes());
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(&(self.sums.len() as u64).to_le_bytes());
        for sum in &self.sums {
            bytes.extend_from_slice(&sum.to_le_bytes());
        }
        let digest = xxh3_128(&bytes);
        bytes.extend_from_slice(&digest.to_le_bytes());
        bytes
    }

    /// Reads back what [`encode`](Checksums::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Checksums, DecodeError> {
        let actual = bytes.len();
        let (content, digest) =
            bytes.split_last_chunk::<DIGEST_BYTES>().ok_or(DecodeError::Length { actual })?;
        let (header, body) =
            content.split_first_chunk::<HEADER_BYTES>().ok_or(DecodeError::Length { actual })?;
        if header[..4] != MAGIC {
            return Err(DecodeError::Magic);
        }
        let version = u32_at(header, 4);
        if version != VERSION {
            return Err(DecodeError::Version { version });
        }
        let (sums, rest) = body.as_chunks::<8>();
        if !rest.is_empty() || u64_at(header, 24) != sums.len() as u64 {
            return Err(DecodeError::Length { actual });
        }
        if xxh3_128(content) != u128::from_le_bytes(*digest) {
            return Err(DecodeError::Damaged);
        }
        let chunk_bytes = u32_at(header, 8);
        let length = u64_at(header, 16);
        let possible = chunk_bytes.is_power_of_two()
            && CHUNK_BYTES.contains(&chunk_bytes)
            && u32_at(header, 12) == 0
            && sums.len() as u64 <= CHUNKS_MAX
            && length.div_ceil(u64::from(chunk_bytes)) == sums.len() as u64;
        if !possible {
            return Err(DecodeError::Impossible);
        }
        Ok(Checksums { length, chunk_bytes, sums: sums.iter().map(|sum| u64::from_le_bytes(*sum)).collect() })
    }
}

fn u32_at(header: &[u8; HEADER_BYTES], offset: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| header[offset + index]))
}

fn u64_at(header: &[u8; HEADER_BYTES], offset: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| header[offset + index]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sums(length: u64, chunk_bytes: u32) -> Checksums {
        let count = length.div_ceil(u64::from(chunk_bytes));
        Checksums {
            length,
            chunk_bytes,
            sums: (0..count).map(|index| index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect(),
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(length in 0_u64..5_000_000, shift in 9_u32..=20) {
            let sums = sums(length, 1 << shift);
            prop_assert_eq!(Checksums::decode(&sums.encode()), Ok(sums));
        }

        #[test]
        fn a_flipped_bit_is_an_error(length in 0_u64..200_000, at in any::<prop::sample::Index>(), bit in 0_u32..8) {
            let mut bytes = sums(length, 4096).encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(Checksums::decode(&bytes).is_err());
        }

        #[test]
        fn a_truncated_or_grown_file_is_an_error(length in 0_u64..200_000, at in any::<prop::sample::Index>(), more in 1..40_usize) {
            let mut bytes = sums(length, 4096).encode();
            prop_assert!(Checksums::decode(&bytes[..at.index(bytes.len())]).is_err());
            bytes.resize(bytes.len() + more, 0);
            prop_assert!(Checksums::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_decode_to_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Checksums::decode(&bytes);
        }

        #[test]
        fn any_header_with_a_right_digest_decodes_to_an_answer(
            chunk_bytes in any::<u32>(), length in any::<u64>(), count in any::<u64>(), body in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut bytes = Vec::from(MAGIC);
            bytes.extend_from_slice(&VERSION.to_le_bytes());
            bytes.extend_from_slice(&chunk_bytes.to_le_bytes());
            bytes.extend_from_slice(&0_u32.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&body);
            let digest = xxh3_128(&bytes);
            bytes.extend_from_slice(&digest.to_le_bytes());
            if let Ok(sums) = Checksums::decode(&bytes) {
                prop_assert_eq!(sums.encode(), bytes);
            }
        }
    }

    #[test]
    fn each_kind_of_wrongness_has_its_name() {
        let good = sums(10_000, 4096).encode();
        assert_eq!(Checksums::decode(&[]), Err(DecodeError::Length { actual: 0 }));
        let mut other = good.clone();
        other[0] = b'X';
        assert_eq!(Checksums::decode(&other), Err(DecodeError::Magic));
        let mut later = good.clone();
        later[4] = 2;
        assert_eq!(Checksums::decode(&later), Err(DecodeError::Version { version: 2 }));
        let mut flipped = good;
        flipped[40] ^= 1;
        assert_eq!(Checksums::decode(&flipped), Err(DecodeError::Damaged));
    }
}
