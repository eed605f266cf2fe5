//! Names of entries, split into parts that mean what they say.

use super::error::UnpackCause;
use super::policy::{AbsoluteNames, Policy};

/// Longest part of a name that file systems take.
const PART_BYTES_MAX: usize = 255;

/// The parts of a name; none for the root itself.
pub(super) fn parts<'a>(name: &'a [u8], policy: &Policy) -> Result<Vec<&'a [u8]>, UnpackCause> {
    if name.is_empty() {
        return Err(UnpackCause::name("it is empty"));
    }
    if name.len() > policy.limits.path_bytes_max {
        return Err(UnpackCause::Limit { what: "bytes in a name", max: policy.limits.path_bytes_max as u64 });
    }
    if name.contains(&0) {
        return Err(UnpackCause::name("it holds a NUL"));
    }
    if name.starts_with(b"/") && policy.absolute_names == AbsoluteNames::Refuse {
        return Err(UnpackCause::name("it starts with a slash"));
    }
    let mut parts = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(UnpackCause::name("it has `..` in it")),
            _ if part.len() > PART_BYTES_MAX => {
                return Err(UnpackCause::Limit {
                    what: "bytes in a part of a name",
                    max: PART_BYTES_MAX as u64,
                });
            }
            _ => parts.push(part),
        }
    }
    Ok(parts)
}
