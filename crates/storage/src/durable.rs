//! Small files that are replaced as a whole, and the syncing that makes them survive a power cut.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::random::random_name;

/// What a write survives once it has returned. Killing the process never loses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// A crash of the machine: the bytes and their name are on the disk.
    Synced,
    /// A crash of the process only.
    Unsynced,
}

/// Puts `bytes` at `path`, replacing what is there: a reader sees the old file or the new one, never a part. After an
/// error the old one is still there and nothing else is. The file can be read by its owner alone.
pub fn write_file(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let directory = path.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", random_name()?));
    let temporary = Temporary { path: directory.join(temporary) };

    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary.path)?;
    file.write_all(bytes)?;
    if durability == Durability::Synced {
        file.sync_all()?;
    }
    std::fs::rename(&temporary.path, path)?;
    std::mem::forget(temporary);
    if durability == Durability::Synced {
        sync_directory(directory)?;
    }
    Ok(())
}

/// Makes the names in a directory survive a power cut.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// A file that is removed unless it was renamed.
struct Temporary {
    path: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_made_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        for (bytes, durability) in [(&b"one"[..], Durability::Synced), (b"two", Durability::Unsynced)] {
            write_file(&path, bytes, durability).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_failure_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("occupied");
        std::fs::create_dir(&path).unwrap();
        assert!(write_file(&path, b"bytes", Durability::Synced).is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(write_file(&directory.path().join("absent/file"), b"bytes", Durability::Synced).is_err());
    }
}
