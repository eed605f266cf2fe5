//! The one place where the agent waits: an epoll instance, and the names of what it watches.
//!
//! Everything is edge-triggered: an event sets a flag, and its owner works until the kernel says "would block".

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::kernel::check;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The link to the host.
    Port,
    /// A child ended.
    Signals,
    /// A worker finished a job.
    Workers,
    /// Standard output or the terminal of a process.
    Stdout(u32),
    /// Standard error of a process.
    Stderr(u32),
    /// Standard input of a process takes more.
    Stdin(u32),
    /// A TCP connection of a stream.
    Connection(u32),
    /// A watch of a stream.
    Watch(u32),
}

impl Source {
    fn to_token(self) -> u64 {
        let (kind, id) = match self {
            Source::Port => (0, 0),
            Source::Signals => (1, 0),
            Source::Workers => (2, 0),
            Source::Stdout(id) => (3, id),
            Source::Stderr(id) => (4, id),
            Source::Stdin(id) => (5, id),
            Source::Connection(id) => (6, id),
            Source::Watch(id) => (7, id),
        };
        kind << 32 | u64::from(id)
    }

    fn from_token(token: u64) -> Option<Source> {
        let id = token as u32;
        Some(match token >> 32 {
            0 => Source::Port,
            1 => Source::Signals,
            2 => Source::Workers,
            3 => Source::Stdout(id),
            4 => Source::Stderr(id),
            5 => Source::Stdin(id),
            6 => Source::Connection(id),
            7 => Source::Watch(id),
            _ => return None,
        })
    }
}

/// What became possible.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) source: Source,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

pub(crate) struct Poll {
    epoll: OwnedFd,
}

/// How many events one wait takes; the rest comes with the next.
const EVENTS_MAX: usize = 64;

impl Poll {
    pub(crate) fn new() -> io::Result<Poll> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Poll { epoll: unsafe { OwnedFd::from_raw_fd(epoll) } })
    }

    /// Watches a descriptor until it is closed.
    pub(crate) fn add(&self, descriptor: &impl AsFd, source: Source) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: events as u32, u64: source.to_token() };
        let descriptor = descriptor.as_fd().as_raw_fd();
        // SAFETY: `event` outlives the call, which copies it; both descriptors are open.
        check(unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event)
        })?;
        Ok(())
    }

    /// Waits until something is ready or `timeout_ms` has passed; -1 is for ever.
    pub(crate) fn wait(&self, timeout_ms: i32) -> io::Result<impl Iterator<Item = Ready> + use<>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        // SAFETY: the kernel writes at most `EVENTS_MAX` entries into `events`.
        let result = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                timeout_ms,
            )
        };
        let count = match check(result) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        Ok(events.into_iter().take(count).filter_map(|event| {
            let (bits, token) = (event.events as libc::c_int, event.u64);
            Some(Ready {
                source: Source::from_token(token)?,
                readable: bits & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) != 0,
                writable: bits & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) != 0,
            })
        }))
    }
}
