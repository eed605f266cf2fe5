//! Runs the external programs that builds need: found by absolute path, given arguments without a shell, watched by
//! a deadline, and ended with everything they started when nobody waits for them any more.
//!
//! Which programs exist is said here; each is called from exactly one other module.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;

/// Where programs are looked for. The caller's `PATH` does not matter, so a build does not depend on who starts it.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// All that programs inherit from our environment: how to reach package sources. Scripts of packages run with it, and
/// our own settings and secrets are none of their business.
const PROXY_VARIABLES: [&str; 6] =
    ["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];
/// A program that writes more than this to its standard output is stopped.
const STDOUT_LENGTH_MAX: u64 = 16 << 20;
/// How many of the last lines of its talk an error quotes.
const TAIL_LINES: usize = 20;
/// A longer line is cut in pieces.
const LINE_LENGTH_MAX: u64 = 4096;

/// Programs started by this process.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// A program this crate may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Downloads packages.
    AptGet,
    /// Reads package lists.
    AptCache,
    /// Reads apt's settings.
    AptConfig,
    /// Unpacks packages.
    DpkgDeb,
    /// Installs a Debian into a folder.
    Mmdebstrap,
    /// Makes a file system.
    Mke2fs,
    /// Makes a file system larger.
    Resize2fs,
    /// Starts a program in a process namespace of its own.
    Unshare,
}

impl Tool {
    /// The program's file name.
    pub const fn program(self) -> &'static str {
        match self {
            Self::AptGet => "apt-get",
            Self::AptCache => "apt-cache",
            Self::AptConfig => "apt-config",
            Self::DpkgDeb => "dpkg-deb",
            Self::Mmdebstrap => "mmdebstrap",
            Self::Mke2fs => "mke2fs",
            Self::Resize2fs => "resize2fs",
            Self::Unshare => "unshare",
        }
    }

    /// The Debian package that has it.
    pub const fn package(self) -> &'static str {
        match self {
            Self::AptGet | Self::AptCache | Self::AptConfig => "apt",
            Self::DpkgDeb => "dpkg",
            Self::Mmdebstrap => "mmdebstrap",
            Self::Mke2fs | Self::Resize2fs => "e2fsprogs",
            Self::Unshare => "util-linux",
        }
    }

    /// How many programs of any kind this process has started for images. It stays as it is while everything that is asked
    /// for is found finished.
    pub fn started() -> u64 {
        STARTED.load(Ordering::Relaxed)
    }

    /// Where it is on this host.
    pub(crate) fn find(self) -> Result<PathBuf, ToolError> {
        FOLDERS
            .iter()
            .map(|folder| Path::new(folder).join(self.program()))
            .find(|path| {
                path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
            })
            .ok_or(ToolError::Missing { tool: self })
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.program())
    }
}

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is not installed.
    #[error("`{tool}` is not installed; install the package `{}`", tool.package())]
    Missing {
        /// The program.
        tool: Tool,
    },
    /// It could not be started or watched.
    #[error("cannot run `{tool}`")]
    Run {
        /// The program.
        tool: Tool,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It did not end in time and was killed.
    #[error("`{tool}` did not finish within {} s; its last words: {tail}", limit.as_secs())]
    TimedOut {
        /// The program.
        tool: Tool,
        /// The time it had.
        limit: Duration,
        /// The last lines it wrote.
        tail: String,
    },
    /// It ended with an error.
    #[error("`{tool}` failed ({status}); its last words: {tail}")]
    Failed {
        /// The program.
        tool: Tool,
        /// How it ended.
        status: ExitStatus,
        /// The last lines it wrote.
        tail: String,
    },
    /// It failed because the disk is full.
    #[error("`{tool}` found no space left on the disk")]
    DiskFull {
        /// The program.
        tool: Tool,
    },
    /// It wrote more than any answer of it can be.
    #[error("`{tool}` wrote more than {STDOUT_LENGTH_MAX} bytes")]
    TooMuchOutput {
        /// The program.
        tool: Tool,
    },
}

