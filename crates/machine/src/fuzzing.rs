//! What `fuzz/` reaches of this crate besides its public part. Not part of any build that is shipped.

use crate::qemu::qmp::{Line, parse};

/// Reads a line of QMP: whether it is an answer, or `None` when it is not QMP.
#[must_use]
pub fn qmp_line(line: &[u8]) -> Option<bool> {
    parse(line).map(|line| matches!(line, Line::Answer(_)))
}
