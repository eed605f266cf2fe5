//! Runs `mkfs.xfs`, the only program this crate starts.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

const DIRECTORIES: [&str; 6] =
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/run/current-system/sw/bin"];

/// Formatting a sparse file takes a fraction of a second; past this it is killed.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Most of its complaints that are kept.
const STDERR_BYTES_MAX: u64 = 4096;

/// Why the image could not be formatted.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// The program is not installed.
    #[error("mkfs.xfs is not installed")]
    Missing,
    /// It could not be run or waited for.
    #[error("could not run mkfs.xfs")]
    Run(#[source] io::Error),
    /// It did not end in time.
    #[error("mkfs.xfs did not end within {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// It ended with an error.
    #[error("mkfs.xfs ended with {status}: {stderr}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        stderr: String,
    },
}

/// Where the program is.
pub(super) fn find() -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join("mkfs.xfs")).find(|path| path.is_file())
}

/// Makes an XFS file system with reflinks in an image file that has its final length.
pub(super) fn format(image: &Path) -> Result<(), MkfsError> {
    let program = find().ok_or(MkfsError::Missing)?;
    let mut child = Command::new(program)
        // Sectors of 4 KiB fit disks of any sector size below; nothing is discarded in a file that is one hole.
        .args(["-q", "-f", "-K", "-m", "crc=1,reflink=1", "-s", "size=4096", "-L", "pandastack"])
        .arg(image)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(MkfsError::Run)?;
    let mut stderr = String::new();
    let waited = wait_within(&child, TIMEOUT);
    if !matches!(waited, Ok(true)) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(waited.map_or_else(MkfsError::Run, |_| MkfsError::TimedOut));
    }
    // It has ended, and it says less than a pipe holds, so this cannot block.
    if let Some(pipe) = child.stderr.take() {
        let _ = pipe.take(STDERR_BYTES_MAX).read_to_string(&mut stderr);
    }
    let status = child.wait().map_err(MkfsError::Run)?;
    match status.success() {
        true => Ok(()),
        false => Err(MkfsError::Failed { status, stderr: stderr.trim().to_owned() }),
    }
}

/// Whether the process ended in time.
fn wait_within(child: &std::process::Child, timeout: Duration) -> io::Result<bool> {
    let pid = Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("a child without an id"))?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: 0 };
    loop {
        match rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
