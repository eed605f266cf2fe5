//! Runs other programs: absolute path, argument list, deadline, bounded output, no orphan left behind.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Output kept from each of a program's streams; what comes after is read and dropped.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Reads from one stream before the deadline is looked at again, so that a flood cannot outrun it.
const READS_PER_TURN_MAX: usize = 64;
/// Input given to a program. It is written before anything is read, so it has to fit a pipe.
const INPUT_BYTES_MAX: usize = 4096;

/// A program to run once.
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    input: Vec<u8>,
    deadline: Duration,
}

/// How a program's run came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It ended by itself.
    Exited(ExitStatus),
    /// It was still running at its deadline and was killed.
    TimedOut,
    /// The watcher had seen enough and it was killed.
    Stopped,
}

/// What a finished program left.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) ended: Ended,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) elapsed: Duration,
}

/// Why a program gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("could not start {path}: {source}")]
    Start { path: PathBuf, source: std::io::Error },
    #[error("could not watch {path}: {source}")]
    Watch { path: PathBuf, source: std::io::Error },
    #[error("{path} gave no answer within {} ms", deadline.as_millis())]
    TimedOut { path: PathBuf, deadline: Duration },
    #[error("{path} ended with {status}: {stderr}")]
    Failed { path: PathBuf, status: ExitStatus, stderr: String },
}

impl Program {
    pub(crate) fn new(path: &Path, deadline: Duration) -> Program {
        Program { path: path.to_owned(), arguments: Vec::new(), input: Vec::new(), deadline }
    }

    pub(crate) fn args<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, arguments: I) -> Program {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(crate) fn input(mut self, input: &[u8]) -> Program {
        debug_assert!(input.len() <= INPUT_BYTES_MAX, "input has to fit a pipe");
        self.input = input.to_vec();
        self
    }

    /// Runs it and returns its standard output when it succeeded.
    pub(crate) fn output(self) -> Result<String, ProgramError> {
        let (path, deadline) = (self.path.clone(), self.deadline);
        let finished = self.run(|_, _| false)?;
        match finished.ended {
            Ended::Exited(status) if status.success() => {
                Ok(String::from_utf8_lossy(&finished.stdout).into_owned())
            }
            Ended::Exited(status) => {
                let stderr = first_lines(&finished.stderr);
                Err(ProgramError::Failed { path, status, stderr })
            }
            Ended::TimedOut | Ended::Stopped => Err(ProgramError::TimedOut { path, deadline }),
        }
    }

    /// Runs it until it ends, its deadline passes, or `enough(stdout, stderr)`, asked whenever there is more output.
    /// Whatever happens, the program and its children in the same process group are gone when this returns.
    pub(crate) fn run(self, mut enough: impl FnMut(&[u8], &[u8]) -> bool) -> Result<Finished, ProgramError> {
        let started = Instant::now();
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .env("LC_ALL", "C")
            .stdin(if self.input.is_empty() { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: the closure runs between fork and exec and makes one system call, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
            });
        }
        let child =
            command.spawn().map_err(|source| ProgramError::Start { path: self.path.clone(), source })?;
        let mut running = Running { child, reaped: false };
        let watched = running.watch(&self.input, started + self.deadline, &mut enough);
        let (ended, stdout, stderr) =
            watched.map_err(|source| ProgramError::Watch { path: self.path.clone(), source })?;
        Ok(Finished { ended, stdout, stderr, elapsed: started.elapsed() })
    }
}

/// A started child. Dropping it kills its process group and reaps it.
struct Running {
    child: Child,
    reaped: bool,
}

