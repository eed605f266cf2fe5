//! Copies a file and sums it. Holes stay holes, and the sum does not depend on where they are.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{BackupError, host};

/// Blocks of nothing but zeros are neither written nor summed.
const BLOCK_BYTES: u64 = 64 << 10;
/// Blocks read at once.
const READ_BYTES: u64 = 32 * BLOCK_BYTES;

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sum {
    /// Its length.
    pub(super) bytes: u64,
    /// Bytes of blocks that are not only zeros.
    pub(super) data_bytes: u64,
    /// SHA-256 of the number and the bytes of each such block of 64 KiB, in order.
    pub(super) sha256: String,
}

/// Which end of the copy failed.
#[derive(Debug)]
pub(super) enum Failure {
    Source(io::Error),
    Target(io::Error),
}

impl Failure {
    pub(super) fn explain(self, source: &Path, target: &Path) -> BackupError {
        match self {
            Self::Source(error) => host("read", source)(error),
            Self::Target(error) => host("write", target)(error),
        }
    }
}

/// Checksums a file.
pub(super) fn sum(file: &File) -> io::Result<Sum> {
    visit(file, &mut |_, _| Ok(())).map_err(|failure| match failure {
        Failure::Source(error) | Failure::Target(error) => error,
    })
}

/// Copies a file to one that is not there, such that the copy is on the disk; its mode and what it holds. Where the file system can,
/// both share their bytes.
pub(super) fn copy(source: &Path, target: &Path) -> Result<(u32, Sum), Failure> {
    let file = File::open(source).map_err(Failure::Source)?;
    let mode = file.metadata().map_err(Failure::Source)?.permissions().mode() & 0o7777;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target);
    let copy = made.map_err(Failure::Target)?;
    let is_shared = rustix::fs::ioctl_ficlone(&copy, &file).is_ok();
    let sum = match is_shared {
        true => sum(&file).map_err(Failure::Source)?,
        false => {
            let length = file.metadata().map_err(Failure::Source)?.len();
            copy.set_len(length).map_err(Failure::Target)?;
            visit(&file, &mut |at, bytes| copy.write_all_at(bytes, at))?
        }
    };
    copy.sync_all().map_err(Failure::Target)?;
    Ok((mode, sum))
}

/// Shows every block that is not only zeros.
fn visit(file: &File, each: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> Result<Sum, Failure> {
    let bytes = file.metadata().map_err(Failure::Source)?.len();
    let (mut hash, mut data_bytes, mut done) = (Sha256::new(), 0, 0);
    let mut buffer = vec![0; READ_BYTES as usize];
    for range in memory::extents::data_ranges(file, bytes).map_err(Failure::Source)? {
        // Two pieces of data may lie in one block.
        let mut at = done.max(range.start / BLOCK_BYTES * BLOCK_BYTES);
        let end = bytes.min(range.end.next_multiple_of(BLOCK_BYTES));
        while at < end {
            let length = READ_BYTES.min(end - at) as usize;
            file.read_exact_at(&mut buffer[..length], at).map_err(Failure::Source)?;
            for block in buffer[..length].chunks(BLOCK_BYTES as usize) {
                if block.iter().any(|byte| *byte != 0) {
                    hash.update((at / BLOCK_BYTES).to_le_bytes());
                    hash.update(block);
                    data_bytes += block.len() as u64;
                    each(at, block).map_err(Failure::Target)?;
                }
                at += block.len() as u64;
            }
        }
        done = done.max(at);
    }
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Sum { bytes, data_bytes, sha256 })
}

/// Reads a small file.
pub(super) fn read_small(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(io::Error::other(format!("it has more than {bytes_max} bytes"))),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_stay_holes_and_the_sum_does_not_know_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str, pieces: &[(u64, &[u8])]| {
            let file = File::create(path(name)).unwrap();
            file.set_len(9 << 20).unwrap();
            for (at, bytes) in pieces {
                file.write_all_at(bytes, *at).unwrap();
            }
        };
        let zeros = vec![0; 1 << 20];
        write("sparse", &[(5, b"begin"), (BLOCK_BYTES - 3, b"across"), ((9 << 20) - 3, b"end")]);
        write(
            "dense",
            &[(1 << 20, &zeros), (5, b"begin"), (BLOCK_BYTES - 3, b"across"), ((9 << 20) - 3, b"end")],
        );
        write("other", &[(6, b"begin"), (BLOCK_BYTES - 3, b"across"), ((9 << 20) - 3, b"end")]);
        let summed = |name: &str| sum(&File::open(path(name)).unwrap()).unwrap();
        assert_eq!(summed("sparse"), summed("dense"));
        assert_ne!(summed("sparse"), summed("other"));
        assert_eq!(summed("sparse").data_bytes, 3 * BLOCK_BYTES);
        let (mode, copied) = copy(&path("dense"), &path("copy")).unwrap();
        assert_eq!((mode, &copied), (0o644, &summed("sparse")));
        assert_eq!(std::fs::read(path("copy")).unwrap(), std::fs::read(path("sparse")).unwrap());
        std::fs::write(path("empty"), "").unwrap();
        assert_eq!(summed("empty").bytes, 0);
    }
}