/// One run of a program, described before it starts.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    tool: Tool,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    folder: Option<&'a Path>,
    limit: Duration,
    own_namespace: bool,
    held_lock: Option<&'a File>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(tool: Tool, limit: Duration) -> Self {
        Self {
            tool,
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            limit,
            own_namespace: false,
            held_lock: None,
        }
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    pub(crate) fn in_folder(mut self, folder: &'a Path) -> Self {
        self.folder = Some(folder);
        self
    }

    /// For programs that start others in sessions of their own: all of them share a process namespace, and killing
    /// the program ends the namespace and everything in it.
    pub(crate) fn in_own_namespace(mut self) -> Self {
        self.own_namespace = true;
        self
    }

    /// Gives the program the lock file as its standard input. A lock belongs to the open file, so while any process
    /// of the program lives, even after we were killed, nobody else takes the lock and works in the same folder.
    pub(crate) fn holding(mut self, lock: &'a File) -> Self {
        self.held_lock = Some(lock);
        self
    }

    /// Runs the program and returns its standard output.
    pub(crate) async fn output(self) -> Result<Vec<u8>, ToolError> {
        self.output_watched(|_| {}).await
    }

    /// Runs the program, shows each line of its standard error to `on_line`, and returns its standard output.
    pub(crate) async fn output_watched(self, mut on_line: impl FnMut(&str)) -> Result<Vec<u8>, ToolError> {
        let (tool, limit) = (self.tool, self.limit);
        let mut child = self.command()?.spawn().map_err(|source| ToolError::Run { tool, source })?;
        STARTED.fetch_add(1, Ordering::Relaxed);
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let mut group = KillOnDrop(group);
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();

        let mut tail = Tail::default();
        let work = async {
            let talk = read_lines(stderr, |line| {
                tail.push(line);
                on_line(line);
            });
            let (answer, talked) = tokio::join!(read_bounded(tool, stdout), talk);
            (child.wait().await, answer, talked)
        };
        let Ok((status, answer, talked)) = tokio::time::timeout(limit, work).await else {
            drop(group);
            // Its folder is about to be removed: it must not write there any more.
            let _ = child.wait().await;
            return Err(ToolError::TimedOut { tool, limit, tail: tail.text() });
        };
        let run_error = |source| ToolError::Run { tool, source };
        let status = status.map_err(run_error)?;
        group.0 = None;
        talked.map_err(run_error)?;
        let answer = answer?;
        if status.success() {
            Ok(answer)
        } else if tail.disk_full {
            Err(ToolError::DiskFull { tool })
        } else {
            Err(ToolError::Failed { tool, status, tail: tail.text() })
        }
    }

    fn command(&self) -> Result<Command, ToolError> {
        let program = self.tool.find()?;
        let mut command = if self.own_namespace {
            let mut command = Command::new(Tool::Unshare.find()?);
            command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        let input = match self.held_lock {
            None => Stdio::null(),
            Some(lock) => {
                Stdio::from(lock.try_clone().map_err(|source| ToolError::Run { tool: self.tool, source })?)
            }
        };
        command
            .args(&self.arguments)
            .env_clear()
            .envs(PROXY_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .env("HOME", "/root")
            .env("PATH", FOLDERS.join(":"))
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(folder) = self.folder {
            command.current_dir(folder);
        }
        Ok(command)
    }
}

/// Ends a process group whose leader has not been waited for, so its number cannot belong to anybody else yet.
struct KillOnDrop(Option<Pid>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended by itself in the meantime.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The last lines a program wrote, and whether one of all its lines said the disk is full.
#[derive(Default)]
struct Tail {
    lines: VecDeque<String>,
    disk_full: bool,
}

impl Tail {
    fn push(&mut self, line: &str) {
        self.disk_full |= line.contains("No space left on device") || line.contains("ENOSPC");
        if self.lines.len() == TAIL_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line.to_owned());
    }

    fn text(&self) -> String {
        if self.lines.is_empty() {
            return "(none)".to_owned();
        }
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join(" | ")
    }
}

async fn read_bounded(tool: Tool, stdout: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, ToolError> {
    let mut answer = Vec::new();
    if let Some(stdout) = stdout {
        stdout
            .take(STDOUT_LENGTH_MAX + 1)
            .read_to_end(&mut answer)
            .await
            .map_err(|source| ToolError::Run { tool, source })?;
    }
    if answer.len() as u64 > STDOUT_LENGTH_MAX { Err(ToolError::TooMuchOutput { tool }) } else { Ok(answer) }
}

async fn read_lines(stderr: Option<impl AsyncRead + Unpin>, mut on_line: impl FnMut(&str)) -> io::Result<()> {
    let Some(stderr) = stderr else { return Ok(()) };
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut reader).take(LINE_LENGTH_MAX).read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if !text.is_empty() {
            on_line(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// `unshare` without options runs any program; the tests borrow it to run a shell.
    fn shell(script: &str, limit: Duration) -> Run<'static> {
        Run::new(Tool::Unshare, limit).args(["--", "/bin/sh", "-c", script])
    }

    fn alive(pid: &str) -> bool {
        // A killed process stays a zombie until its parent looks after it.
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z')))
    }

    async fn until(what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(20), "waited too long until {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn output_and_talk_are_kept_apart() {
        let mut lines = Vec::new();
        let run = shell("echo answer; echo one >&2; echo two >&2", Duration::from_secs(20));
        let answer = run.output_watched(|line| lines.push(line.to_owned())).await.unwrap();
        assert_eq!(answer, b"answer\n");
        assert_eq!(lines, ["one", "two"]);
    }

    #[tokio::test]
    async fn a_failure_quotes_the_last_words() {
        let run = shell("for n in $(seq 100); do echo line $n >&2; done; exit 3", Duration::from_secs(20));
        let Err(ToolError::Failed { tail, status, .. }) = run.output().await else { panic!("it must fail") };
        assert_eq!(status.code(), Some(3));
        assert!(tail.starts_with("line 81 | ") && tail.ends_with("line 100"), "{tail}");
        let full = shell("echo 'cp: x: No space left on device' >&2; exit 1", Duration::from_secs(20));
        assert!(matches!(full.output().await, Err(ToolError::DiskFull { .. })));
    }

    #[tokio::test]
    async fn endless_output_is_stopped() {
        let error = shell("cat /dev/zero", Duration::from_secs(20)).output().await.unwrap_err();
        assert!(matches!(error, ToolError::TooMuchOutput { .. }), "{error}");
    }

    #[tokio::test]
    async fn our_environment_stays_ours() {
        let answer = shell("env", Duration::from_secs(20)).output().await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(!answer.contains("CARGO_MANIFEST_DIR"), "{answer}");
    }

    #[tokio::test]
    async fn at_the_deadline_the_whole_group_ends() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let error = shell(&script, Duration::from_millis(500)).output().await.unwrap_err();
        assert!(matches!(error, ToolError::TimedOut { .. }), "{error}");
        let pid = std::fs::read_to_string(&file).unwrap();
        until("the child is gone", || !alive(pid.trim())).await;
    }

    #[tokio::test]
    async fn a_dropped_run_takes_its_namespace_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        // A session of its own would escape the process group. The number is read from outside the namespace.
        let marker = format!("6{:05}", std::process::id());
        let script = format!("setsid sleep {marker} & echo started > {}; wait", file.display());
        let run = shell(&script, Duration::from_secs(60)).in_own_namespace();
        let sleeper = || {
            std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|entry| {
                std::fs::read(entry.path().join("cmdline"))
                    .is_ok_and(|line| line == format!("sleep\0{marker}\0").as_bytes())
            })
        };
        let task = tokio::spawn(run.output());
        until("the sleeper runs", || file.exists() && sleeper()).await;
        task.abort();
        let _ = task.await;
        until("the sleeper is gone", || !sleeper()).await;
    }
}
