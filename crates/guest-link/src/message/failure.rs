//! Why a request failed, as the guest tells it. Texts are for callers of the API: they name things inside the guest only.

use serde::{Deserialize, Serialize};

use super::identity::IdentityStep;

/// How a stream ended badly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Failure {
    /// A file operation failed.
    #[error(transparent)]
    File(FileFailure),
    /// A process operation failed.
    #[error(transparent)]
    Process(ProcessFailure),
    /// The guest could not become a machine of its own. The host must not use it.
    #[error("identity step {step} failed (error {errno})")]
    Identity {
        /// The step.
        step: IdentityStep,
        /// The guest kernel's error number; 0 when the request itself was wrong.
        errno: i32,
    },
    /// Nothing listens on the port.
    #[error("connection refused")]
    ConnectionRefused,
    /// The connection could not be made or broke.
    #[error("connection failed (error {errno})")]
    Connection {
        /// The guest kernel's error number.
        errno: i32,
    },
    /// A bound of the guest was reached.
    #[error("too many {what} in the guest")]
    Limit {
        /// What there is too much of.
        what: String,
    },
    /// The guest cannot do this where it runs.
    #[error("the guest does not support this")]
    Unsupported,
    /// The guest could not read the request.
    #[error("the guest could not read the request")]
    Malformed,
}

/// Why a file operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FileFailure {
    /// No such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// A directory where a file was needed.
    #[error("is a directory")]
    IsDirectory,
    /// A file where a directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// The kernel forbids it.
    #[error("permission denied")]
    Permission,
    /// Something is already there.
    #[error("already exists")]
    Exists,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The disk, or its quota, is full.
    #[error("no space left on device")]
    NoSpace,
    /// Too many levels of symbolic links.
    #[error("too many levels of symbolic links")]
    TooManyLinks,
    /// The path or a name in it is not usable.
    #[error("invalid path")]
    InvalidPath,
    /// The file system is mounted read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// The user or group is unknown in the guest.
    #[error("unknown user or group")]
    UnknownOwner,
    /// The watched directory is gone.
    #[error("the watched directory was removed")]
    WatchGone,
    /// Anything else.
    #[error("file operation failed (error {errno})")]
    Other {
        /// The guest kernel's error number.
        errno: i32,
    },
}

/// Why a process operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ProcessFailure {
    /// The program does not exist, on `PATH` or as named.
    #[error("program not found")]
    ProgramNotFound,
    /// The program exists and may not be run.
    #[error("program is not executable")]
    NotExecutable,
    /// The working directory does not exist or may not be entered.
    #[error("working directory is missing or not accessible")]
    WorkingDirectory,
    /// The user is unknown in the guest.
    #[error("unknown user")]
    UnknownUser,
    /// Argument, variable or name with a NUL byte, an empty argument list, or more than the kernel takes.
    #[error("invalid command")]
    InvalidCommand,
    /// No process with this id, or it was forgotten.
    #[error("no such process")]
    NotFound,
    /// The process has ended.
    #[error("process has ended")]
    NotRunning,
    /// The process has no standard input, or closed it.
    #[error("standard input is closed")]
    StdinClosed,
    /// The process has no terminal.
    #[error("process has no terminal")]
    NoTerminal,
    /// The guest's kernel refused to make the process.
    #[error("could not start process (error {errno})")]
    Spawn {
        /// The guest kernel's error number.
        errno: i32,
    },
}
