//! Processes of the guest. They belong to the guest, not to a stream: a stream that ends detaches and nothing more.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::path::GuestPath;

/// What to do with processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessRequest {
    /// Start one. Attached → `Event::Started`, output, `Response::Exited`; detached → `Response::Started`. Data from the host
    /// goes to its standard input, and the host's `End` closes that.
    Start(ProcessSpec),
    /// Follow its output → as an attached `Start`, beginning with what the rings still hold.
    Attach {
        /// The process.
        process: ProcessId,
        /// Where to begin.
        from: Offsets,
    },
    /// Feed its standard input: data from the host, then its `End` → `Response::Done` when the process's pipe has taken all.
    Input {
        /// The process.
        process: ProcessId,
        /// What the host's `End` means.
        end: InputEnd,
    },
    /// Send a signal.
    Signal {
        /// The process.
        process: ProcessId,
        /// Its number.
        signal: i32,
        /// To whom.
        scope: SignalScope,
    },
    /// Change the size of its terminal.
    Resize {
        /// The process.
        process: ProcessId,
        /// The new size.
        size: TerminalSize,
    },
    /// State of one process → `Response::Process`.
    Status {
        /// The process.
        process: ProcessId,
    },
    /// All processes, running and recently ended → `Event::Processes` batches, `Response::Done`.
    List,
    /// What processes get from now on where a caller says nothing, also after the guest was booted anew → `Response::Done`.
    SetDefaults(ProcessDefaults),
}

/// What a template's image says about the processes of its guests. Above the guest's own defaults, below what a caller says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessDefaults {
    /// Variables.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: Option<GuestPath>,
    /// Who runs them, as `user`, `uid`, `user:group` or `uid:gid`.
    pub user: Option<String>,
}

/// Names a process that the guest program started. Never reused while the guest lives; not the pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(pub u32);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A process to start. It gets a session and process group of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// What to run.
    pub command: Command,
    /// Working directory; when absent that of the guest's [`ProcessDefaults`], or the user's home; `/` where that is missing.
    pub cwd: Option<GuestPath>,
    /// Variables, on top of `PATH HOME USER LOGNAME SHELL LANG` (and `TERM` with a terminal) and the guest's [`ProcessDefaults`].
    pub env: Vec<(String, String)>,
    /// Who runs it; when absent that of the guest's [`ProcessDefaults`], or root.
    pub user: Option<User>,
    /// Standard input. Ignored with a terminal, which always has input.
    pub stdin: Stdin,
    /// A terminal instead of pipes: output is merged into standard output.
    pub terminal: Option<Terminal>,
    /// After this long the whole process group is killed.
    pub timeout_ms: Option<u64>,
    /// The caller's own name for it.
    pub tag: Option<String>,
    /// Whether the stream follows it.
    pub attachment: Attachment,
}

impl ProcessSpec {
    /// Runs `command` attached, as the guest's defaults say, without input, terminal or timeout.
    #[must_use]
    pub fn new(command: Command) -> ProcessSpec {
        ProcessSpec {
            command,
            cwd: None,
            env: Vec::new(),
            user: None,
            stdin: Stdin::Null,
            terminal: None,
            timeout_ms: None,
            tag: None,
            attachment: Attachment::Attached,
        }
    }

    /// A program and its arguments.
    pub fn argv<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> ProcessSpec {
        ProcessSpec::new(Command::Argv(argv.into_iter().map(Into::into).collect()))
    }

    /// A line for `/bin/sh -c`.
    pub fn shell(line: impl Into<String>) -> ProcessSpec {
        ProcessSpec::new(Command::Shell(line.into()))
    }
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A program, looked up on `PATH` unless it has a slash, and its arguments.
    Argv(Vec<String>),
    /// A line for `/bin/sh -c`.
    Shell(String),
}

/// A user of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum User {
    /// By name, with all its groups.
    Name(String),
    /// By id; the group is the user's own, or of the same number where there is no such user.
    Ids {
        /// User.
        uid: u32,
        /// Group.
        gid: Option<u32>,
    },
}

impl User {
    /// Root, whoever else processes are run by when nobody says.
    pub const ROOT: User = User::Ids { uid: 0, gid: None };
}

/// Where standard input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    /// `/dev/null`.
    Null,
    /// The host.
    Pipe,
}

/// A terminal to run in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Its size.
    pub size: TerminalSize,
    /// For `TERM`.
    pub term: String,
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Width.
    pub columns: u16,
    /// Height.
    pub rows: u16,
}

/// Whether a stream follows the process it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    /// Yes. While attached nothing is lost: a reader that is slow slows the process.
    Attached,
    /// No. The process never waits for a reader; the rings keep its newest output.
    Detached,
}

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Channel {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Where to begin reading output: bytes since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offsets {
    /// Of standard output.
    pub stdout: u64,
    /// Of standard error.
    pub stderr: u64,
}

impl Offsets {
    /// Everything the rings still hold.
    pub const BEGINNING: Offsets = Offsets { stdout: 0, stderr: 0 };

    /// Only what comes from now on.
    pub const NOW: Offsets = Offsets { stdout: u64::MAX, stderr: u64::MAX };
}

/// What the end of an input stream means to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputEnd {
    /// Its standard input is closed; on a terminal the end-of-file character is typed.
    Close,
    /// More may come on another stream.
    KeepOpen,
}

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalScope {
    /// The process alone.
    Leader,
    /// Its whole process group.
    Group,
}

/// A process that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its name on the link.
    pub process: ProcessId,
    /// Its pid in the guest.
    pub pid: u32,
    /// Offset of the first byte of output that follows.
    pub from: Offsets,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// How.
    pub status: ExitStatus,
    /// Whether it was killed because its time was up.
    pub timed_out: bool,
    /// How long it lived.
    pub duration_ms: u64,
    /// CPU time in user mode, waited-for children included.
    pub user_cpu_us: u64,
    /// CPU time in the kernel.
    pub system_cpu_us: u64,
    /// Largest resident size.
    pub memory_max_kib: u64,
}

/// Exit code or signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It returned this.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl ExitStatus {
    /// As a shell tells it: a signal is 128 plus its number.
    #[must_use]
    pub const fn shell_code(self) -> i32 {
        match self {
            ExitStatus::Code(code) => code,
            ExitStatus::Signal(signal) => 128 + signal,
        }
    }
}

/// Which bytes a ring holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetRange {
    /// First.
    pub start: u64,
    /// One past the last: how much was written in all.
    pub end: u64,
}

/// State of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Its name on the link.
    pub process: ProcessId,
    /// Its pid in the guest.
    pub pid: u32,
    /// The caller's own name for it.
    pub tag: Option<String>,
    /// What runs, cut after 4 KiB.
    pub command: Command,
    /// Where, as asked for.
    pub cwd: Option<GuestPath>,
    /// Whether in a terminal.
    pub terminal: bool,
    /// When it started, nanoseconds of Unix time as the guest saw it.
    pub started_unix_ns: u64,
    /// How it ended; `None` while it runs.
    pub exit: Option<Exit>,
    /// Output still held.
    pub stdout: OffsetRange,
    /// Errors still held.
    pub stderr: OffsetRange,
}
