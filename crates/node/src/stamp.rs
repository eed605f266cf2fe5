//! Remembers that a file was verified, for as long as nobody touches it.
//!
//! Checking every byte of a snapshot at every restore would cost more than the restore. A file that was verified, or written by
//! us, since the host booted and whose size and times have not changed since is taken as still good; any other is verified again.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// When and as what a file was last known to be good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    boot_id: String,
    inode: u64,
    length: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Stamp {
    /// The stamp of a file as it is now.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Self::of_metadata(&std::fs::metadata(path)?)
    }

    fn of_metadata(metadata: &Metadata) -> io::Result<Self> {
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Ok(Self {
            boot_id: boot_id()?,
            inode: metadata.ino(),
            length: metadata.len(),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Whether the file at `path` is the one stamped, untouched.
    pub(crate) fn still_holds(&self, path: &Path) -> bool {
        Self::of(path).is_ok_and(|now| now == *self)
    }
}

/// Names this run of the host's kernel.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
