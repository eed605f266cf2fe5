//! One process per data directory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// How long to wait for a lock that is taken. A process that has just ended, or a child of it that has not yet started its
/// program, may hold it for a moment longer.
const TIMEOUT: Duration = Duration::from_millis(500);

const LOCK_FILE: &str = "lock";

/// Longest text read from the lock file: a process id.
const PID_BYTES_MAX: u64 = 16;

/// A data directory that this process alone uses. The lock lasts until the value is dropped or the process ends in
/// whatever way. It does not pass to programs started meanwhile; a child that forks without starting a program shares it.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// Why a data directory could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process uses it.
    #[error("the data directory {} is in use{}", path.display(), .pid.map(|pid| format!(" by process {pid}")).unwrap_or_default())]
    DataDirInUse {
        /// The directory.
        path: PathBuf,
        /// Who has it, where that can be told.
        pid: Option<u32>,
    },
    /// It could not be made or opened.
    #[error("could not open the data directory {}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl DataDir {
    /// Takes the directory, making it when it is absent, readable by its owner alone.
    pub fn lock(path: &Path) -> Result<DataDir, LockError> {
        let failed = |source: io::Error| LockError::Open { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        // The pool is looked up in the kernel's list of mounts, which knows no symlinks.
        let path = path.canonicalize().map_err(failed)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK_FILE))
            .map_err(failed)?;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5))
                }
                Err(Errno::WOULDBLOCK) => {
                    let mut text = String::new();
                    let _ = (&mut lock).take(PID_BYTES_MAX).read_to_string(&mut text);
                    return Err(LockError::DataDirInUse { path, pid: text.trim().parse().ok() });
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        lock.set_len(0).map_err(failed)?;
        lock.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0).map_err(failed)?;
        Ok(DataDir { path, _lock: lock })
    }

    /// The directory, without symlinks.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kill_point;

    const VARIABLE: &str = "STORAGE_TEST_LOCK";

    #[test]
    fn a_second_taker_learns_who_was_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let first = DataDir::lock(&path).unwrap();
        match DataDir::lock(&path) {
            Err(LockError::DataDirInUse { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        DataDir::lock(&path).unwrap();
    }

    #[test]
    fn a_killed_process_leaves_the_directory_free() {
        let directory = tempfile::tempdir().unwrap();
        assert!(kill_point::run_killed_at(1, "lock::tests::take_and_die", &[(VARIABLE, directory.path())]));
        DataDir::lock(directory.path()).unwrap();
    }

    #[test]
    #[ignore = "the process that is killed by the test above"]
    fn take_and_die() {
        let Some(path) = std::env::var_os(VARIABLE) else { return };
        let _lock = DataDir::lock(Path::new(&path)).unwrap();
        kill_point::arm();
        kill_point::reached();
    }

    #[test]
    fn started_programs_do_not_inherit_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let lock = DataDir::lock(directory.path()).unwrap();
        let mut program =
            std::process::Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        drop(lock);
        let again = DataDir::lock(directory.path());
        drop(program.stdin.take());
        program.wait().unwrap();
        again.unwrap();
    }
}
