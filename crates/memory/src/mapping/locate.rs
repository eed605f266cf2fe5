//! Reads from `/proc/PID/maps` where a file is mapped as a guest's RAM, in which parts, and which pieces of it were replaced.
//!
//! A line of the file fixes where its neighbours must be: at the same distance between offset and address. What is missing
//! between lines of one distance has to be anonymous memory at that very place. Between lines of different distances a new
//! part begins. The guest decides which pieces become anonymous, and the kernel joins them with anonymous memory of the
//! VMM's own, so where a part begins is never guessed: what is not certain is not found.

use std::ops::Range;

use super::{Part, Sharing};

/// Offsets in the RAM at which Firecracker begins another part, because its devices lie there in the guest's address space.
/// Memory that was given back next to them may belong to either side.
const BORDERS: &[u64] = if cfg!(target_arch = "aarch64") { &[254 << 30] } else { &[3 << 30, 255 << 30] };

/// Where a file is mapped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Located {
    /// Ascending, together all of the file.
    pub(super) parts: Vec<Part>,
    /// What was replaced by anonymous memory: ascending, apart from each other.
    pub(super) given_back: Vec<Range<u64>>,
    pub(super) sharing: Sharing,
}

/// One line of `/proc/PID/maps`, without the name at its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) addresses: Range<u64>,
    sharing: Sharing,
    offset: u64,
    pub(super) device: (u32, u32),
    pub(super) inode: u64,
    is_writable: bool,
    is_named: bool,
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let mut fields = text.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (is_writable, sharing) = match fields.next()?.as_bytes() {
            [_, write, _, b'p'] => (*write == b'w', Sharing::Private),
            [_, write, _, b's'] => (*write == b'w', Sharing::Shared),
            _ => return None,
        };
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let addresses = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        (addresses.start < addresses.end).then_some(Line {
            addresses,
            sharing,
            offset,
            device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
            inode: fields.next()?.parse().ok()?,
            is_writable,
            is_named: fields.next().is_some(),
        })
    }

    /// Where this line ends in the file. A mapping that would pass the last offset is none of ours.
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.addresses.end - self.addresses.start)
    }

    /// Whether a guest may have this in place of a piece of the file.
    fn is_anonymous(&self) -> bool {
        self.inode == 0 && !self.is_named && self.is_writable && self.sharing == Sharing::Private
    }

    /// What address and offset of every byte of one part have between them.
    fn distance(&self) -> u64 {
        self.addresses.start.wrapping_sub(self.offset)
    }
}

/// Where `length` bytes of the file are mapped: the first place that has all of it in order at adjacent addresses, or else
/// the only way to put all its lines and anonymous memory together.
pub(super) fn locate(maps: &str, length: u64, mut is_the_file: impl FnMut(&Line) -> bool) -> Option<Located> {
    let mut of_file: Vec<Line> = Vec::new();
    let mut anonymous: Vec<Range<u64>> = Vec::new();
    for line in maps.lines().filter_map(Line::parse) {
        if is_the_file(&line) {
            of_file.push(line);
        } else if line.is_anonymous() {
            match anonymous.last_mut() {
                Some(last) if last.end == line.addresses.start => last.end = line.addresses.end,
                _ => anonymous.push(line.addresses),
            }
        }
    }
    in_one_piece(&of_file, length).or_else(|| put_together(of_file, &anonymous, length))
}

fn in_one_piece(lines: &[Line], length: u64) -> Option<Located> {
    let mut found: Option<(Range<u64>, Sharing)> = None;
    for line in lines {
        let continues = found.as_ref().is_some_and(|(so_far, sharing)| {
            line.addresses.start == so_far.end
                && line.offset == so_far.end - so_far.start
                && line.sharing == *sharing
        });
        found = match found {
            Some((so_far, sharing)) if continues => Some((so_far.start..line.addresses.end, sharing)),
            _ if line.offset == 0 => Some((line.addresses.clone(), line.sharing)),
            _ => None,
        };
        if let Some((so_far, sharing)) = &found
            && so_far.end - so_far.start == length
        {
            let part = Part { offset: 0, address: so_far.start, length };
            return Some(Located { parts: vec![part], given_back: Vec::new(), sharing: *sharing });
        }
    }
    None
}

fn put_together(mut lines: Vec<Line>, anonymous: &[Range<u64>], length: u64) -> Option<Located> {
    lines.sort_unstable_by_key(|line| line.offset);
    let (first, last) = (lines.first()?, lines.last()?);
    let sharing = first.sharing;
    if lines.iter().any(|line| line.sharing != sharing) || last.end() > length {
        return None;
    }
    let mut given_back = Vec::new();
    let mut give = |range: Range<u64>| {
        if !range.is_empty() {
            given_back.push(range);
        }
    };
    // At both ends there is one line only to go by, so nothing may hide a whole part.
    let head = first.offset;
    if head > 0
        && (BORDERS.iter().any(|border| (1..=head).contains(border))
            || room_before(anonymous, first.addresses.start) < head)
    {
        return None;
    }
    give(0..head);
    let mut parts = vec![Part { offset: 0, address: first.addresses.start.checked_sub(head)?, length: 0 }];
    for pair in lines.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        let gap = next.offset.checked_sub(one.end())?;
        if one.distance() == next.distance() {
            if gap > 0 && room_after(anonymous, one.addresses.end) < gap {
                return None;
            }
        } else {
            let border = one.end() + border_within(one, next, anonymous)?;
            let part = parts.last_mut()?;
            part.length = border - part.offset;
            let address = next.addresses.start.checked_sub(next.offset - border)?;
            parts.push(Part { offset: border, address, length: 0 });
        }
        give(one.end()..next.offset);
    }
    let tail = length - last.end();
    if tail > 0
        && (BORDERS.iter().any(|border| (last.end()..length).contains(border))
            || room_after(anonymous, last.addresses.end) < tail)
    {
        return None;
    }
    give(last.end()..length);
    let part = parts.last_mut()?;
    part.length = length - part.offset;
    let is_private = sharing == Sharing::Private;
    (is_private || given_back.is_empty()).then_some(Located { parts, given_back, sharing })
}

/// How much of the gap between the lines of two parts belongs to the first of them, if that is certain.
fn border_within(one: &Line, next: &Line, anonymous: &[Range<u64>]) -> Option<u64> {
    let gap = next.offset - one.end();
    if gap == 0 {
        return Some(0);
    }
    let most = room_after(anonymous, one.addresses.end).min(gap);
    let least = gap.saturating_sub(room_before(anonymous, next.addresses.start));
    if least == most {
        return Some(most);
    }
    let mut possible = BORDERS
        .iter()
        .filter_map(|border| border.checked_sub(one.end()))
        .filter(|at| (least..=most).contains(at));
    possible.next().filter(|_| possible.next().is_none())
}

/// Bytes of anonymous memory from `address` on.
fn room_after(anonymous: &[Range<u64>], address: u64) -> u64 {
    let index = anonymous.partition_point(|range| range.end <= address);
    anonymous.get(index).filter(|range| range.start <= address).map_or(0, |range| range.end - address)
}

/// Bytes of anonymous memory up to `address`.
fn room_before(anonymous: &[Range<u64>], address: u64) -> u64 {
    let index = anonymous.partition_point(|range| range.end < address);
    anonymous.get(index).filter(|range| range.start < address).map_or(0, |range| address - range.start)
}

#[cfg(test)]
mod tests;
