//! A checksum per chunk of a file, so that a flipped bit in a saved RAM or disk image is noticed and located.
//!
//! The sums guard against damage, not against an attacker who can also rewrite them. A chunk of zeros, stored or a
//! hole, has the sum 0; holes are never read. [`encoded`] keeps the sums in a file of their own.

pub mod encoded;
mod pages;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use crate::extents::{data_ranges, seek_data};
use crate::parallel;
pub use encoded::{DecodeError, SUMS_BYTES_MAX};
pub use pages::PageSums;

/// Chunk for RAM: one page, the unit in which it changes.
pub const MEMORY_CHUNK_BYTES: u32 = 4 << 10;

/// Chunk for disks: fewer sums for larger files, at the price of hashing 64 KiB around each small write.
pub const DISK_CHUNK_BYTES: u32 = 64 << 10;

/// Smallest and largest chunk accepted; a power of two.
pub const CHUNK_BYTES: std::ops::RangeInclusive<u32> = 512..=1 << 20;

/// Most chunks a file may have: a RAM of 1 TiB, a disk of 16 TiB. Beyond it the caller gets [`SumError::TooLong`].
pub const CHUNKS_MAX: u64 = 1 << 28;

/// Bytes one thread reads and hashes at a time: a multiple of every chunk size.
const PIECE_BYTES: u64 = 1 << 20;

/// The sum of a chunk that holds nothing but zeros.
const ZERO_SUM: u64 = 0;

const ZEROS: [u8; 4096] = [0; 4096];

/// The sums of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksums {
    length: u64,
    chunk_bytes: u32,
    sums: Vec<u64>,
}

/// Why sums could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum SumError {
    /// The file could not be read.
    #[error("could not read the file to sum")]
    Read(#[source] io::Error),
    /// The chunk size is not a power of two within [`CHUNK_BYTES`].
    #[error("a chunk of {chunk_bytes} bytes is not possible")]
    ChunkBytes {
        /// The size asked for.
        chunk_bytes: u32,
    },
    /// The file has more than [`CHUNKS_MAX`] chunks.
    #[error("a file of {length} bytes is too long to be summed")]
    TooLong {
        /// Its length.
        length: u64,
    },
}

/// Why a file is not the one the sums were made of.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Bytes differ from those that were written.
    #[error("{length} bytes at offset {offset} are not the ones that were written")]
    Damaged {
        /// The first damaged chunk that was met.
        offset: u64,
        /// Its bytes.
        length: u64,
    },
    /// The file was cut or grew.
    #[error("the file has {actual} bytes where {expected} were written")]
    Length {
        /// Bytes when the sums were made.
        expected: u64,
        /// Bytes now.
        actual: u64,
    },
    /// The file could not be read, which on a failing disk is damage too.
    #[error("could not read the file to verify")]
    Read(#[source] io::Error),
}

/// How much of a file to verify.
#[derive(Debug, Clone, Copy)]
pub enum What<'a> {
    /// Every chunk.
    All,
    /// The chunks these ranges touch. What lies past the end of the file is ignored.
    Ranges(&'a [Range<u64>]),
}

impl Checksums {
    /// Checksums a whole file. Holes cost nothing.
    pub fn compute(file: &File, chunk_bytes: u32) -> Result<Checksums, SumError> {
        let mut sums = Checksums::of_zeros(length_of(file)?, chunk_bytes)?;
        let data = data_ranges(file, sums.length).map_err(SumError::Read)?;
        sums.fill(file, &data).map_err(SumError::Read)?;
        Ok(sums)
    }

    /// The sums of a file that began as a copy of the one these sums are of and was then changed in `ranges` at most.
    /// It may also have grown or shrunk; the difference in length need not be among the ranges.
    pub fn updated(&self, file: &File, ranges: &[Range<u64>]) -> Result<Checksums, SumError> {
        let mut sums = Checksums::of_zeros(length_of(file)?, self.chunk_bytes)?;
        let kept = sums.sums.len().min(self.sums.len());
        sums.sums[..kept].copy_from_slice(&self.sums[..kept]);
        let mut stale = ranges.to_vec();
        if sums.length != self.length {
            // The last chunk both have may be cut or extended, and what follows it is new.
            let shorter = sums.length.min(self.length);
            stale.push(shorter.saturating_sub(1)..sums.length);
        }
        let stale = sums.whole_chunks(&stale);
        for chunks in &stale {
            sums.sums[chunks.clone()].fill(ZERO_SUM);
        }
        let mut stale: Vec<Range<u64>> = stale.into_iter().map(|chunks| sums.bytes_of(chunks)).collect();
        if sums.length != self.length {
            // Most of what is new may be one hole. What was changed is read without asking, which would write it out first.
            let data = data_ranges(file, sums.length).map_err(SumError::Read)?;
            stale = intersection(&stale, &data);
        }
        sums.fill(file, &stale).map_err(SumError::Read)?;
        Ok(sums)
    }

