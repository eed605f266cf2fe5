//! Files of the guest. Everything here runs on a worker thread and may block.
//!
//! Operations with one answer are plain functions. Those that move data are *tasks*: a value that lives in its stream, goes to a
//! worker for one bounded step, and comes back with what the step produced.

mod change;
mod entry;
mod list;
mod read;
mod watch;
mod write;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use guest_link::GuestPath;
use guest_link::message::{Event, Failure, FileFailure, FileRequest, Response};

pub(crate) use self::change::make_parents;
pub(crate) use self::entry::kind;
use self::list::ListTask;
use self::read::ReadTask;
use self::watch::WatchTask;
use self::write::WriteTask;

/// A transfer, a listing or a watch.
pub(crate) enum Task {
    Read(ReadTask),
    Write(WriteTask),
    List(ListTask),
    Watch(WatchTask),
}

/// What the host sent since the last step.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) data: Vec<Vec<u8>>,
    pub(crate) end: bool,
}

/// What a step produced.
#[derive(Default)]
pub(crate) struct Step {
    pub(crate) events: Vec<Event>,
    pub(crate) data: Vec<u8>,
    /// The stream is over once events and data are sent.
    pub(crate) outcome: Option<Result<Response, Failure>>,
}

/// How a request is served.
pub(crate) enum Plan {
    /// By one call.
    Once(FileRequest),
    /// In steps.
    Steps(Task),
}

/// Decides; does not touch a file system.
pub(crate) fn plan(request: FileRequest) -> Plan {
    match request {
        FileRequest::Read { path, offset, length } => {
            Plan::Steps(Task::Read(ReadTask::new(path, offset, length)))
        }
        FileRequest::Write(spec) => Plan::Steps(Task::Write(WriteTask::new(spec))),
        FileRequest::List(spec) => Plan::Steps(Task::List(ListTask::new(spec))),
        FileRequest::Watch(spec) => Plan::Steps(Task::Watch(WatchTask::new(spec))),
        once => Plan::Once(once),
    }
}

/// Serves a request with one answer.
pub(crate) fn perform(request: FileRequest) -> Result<Response, Failure> {
    match request {
        FileRequest::Stat { path, links } => {
            entry::stat(as_path(&path), links).map(Response::Entry).map_err(|error| failure(&error))
        }
        FileRequest::MakeDirectory { path, parents, mode, owner } => {
            change::make_directory(&path, parents, mode, owner)
        }
        FileRequest::Remove { path, scope } => change::remove(&path, scope),
        FileRequest::Rename { from, to, parents } => change::rename(&from, &to, parents),
        FileRequest::SetMode { path, mode } => change::set_mode(&path, mode),
        FileRequest::SetOwner { path, owner, links } => change::set_owner(&path, &owner, links),
        FileRequest::ReadLink { path } => change::read_link(&path),
        FileRequest::Read { .. } | FileRequest::Write(_) | FileRequest::List(_) | FileRequest::Watch(_) => {
            Err(Failure::Unsupported)
        }
    }
}

impl Task {
    /// One bounded piece of work.
    pub(crate) fn step(&mut self, input: Input) -> Step {
        let result = match self {
            Task::Read(task) => task.step(),
            Task::Write(task) => task.step(input),
            Task::List(task) => task.step(),
            Task::Watch(task) => task.step(),
        };
        result.unwrap_or_else(|failure| Step { outcome: Some(Err(failure)), ..Step::default() })
    }

    /// Whether it has nothing to do until the host sends something.
    pub(crate) fn wants_input(&self) -> bool {
        matches!(self, Task::Write(_))
    }

    /// What becomes readable when a watch has news, once it is in place.
    pub(crate) fn news(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Task::Watch(task) => task.descriptor(),
            _ => None,
        }
    }
}

/// What the kernel's error means to a caller.
pub(crate) fn file_failure(error: &io::Error) -> FileFailure {
    match error.raw_os_error() {
        Some(libc::ENOENT) => FileFailure::NotFound,
        Some(libc::EISDIR) => FileFailure::IsDirectory,
        Some(libc::ENOTDIR) => FileFailure::NotDirectory,
        Some(libc::EACCES | libc::EPERM) => FileFailure::Permission,
        Some(libc::EEXIST) => FileFailure::Exists,
        Some(libc::ENOTEMPTY) => FileFailure::NotEmpty,
        Some(libc::ENOSPC | libc::EDQUOT) => FileFailure::NoSpace,
        Some(libc::ELOOP) => FileFailure::TooManyLinks,
        Some(libc::ENAMETOOLONG) => FileFailure::InvalidPath,
        Some(libc::EROFS) => FileFailure::ReadOnly,
        Some(errno) => FileFailure::Other { errno },
        None => FileFailure::Other { errno: libc::EIO },
    }
}

fn failure(error: &io::Error) -> Failure {
    Failure::File(file_failure(error))
}

/// The path as the standard library takes it.
pub(crate) fn as_path(path: &GuestPath) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()))
}
