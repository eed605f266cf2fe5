//! What is mounted where, from the kernel's list.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A mount as `/proc/self/mountinfo` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Major and minor number of its device.
    pub(super) device: (u32, u32),
    /// What is mounted there: a device, mostly.
    pub(super) source: PathBuf,
}

/// The mount that one sees at `path`, which must be free of symlinks: the last one made there.
pub(super) fn mount_at(path: &Path) -> io::Result<Option<Mount>> {
    Ok(find(&std::fs::read("/proc/self/mountinfo")?, path))
}

/// Every mount point, in the order in which they were mounted.
pub(super) fn places() -> io::Result<Vec<PathBuf>> {
    let list = std::fs::read("/proc/self/mountinfo")?;
    Ok(list.split(|byte| *byte == b'\n').filter_map(parse).map(|(place, _)| place.into()).collect())
}

fn find(mountinfo: &[u8], path: &Path) -> Option<Mount> {
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .filter(|(place, _)| place.as_os_str().as_bytes() == path.as_os_str().as_bytes())
        .map(|(_, mount)| mount)
        .next_back()
}

fn parse(line: &[u8]) -> Option<(OsString, Mount)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let place = unescape(fields.nth(1)?);
    let source = fields.skip_while(|field| *field != b"-").nth(2)?;
    Some((place, Mount { device, source: unescape(source).into() }))
}

/// Undoes `\040` and the like.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = if byte == b'\\' { after.split_first_chunk::<3>() } else { None };
        let escaped = digits.and_then(|(digits, after)| {
            let value = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?;
            Some((value, after))
        });
        let (value, after) = escaped.unwrap_or((byte, after));
        bytes.push(value);
        rest = after;
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        30 27 7:3 / /data/a\\040pool rw,noatime shared:5 - xfs /dev/loop3 rw\n\
        31 27 7:4 / /data/pool rw,noatime - xfs /dev/loop4 rw\n\
        32 31 253:0 / /data/pool rw - ext4 /dev/vda rw\nbroken\n";

    #[test]
    fn the_last_mount_at_a_path_is_found() {
        let found = |path: &str| find(LIST, Path::new(path)).map(|mount| (mount.device, mount.source));
        assert_eq!(found("/proc"), Some(((0, 21), "proc".into())));
        assert_eq!(found("/data/a pool"), Some(((7, 3), "/dev/loop3".into())));
        assert_eq!(found("/data/pool"), Some(((253, 0), "/dev/vda".into())));
        assert_eq!(found("/data"), None);
    }

    #[test]
    fn escapes_are_undone() {
        for (field, expected) in
            [("a\\040b", "a b"), ("\\134", "\\"), ("\\04", "\\04"), ("\\xyz", "\\xyz"), ("", "")]
        {
            assert_eq!(unescape(field.as_bytes()), *expected);
        }
    }
}
