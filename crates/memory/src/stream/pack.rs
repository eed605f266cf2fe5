//! From a file to a blob, and from chunks back to a file.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use super::{CHUNK_BYTES, Chunk, Digest, Index, LENGTH_MAX, PageMap};
use crate::extents::data_ranges;
use crate::{PAGE_BYTES, parallel};

/// Chunks read, hashed and held at a time, so that threads have something to do: 32 MiB.
const CHUNKS_AT_ONCE: usize = 8;

const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// A chunk's stored pages, which ones they are, and their digest.
type PackedChunk = (PageMap, Digest, Vec<u8>);

/// Why a file could not be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The file could not be read.
    #[error("could not read the file to pack")]
    Read(#[source] io::Error),
    /// The blob could not be written.
    #[error("could not write the packed file")]
    Write(#[source] io::Error),
    /// The file is longer than [`LENGTH_MAX`].
    #[error("a file of {length} bytes is too long to be packed")]
    TooLong {
        /// Its length.
        length: u64,
    },
}

/// Writes the pages of a file that are not zeros, and returns what is where. Holes are not read. The file must not change meanwhile. After an
/// error part of the blob may have been written.
pub fn pack(file: &File, out: &mut impl Write) -> Result<Index, PackError> {
    let length = file.metadata().map_err(PackError::Read)?.len();
    if length > LENGTH_MAX {
        return Err(PackError::TooLong { length });
    }
    let data = data_ranges(file, length).map_err(PackError::Read)?;
    let mut index = Index::new(length);
    // Only chunks with data are looked at; those between two of them are zeros.
    let mut batch: Vec<(u32, Vec<Range<u64>>)> = Vec::new();
    for (number, ranges) in by_chunk(&data) {
        batch.push((number, ranges));
        if batch.len() == CHUNKS_AT_ONCE {
            pack_batch(file, &batch, &mut index, out)?;
            batch.clear();
        }
    }
    pack_batch(file, &batch, &mut index, out)?;
    while u64::from(index.chunk_count()) < length.div_ceil(CHUNK_BYTES) {
        index.push(None);
    }
    Ok(index)
}

/// The data of each chunk that has any, as whole pages: ascending, apart from each other.
fn by_chunk(data: &[Range<u64>]) -> Vec<(u32, Vec<Range<u64>>)> {
    let mut chunks: Vec<(u32, Vec<Range<u64>>)> = Vec::new();
    for range in data {
        let mut at = range.start / PAGE_BYTES * PAGE_BYTES;
        let end = range.end.next_multiple_of(PAGE_BYTES);
        while at < end {
            let number = at / CHUNK_BYTES;
            let piece = at..end.min((number + 1) * CHUNK_BYTES);
            at = piece.end;
            match chunks.last_mut() {
                Some((last, ranges)) if u64::from(*last) == number => match ranges.last_mut() {
                    // Two pieces of data within one page.
                    Some(before) if before.end >= piece.start => before.end = piece.end.max(before.end),
                    _ => ranges.push(piece),
                },
                _ => chunks.push((number as u32, vec![piece])),
            }
        }
    }
    chunks
}

fn pack_batch(
    file: &File,
    batch: &[(u32, Vec<Range<u64>>)],
    index: &mut Index,
    out: &mut impl Write,
) -> Result<(), PackError> {
    let length = index.length();
    let packed: Vec<Mutex<Option<PackedChunk>>> = batch.iter().map(|_| Mutex::default()).collect();
    parallel::for_each(
        batch.len(),
        || (),
        |(), at| {
            let chunk = pack_chunk(file, length, &batch[at].1)?;
            *packed[at].lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = chunk;
            Ok(())
        },
    )
    .map_err(PackError::Read)?;
    for ((number, _), chunk) in batch.iter().zip(packed) {
        while index.chunk_count() < *number {
            index.push(None);
        }
        match chunk.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some((pages, digest, bytes)) => {
                out.write_all(&bytes).map_err(PackError::Write)?;
                index.push(Some((pages, digest)));
            }
            None => index.push(None),
        }
    }
    Ok(())
}

/// One chunk's pages that are not zeros; `None` when all are. The last page of the file is filled up with zeros.
fn pack_chunk(file: &File, length: u64, ranges: &[Range<u64>]) -> io::Result<Option<PackedChunk>> {
    let (mut pages, mut bytes) = (PageMap::default(), Vec::new());
    for range in ranges {
        // Read where it is to stay; pages of zeros are then moved over.
        let start = bytes.len();
        bytes.resize(start + (range.end - range.start) as usize, 0);
        let within = (range.end.min(length) - range.start) as usize;
        file.read_exact_at(&mut bytes[start..start + within], range.start)?;
        let mut kept = start;
        for (at, offset) in
            (start..bytes.len()).step_by(ZEROS.len()).zip((range.start..).step_by(ZEROS.len()))
        {
            if bytes[at..at + ZEROS.len()] != ZEROS {
                bytes.copy_within(at..at + ZEROS.len(), kept);
                kept += ZEROS.len();
                pages.insert((offset % CHUNK_BYTES / PAGE_BYTES) as usize);
            }
        }
        bytes.truncate(kept);
    }
    Ok((!bytes.is_empty()).then(|| (pages, Digest::of(&bytes), bytes)))
}

/// Writes a chunk's pages where they belong in a file that reads as zeros there, as a new one of the right length does. Pages of zeros are
/// not written, so they stay holes; the file never becomes longer than the original.
pub fn unpack(chunk: &Chunk, number: u32, file: &File) -> io::Result<()> {
    let start = u64::from(number) * CHUNK_BYTES;
    let (mut bytes, mut pages) = (chunk.bytes(), chunk.pages().iter().peekable());
    while let Some(first) = pages.next() {
        let mut count = 1;
        while pages.next_if_eq(&(first + count)).is_some() {
            count += 1;
        }
        let (run, rest) = bytes.split_at(count * PAGE_BYTES as usize);
        bytes = rest;
        let at = first as u64 * PAGE_BYTES;
        let within = u64::from(chunk.length()).saturating_sub(at).min(run.len() as u64);
        file.write_all_at(&run[..within as usize], start + at)?;
    }
    Ok(())
}
