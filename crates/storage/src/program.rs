//! Runs the few programs of the host that this crate needs, each from one module.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

const DIRECTORIES: [&str; 6] =
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/run/current-system/sw/bin"];

/// Formatting a sparse file takes a fraction of a second; past this a program is killed.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Most of its complaints that are kept.
const STDERR_BYTES_MAX: u64 = 4096;

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The program is not installed.
    #[error("{program} is not installed")]
    Missing {
        /// Its name.
        program: &'static str,
    },
    /// It could not be run or waited for.
    #[error("could not run {program}")]
    Run {
        /// Its name.
        program: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It did not end in time.
    #[error("{program} did not end within {} s", TIMEOUT.as_secs())]
    TimedOut {
        /// Its name.
        program: &'static str,
    },
    /// It ended with an error.
    #[error("{program} ended with {status}: {stderr}")]
    Failed {
        /// Its name.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        stderr: String,
    },
}

/// Where a program is.
pub(crate) fn find(program: &'static str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(program)).find(|path| path.is_file())
}

/// Runs a program on a file, to its end.
pub(crate) fn run(program: &'static str, arguments: &[&str], file: &Path) -> Result<(), ProgramError> {
    let failed = |source| ProgramError::Run { program, source };
    let path = find(program).ok_or(ProgramError::Missing { program })?;
    let mut child = Command::new(path)
        .args(arguments)
        .arg(file)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut stderr = String::new();
    let waited = wait_within(&child, TIMEOUT);
    if !matches!(waited, Ok(true)) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(waited.map_or_else(failed, |_| ProgramError::TimedOut { program }));
    }
    // It has ended, and it says less than a pipe holds, so this cannot block.
    if let Some(pipe) = child.stderr.take() {
        let _ = pipe.take(STDERR_BYTES_MAX).read_to_string(&mut stderr);
    }
    let status = child.wait().map_err(failed)?;
    match status.success() {
        true => Ok(()),
        false => Err(ProgramError::Failed { program, status, stderr: stderr.trim().to_owned() }),
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
