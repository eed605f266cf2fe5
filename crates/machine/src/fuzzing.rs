//! What `fuzz/` reaches of this crate besides its public part. Not part of any build that is shipped.

use crate::Counters;
use crate::qemu::qmp::{Line, parse};

/// Reads a line of QMP: whether it is an answer, or `None` when it is not QMP.
#[must_use]
pub fn qmp_line(line: &[u8]) -> Option<bool> {
    parse(line).map(|line| matches!(line, Line::Answer(_)))
}

/// What a line of Firecracker's counters adds, or `None` when it is not such a line.
#[must_use]
pub fn firecracker_counters(line: &[u8]) -> Option<Counters> {
    crate::firecracker::counters::parse(line)
}