impl Running {
    fn watch(
        &mut self,
        input: &[u8],
        deadline: Instant,
        enough: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> std::io::Result<(Ended, Vec<u8>, Vec<u8>)> {
        let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        if let Some(mut stdin) = self.child.stdin.take() {
            match stdin.write_all(input) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        let mut stdout = Stream::new(self.child.stdout.take().map(OwnedFd::from))?;
        let mut stderr = Stream::new(self.child.stderr.take().map(OwnedFd::from))?;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let exited = wait(&pidfd, &stdout, &stderr, remaining)?;
            let news = stdout.drain()? | stderr.drain()?;
            let ended = if exited {
                self.kill_group();
                let status = self.child.wait()?;
                self.reaped = true;
                Some(Ended::Exited(status))
            } else if news && enough(&stdout.kept, &stderr.kept) {
                Some(Ended::Stopped)
            } else if remaining.is_zero() {
                Some(Ended::TimedOut)
            } else {
                None
            };
            if let Some(ended) = ended {
                return Ok((ended, stdout.kept, stderr.kept));
            }
        }
    }

    /// Kills whatever the program left behind too. Only before it is reaped: until then its id, which is the
    /// group's, cannot belong to anyone else.
    fn kill_group(&self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill_group();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Waits for output, the end of the process, or the time; true when the process has ended.
fn wait(pidfd: &OwnedFd, stdout: &Stream, stderr: &Stream, time: Duration) -> std::io::Result<bool> {
    let mut waiting = vec![PollFd::new(pidfd, PollFlags::IN)];
    for stream in [stdout, stderr] {
        if let Some(fd) = &stream.file {
            waiting.push(PollFd::new(fd, PollFlags::IN));
        }
    }
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut waiting, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(waiting[0].revents().contains(PollFlags::IN)),
        Err(errno) => Err(errno.into()),
    }
}

/// One output stream of a child, read without blocking.
struct Stream {
    file: Option<std::fs::File>,
    kept: Vec<u8>,
}

impl Stream {
    fn new(fd: Option<OwnedFd>) -> std::io::Result<Stream> {
        if let Some(fd) = &fd {
            fcntl_setfl(fd.as_fd(), fcntl_getfl(fd.as_fd())? | OFlags::NONBLOCK)?;
        }
        Ok(Stream { file: fd.map(Into::into), kept: Vec::new() })
    }

    /// Reads what is there now; true when there was something.
    fn drain(&mut self) -> std::io::Result<bool> {
        let mut news = false;
        let mut buffer = [0u8; 8192];
        for _ in 0..READS_PER_TURN_MAX {
            let Some(file) = &mut self.file else { break };
            match file.read(&mut buffer) {
                Ok(0) => self.file = None,
                Ok(count) => {
                    let room = OUTPUT_BYTES_MAX - self.kept.len();
                    self.kept.extend_from_slice(&buffer[..count.min(room)]);
                    news = true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(news)
    }
}

/// The start of what a program said, as one short line for a report.
pub(crate) fn first_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2048)]);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
    let joined = lines.join("; ");
    joined.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: Duration) -> Program {
        Program::new(Path::new("/bin/sh"), deadline).args(["-c", script])
    }

    #[test]
    fn output_and_failure_are_told_apart() {
        let long = Duration::from_secs(20);
        assert_eq!(shell("cat", long).input(b"hello").output().unwrap(), "hello");
        let failed = shell("echo broken >&2; exit 3", long).output().unwrap_err();
        assert!(failed.to_string().contains("broken"), "{failed}");
        let missing = Program::new(Path::new("/nonexistent/program"), long).output().unwrap_err();
        assert!(matches!(missing, ProgramError::Start { .. }));
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let finished =
            shell("sleep 1000 & echo $!; wait", Duration::from_millis(300)).run(|_, _| false).unwrap();
        assert_eq!(finished.ended, Ended::TimedOut);
        assert!(finished.elapsed < Duration::from_secs(10));
        let pid: i32 = String::from_utf8(finished.stdout).unwrap().trim().parse().unwrap();
        let gone = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Err(_) => true,
            Ok(stat) => stat.contains(") Z "),
        };
        let patience = Instant::now() + Duration::from_secs(10);
        while !gone() {
            assert!(Instant::now() < patience, "the grandchild {pid} is still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_watcher_ends_a_program_early_and_floods_are_bounded() {
        let finished = shell("echo ready; sleep 1000", Duration::from_secs(60))
            .run(|stdout, _| stdout.starts_with(b"ready"))
            .unwrap();
        assert_eq!(finished.ended, Ended::Stopped);
        let flood = shell("head -c 3000000 /dev/zero", Duration::from_secs(60)).run(|_, _| false).unwrap();
        assert_eq!(flood.stdout.len(), OUTPUT_BYTES_MAX);
    }
}
