//! Copies of files that share their bytes until one of them is written.
//!
//! Where the file system cannot share, the bytes are copied and holes stay holes.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::io::Errno;

/// Mode of a clone unless the caller wants another: its owner alone may read it.
pub const PRIVATE_MODE: u32 = 0o600;

const COPY_BYTES: usize = 1 << 20;

/// How a clone came to its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloned {
    /// It shares them with its source.
    Shared,
    /// It has its own.
    Copied,
}

/// Why a file could not be cloned. No target is left.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// Something is there already.
    #[error("the target of the clone exists already")]
    TargetExists,
    /// No space is left.
    #[error("no space left for the clone")]
    NoSpace,
    /// The source could not be read.
    #[error("could not read the file to clone")]
    Source(#[source] io::Error),
    /// The target could not be written.
    #[error("could not write the clone")]
    Target(#[source] io::Error),
}

/// Clones `source` to `target`, which must not exist, with [`PRIVATE_MODE`]. The file returned is open for reading and
/// writing.
pub fn clone_file(source: &Path, target: &Path) -> Result<(File, Cloned), CloneError> {
    let source = File::open(source).map_err(CloneError::Source)?;
    clone_open_file(&source, target, PRIVATE_MODE)
}

/// As [`clone_file`], from a file that is open and with a mode of the caller's choice.
pub fn clone_open_file(source: &File, target: &Path, mode: u32) -> Result<(File, Cloned), CloneError> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(target).map_err(
        |error| match error.kind() {
            io::ErrorKind::AlreadyExists => CloneError::TargetExists,
            _ => explain(error),
        },
    )?;
    match fill(source, &file, mode) {
        Ok(how) => Ok((file, how)),
        Err(error) => {
            let _ = std::fs::remove_file(target);
            Err(error)
        }
    }
}

fn explain(error: io::Error) -> CloneError {
    if crate::is_no_space(&error) { CloneError::NoSpace } else { CloneError::Target(error) }
}

fn fill(source: &File, target: &File, mode: u32) -> Result<Cloned, CloneError> {
    // The umask may have taken bits away.
    target.set_permissions(Permissions::from_mode(mode)).map_err(explain)?;
    match share(source, target) {
        Ok(true) => return Ok(Cloned::Shared),
        Ok(false) => copy(source, target)?,
        Err(error) => return Err(explain(error)),
    }
    Ok(Cloned::Copied)
}

/// Makes `target` share all bytes of `source`; `false` where these two files cannot share.
pub(crate) fn share(source: &File, target: &File) -> io::Result<bool> {
    loop {
        return match rustix::fs::ioctl_ficlone(target, source) {
            Ok(()) => Ok(true),
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::XDEV | Errno::NOSYS) => Ok(false),
            Err(errno) => Err(errno.into()),
        };
    }
}

fn copy(source: &File, target: &File) -> Result<(), CloneError> {
    let length = source.metadata().map_err(CloneError::Source)?.len();
    target.set_len(length).map_err(explain)?;
    for data in memory::extents::data_ranges(source, length).map_err(CloneError::Source)? {
        copy_range(source, target, data.start, data.end)?;
    }
    Ok(())
}

/// Copies inside the kernel as far as that goes, and the rest through a buffer.
fn copy_range(source: &File, target: &File, start: u64, end: u64) -> Result<(), CloneError> {
    let (mut from, mut to) = (start, start);
    while from < end {
        let wanted = usize::try_from(end - from).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), wanted) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => break,
            Err(errno) => return Err(explain(errno.into())),
        }
    }
    let mut buffer = vec![0; COPY_BYTES.min((end - from) as usize)];
    while from < end {
        let wanted = buffer.len().min((end - from) as usize);
        source.read_exact_at(&mut buffer[..wanted], from).map_err(CloneError::Source)?;
        target.write_all_at(&buffer[..wanted], from).map_err(explain)?;
        from += wanted as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pool::TestPool;
    use std::os::unix::fs::MetadataExt;

    fn source(directory: &Path) -> std::path::PathBuf {
        let path = directory.join("source");
        let file = File::create_new(&path).unwrap();
        file.set_len(50_000_001).unwrap();
        file.write_all_at(&[1; 100_000], 30_000_000).unwrap();
        file.write_all_at(b"end", 49_999_998).unwrap();
        path
    }

    fn check(directory: &Path, expected: Cloned) {
        let source = source(directory);
        let target = directory.join("target");
        let (clone, how) = clone_file(&source, &target).unwrap();
        assert_eq!(how, expected);
        assert_eq!(clone.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(std::fs::read(&source).unwrap() == std::fs::read(&target).unwrap());
        clone.sync_all().unwrap();
        assert!(clone.metadata().unwrap().blocks() * 512 < 1_000_000, "the holes are gone");
        clone.write_all_at(b"changed", 30_000_000).unwrap();
        assert_eq!(std::fs::read(&source).unwrap()[30_000_000], 1);
        assert!(matches!(clone_file(&source, &target), Err(CloneError::TargetExists)));

        let other = directory.join("readable");
        let (readable, _) = clone_open_file(&File::open(&source).unwrap(), &other, 0o444).unwrap();
        assert_eq!(readable.metadata().unwrap().mode() & 0o777, 0o444);
    }

    #[test]
    fn bytes_are_shared_on_a_pool() {
        let pool = TestPool::new();
        check(pool.path(), Cloned::Shared);
    }

    #[test]
    fn bytes_are_copied_where_they_cannot_be_shared() {
        let directory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
        check(directory.path(), Cloned::Copied);
    }

    #[test]
    fn bytes_are_copied_across_file_systems() {
        let pool = TestPool::new();
        let memory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
        let source = source(memory.path());
        let target = pool.path().join("target");
        let (_, how) = clone_file(&source, &target).unwrap();
        assert_eq!(how, Cloned::Copied);
        assert!(std::fs::read(&source).unwrap() == std::fs::read(&target).unwrap());
    }

    #[test]
    fn a_full_disk_leaves_no_target() {
        let pool = TestPool::new();
        let memory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
        let source = memory.path().join("source");
        std::fs::write(&source, vec![7; 64 << 20]).unwrap();
        pool.fill_leaving(16 << 20);
        let target = pool.path().join("target");
        assert!(matches!(clone_file(&source, &target), Err(CloneError::NoSpace)));
        assert!(!target.exists());
    }
}
