//! PAX records: `length key=value\n`, which say of the next entry what its header has no room for.

use std::collections::BTreeMap;

use super::header::{length, owner};
use super::{Mtime, TarError};

const XATTR: &[u8] = b"SCHILY.xattr.";
const SPARSE: &[u8] = b"GNU.sparse.";

/// What PAX records say about an entry.
#[derive(Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<Mtime>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Records about a sparse file, without their common beginning.
    pub(super) sparse: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Offsets and lengths of the oldest form, which repeats its keys.
    pub(super) sparse_numbers: Vec<u64>,
}

impl Pax {
    pub(super) fn parse(mut rest: &[u8]) -> Result<Self, TarError> {
        let mut pax = Self::default();
        while !rest.is_empty() {
            let (key, value, after) = record(rest)?;
            pax.take(key, value)?;
            rest = after;
        }
        Ok(pax)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), TarError> {
        let named = |value: &[u8]| match value.contains(&0) {
            true => Err(TarError::damaged("a name holds a NUL")),
            false => Ok(Some(value.to_vec()).filter(|value| !value.is_empty())),
        };
        match key {
            b"path" => self.path = named(value)?,
            b"linkpath" => self.link = named(value)?,
            // An empty value takes a record back.
            b"size" => self.size = decimal(value)?.map(length).transpose()?,
            b"uid" => self.uid = decimal(value)?.map(owner).transpose()?,
            b"gid" => self.gid = decimal(value)?.map(owner).transpose()?,
            b"mtime" if value.is_empty() => self.mtime = None,
            b"mtime" => self.mtime = Some(time(value)?),
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                let number = decimal(value)?.map(length).transpose()?;
                self.sparse_numbers.push(number.ok_or(TarError::damaged("a sparse file's map is wrong"))?);
            }
            _ => {
                if let Some(name) = key.strip_prefix(XATTR) {
                    if name.is_empty() || name.contains(&0) {
                        return Err(TarError::damaged("an extended attribute has no name"));
                    }
                    self.xattrs.insert(name.to_vec(), value.to_vec());
                } else if let Some(name) = key.strip_prefix(SPARSE) {
                    self.sparse.insert(name.to_vec(), value.to_vec());
                }
            }
        }
        Ok(())
    }
}

type Record<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// Key, value and what follows the first record.
fn record(bytes: &[u8]) -> Result<Record<'_>, TarError> {
    let wrong = || TarError::damaged("a PAX record is wrong");
    let space = bytes.iter().take(20).position(|byte| *byte == b' ').ok_or_else(wrong)?;
    let long = usize::try_from(decimal(&bytes[..space])?.ok_or_else(wrong)?).map_err(|_| wrong())?;
    // At least the length, a space, one letter, `=` and the end of the line.
    if long < space + 4 || long > bytes.len() || bytes[long - 1] != b'\n' {
        return Err(wrong());
    }
    let (record, rest) = bytes.split_at(long);
    let record = &record[space + 1..long - 1];
    let equals = record.iter().position(|byte| *byte == b'=').filter(|at| *at > 0).ok_or_else(wrong)?;
    Ok((&record[..equals], &record[equals + 1..], rest))
}

/// A decimal number that fits; nothing when empty.
pub(super) fn decimal(text: &[u8]) -> Result<Option<i64>, TarError> {
    let wrong = || TarError::damaged("a number in a PAX record is wrong");
    if text.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    if text.starts_with('+') {
        return Err(wrong());
    }
    text.parse().map(Some).map_err(|_| wrong())
}

/// Seconds with a fraction, perhaps before 1970.
fn time(text: &[u8]) -> Result<Mtime, TarError> {
    let wrong = || TarError::damaged("a time in a PAX record is wrong");
    let (whole, fraction) = match text.iter().position(|byte| *byte == b'.') {
        None => (text, &b""[..]),
        Some(point) => (&text[..point], &text[point + 1..]),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err(wrong());
    }
    let mut nanoseconds = 0;
    for place in 0..9 {
        nanoseconds = nanoseconds * 10 + u32::from(fraction.get(place).map_or(0, |digit| digit - b'0'));
    }
    let seconds = decimal(whole)?.unwrap_or(0);
    if whole.starts_with(b"-") && nanoseconds > 0 {
        // −1.25 is a quarter of a second before −1.
        let seconds = seconds.checked_sub(1).ok_or_else(wrong)?;
        return Ok(Mtime { seconds, nanoseconds: 1_000_000_000 - nanoseconds });
    }
    Ok(Mtime { seconds, nanoseconds })
}
