//! Where the content of a sparse file belongs: GNU's old headers and three forms of PAX records.

use std::io::Read;

use super::header::{length, number};
use super::pax::{Pax, decimal};
use super::{BLOCK, Segment, TarError};

/// Most segments of one file.
const SEGMENTS_MAX: usize = 1 << 16;

fn wrong() -> TarError {
    TarError::damaged("a sparse file's map is wrong")
}

/// Takes the pairs of GNU's old header: 12 octal digits each, ended by an empty one.
pub(super) fn old_pairs(field: &[u8], into: &mut Vec<Segment>) -> Result<(), TarError> {
    for pair in field.chunks_exact(24) {
        if pair[0] == 0 {
            return Ok(());
        }
        push(length(number(&pair[..12])?)?, length(number(&pair[12..])?)?, into)?;
    }
    Ok(())
}

/// The map in PAX records, or nothing when they describe no sparse file. Form 1.0 has it at the start of the content: then the bytes
/// of content that were read are told too.
pub(super) fn from_pax(
    pax: &Pax,
    content: &mut impl Read,
) -> Result<Option<(Vec<Segment>, u64, u64)>, TarError> {
    let get = |key: &[u8]| pax.sparse.get(key).map(Vec::as_slice);
    let real = |key: &[u8]| -> Result<u64, TarError> {
        length(decimal(get(key).unwrap_or_default())?.ok_or_else(wrong)?)
    };
    let mut segments = Vec::new();
    let mut consumed = 0;
    let size = match (get(b"major"), get(b"minor")) {
        (Some(b"1"), Some(b"0")) => {
            consumed = leading(content, &mut segments)?;
            real(b"realsize")?
        }
        (None | Some(b"0"), None | Some(b"0" | b"1")) => {
            if let Some(map) = get(b"map") {
                let mut numbers =
                    map.split(|byte| *byte == b',').map(|text| decimal(text)?.ok_or_else(wrong));
                while let Some(offset) = numbers.next() {
                    push(length(offset?)?, length(numbers.next().ok_or_else(wrong)??)?, &mut segments)?;
                }
            } else if get(b"numblocks").is_some() {
                for pair in pax.sparse_numbers.chunks(2) {
                    push(pair[0], *pair.get(1).ok_or_else(wrong)?, &mut segments)?;
                }
            } else {
                return Ok(None);
            }
            real(b"size")?
        }
        _ => return Err(wrong()),
    };
    Ok(Some((segments, size, consumed)))
}

/// Form 1.0: a count and that many pairs, each number on a line of its own, in whole blocks.
fn leading(content: &mut impl Read, segments: &mut Vec<Segment>) -> Result<u64, TarError> {
    let mut consumed = 0;
    let mut block = [0; BLOCK];
    let mut at = BLOCK;
    let mut next = |consumed: &mut u64| -> Result<i64, TarError> {
        let mut value: i64 = 0;
        let mut digits = 0;
        loop {
            if at == BLOCK {
                content.read_exact(&mut block)?;
                *consumed += BLOCK as u64;
                at = 0;
            }
            let byte = block[at];
            at += 1;
            match byte {
                b'\n' if digits > 0 => return Ok(value),
                b'0'..=b'9' if digits < 18 => value = value * 10 + i64::from(byte - b'0'),
                _ => return Err(wrong()),
            }
            digits += 1;
        }
    };
    let count = next(&mut consumed)?;
    for _ in 0..count {
        let offset = length(next(&mut consumed)?)?;
        push(offset, length(next(&mut consumed)?)?, segments)?;
    }
    Ok(consumed)
}

fn push(offset: u64, length: u64, into: &mut Vec<Segment>) -> Result<(), TarError> {
    if into.len() == SEGMENTS_MAX {
        return Err(TarError::TooLarge { what: "segments in a sparse file", max: SEGMENTS_MAX as u64 });
    }
    into.push(Segment { offset, length });
    Ok(())
}

/// Checks that segments rise, do not overlap, stay within the file and are as long together as the content.
pub(super) fn check(segments: &[Segment], size: u64, content: u64) -> Result<(), TarError> {
    let mut end = 0;
    let mut sum: u64 = 0;
    for segment in segments {
        if segment.offset < end {
            return Err(wrong());
        }
        end = segment.offset.checked_add(segment.length).ok_or_else(wrong)?;
        sum += segment.length;
    }
    if end > size || sum != content { Err(wrong()) } else { Ok(()) }
}