    /// Fails unless the chunks asked for are the ones that were summed.
    pub fn verify(&self, file: &File, what: What<'_>) -> Result<(), VerifyError> {
        let actual = file.metadata().map_err(VerifyError::Read)?.len();
        if actual != self.length {
            return Err(VerifyError::Length { expected: self.length, actual });
        }
        let chunks = match what {
            What::All => Vec::from_iter((!self.sums.is_empty()).then_some(0..self.sums.len())),
            What::Ranges(ranges) => self.whole_chunks(ranges),
        };
        // What is called a hole is believed only where zeros were written.
        let data = self.whole_chunks(&seek_data(file, self.length).map_err(VerifyError::Read)?);
        let stored = intersection(&chunks, &data).into_iter().chain(self.not_zeros(&chunks));
        let stored: Vec<Range<u64>> = stored.map(|chunks| self.bytes_of(chunks)).collect();
        let stored: Vec<Range<u64>> =
            self.whole_chunks(&stored).into_iter().map(|chunks| self.bytes_of(chunks)).collect();
        let damaged = AtomicU64::new(u64::MAX);
        self.hash(file, &stored, |chunk, sum| {
            if self.sums[chunk] != sum {
                damaged.fetch_min(chunk as u64, Ordering::Relaxed);
            }
        })
        .map_err(VerifyError::Read)?;
        match damaged.into_inner() {
            u64::MAX => Ok(()),
            chunk => Err(self.damaged(chunk as usize)),
        }
    }

    /// Ranges in which the files of two sums differ: whole chunks, ascending, apart from each other. Checksums with another
    /// chunk size differ everywhere.
    pub fn changed_between(&self, other: &Checksums) -> Vec<Range<u64>> {
        let longest = self.length.max(other.length);
        if self.chunk_bytes != other.chunk_bytes {
            return Vec::from_iter((longest > 0).then_some(0..longest));
        }
        let chunk_bytes = u64::from(self.chunk_bytes);
        // The chunk in which the shorter file ends differs in length even where its bytes are the same.
        let ends_in = (self.length != other.length).then(|| self.length.min(other.length) / chunk_bytes);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for chunk in 0..self.sums.len().max(other.sums.len()) {
            let differs = self.sums.get(chunk) != other.sums.get(chunk) || ends_in == Some(chunk as u64);
            if differs {
                let start = chunk as u64 * chunk_bytes;
                let end = longest.min(start + chunk_bytes);
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => ranges.push(start..end),
                }
            }
        }
        ranges
    }

    /// Bytes of the file the sums are of.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes per sum.
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Bytes of the file that are not in a chunk of zeros.
    pub fn data_bytes(&self) -> u64 {
        let full =
            self.sums.iter().filter(|sum| **sum != ZERO_SUM).count() as u64 * u64::from(self.chunk_bytes);
        let tail = self.length % u64::from(self.chunk_bytes);
        match self.sums.last() {
            Some(sum) if *sum != ZERO_SUM && tail != 0 => full - u64::from(self.chunk_bytes) + tail,
            _ => full,
        }
    }

    fn of_zeros(length: u64, chunk_bytes: u32) -> Result<Checksums, SumError> {
        if !chunk_bytes.is_power_of_two() || !CHUNK_BYTES.contains(&chunk_bytes) {
            return Err(SumError::ChunkBytes { chunk_bytes });
        }
        let chunks = length.div_ceil(u64::from(chunk_bytes));
        if chunks > CHUNKS_MAX {
            return Err(SumError::TooLong { length });
        }
        let sums = vec![ZERO_SUM; chunks as usize];
        Ok(Checksums { length, chunk_bytes, sums })
    }

    fn damaged(&self, chunk: usize) -> VerifyError {
        let bytes = self.bytes_of(chunk..chunk + 1);
        VerifyError::Damaged { offset: bytes.start, length: bytes.end - bytes.start }
    }

    fn bytes_of(&self, chunks: Range<usize>) -> Range<u64> {
        let chunk_bytes = u64::from(self.chunk_bytes);
        chunks.start as u64 * chunk_bytes..self.length.min(chunks.end as u64 * chunk_bytes)
    }

    /// The chunks that byte ranges in any order touch: ascending and apart from each other.
    fn whole_chunks(&self, ranges: &[Range<u64>]) -> Vec<Range<usize>> {
        let chunk_bytes = u64::from(self.chunk_bytes);
        let mut chunks: Vec<Range<usize>> = ranges
            .iter()
            .map(|range| range.start..range.end.min(self.length))
            .filter(|range| range.start < range.end)
            .map(|range| (range.start / chunk_bytes) as usize..range.end.div_ceil(chunk_bytes) as usize)
            .collect();
        chunks.sort_unstable_by_key(|range| range.start);
        chunks.dedup_by(|next, last| {
            let touch = next.start <= last.end;
            if touch {
                last.end = last.end.max(next.end);
            }
            touch
        });
        chunks
    }

    /// Those of ascending chunks that are not zeros.
    fn not_zeros(&self, chunks: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for chunk in chunks.iter().cloned().flatten().filter(|chunk| self.sums[*chunk] != ZERO_SUM) {
            match found.last_mut() {
                Some(last) if last.end == chunk => last.end += 1,
                _ => found.push(chunk..chunk + 1),
            }
        }
        found
    }

    /// Takes the sums of every chunk that `data` touches from the file.
    fn fill(&mut self, file: &File, data: &[Range<u64>]) -> io::Result<()> {
        let fresh: Vec<AtomicU64> = Vec::from_iter(self.sums.iter().copied().map(AtomicU64::new));
        let chunks = self.whole_chunks(data);
        let data: Vec<Range<u64>> = chunks.into_iter().map(|chunks| self.bytes_of(chunks)).collect();
        self.hash(file, &data, |chunk, sum| fresh[chunk].store(sum, Ordering::Relaxed))?;
        self.sums = fresh.into_iter().map(AtomicU64::into_inner).collect();
        Ok(())
    }

    /// Reads `data`, which begins and ends at chunk borders, and reports every chunk's sum.
    fn hash(&self, file: &File, data: &[Range<u64>], report: impl Fn(usize, u64) + Sync) -> io::Result<()> {
        let chunk_bytes = self.chunk_bytes as usize;
        let pieces: Vec<Range<u64>> = data
            .iter()
            .flat_map(|range| {
                (range.start..range.end)
                    .step_by(PIECE_BYTES as usize)
                    .map(|start| start..range.end.min(start + PIECE_BYTES))
            })
            .collect();
        parallel::for_each(
            pieces.len(),
            || vec![0; PIECE_BYTES as usize],
            |buffer, index| {
                let piece = &pieces[index];
                let bytes = &mut buffer[..(piece.end - piece.start) as usize];
                file.read_exact_at(bytes, piece.start)?;
                let first = (piece.start / chunk_bytes as u64) as usize;
                for (index, chunk) in bytes.chunks(chunk_bytes).enumerate() {
                    report(first + index, sum_of(chunk));
                }
                Ok(())
            },
        )
    }
}

/// The sum of one chunk; 0 for zeros alone.
fn sum_of(chunk: &[u8]) -> u64 {
    if chunk.chunks(ZEROS.len()).all(|part| *part == ZEROS[..part.len()]) {
        return ZERO_SUM;
    }
    xxh3_64(chunk).max(1)
}

fn length_of(file: &File) -> Result<u64, SumError> {
    Ok(file.metadata().map_err(SumError::Read)?.len())
}

/// What two ascending lists of ranges have in common.
pub(crate) fn intersection<T: Ord + Copy>(one: &[Range<T>], other: &[Range<T>]) -> Vec<Range<T>> {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut common = Vec::new();
    while let (Some(left), Some(right)) = (one.peek(), other.peek()) {
        let both = left.start.max(right.start)..left.end.min(right.end);
        if both.start < both.end {
            common.push(both);
        }
        if left.end <= right.end {
            one.next();
        } else {
            other.next();
        }
    }
    common
}

#[cfg(test)]
mod tests;
