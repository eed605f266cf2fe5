//! The event loop: reads requests from the link, drives what they started, and writes what comes of it.
//!
//! Nothing here blocks. Output is pulled: a stream that has something to say stands in line, and a frame is made when the link
//! takes it, so the memory for what waits is bounded by rings and windows rather than by queues.

mod completion;
mod port;
mod request;
mod send;
mod session;
mod stream;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use guest_link::frame::{Decoder, Side};
use guest_link::limits::GUEST_WINDOW_BYTES_MAX;
use guest_link::session::Tag;

use self::completion::Completion;
use self::port::Port;
use self::session::Silence;
use self::stream::Stream;
use crate::kernel;
use crate::poll::{Poll, Ready, Source};
use crate::process::{Processes, Progress};
use crate::system::metrics;
use crate::system::shutdown::Shutdown;
use crate::workers::Workers;

/// Output held of all processes together: an eighth of memory, within these bounds.
const RINGS_BYTES: std::ops::RangeInclusive<u64> = 4 * 1024 * 1024..=64 * 1024 * 1024;

/// What streams may be granted beyond their first window, all together.
const WINDOWS_BYTES: u32 = 32 * GUEST_WINDOW_BYTES_MAX;

/// What the end of the byte stream means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// The host went away and may come back.
    Wait,
    /// The program is no longer needed.
    Exit,
}

/// What the link to the host is made of.
#[derive(Debug)]
pub enum LinkEnd {
    /// One byte stream, whoever is at its other end.
    Stream(OwnedFd),
    /// A socket that hosts connect to, one after the other.
    Listener(OwnedFd),
}

/// The guest's side of the link, and all it tends.
pub struct Agent {
    poll: Poll,
    signals: File,
    workers: Workers<Completion>,
    port: Port,
    hangup: Hangup,
    /// Tag of the session; `None` before the first and after the host went away.
    session: Option<Tag>,
    /// Sessions so far. What a worker brings back for an older one is void.
    sessions: u64,
    /// A request whose last part has not come.
    partial: Option<(u32, Vec<u8>)>,
    streams: BTreeMap<u32, Stream>,
    /// Streams with something to say.
    ready: VecDeque<u32>,
    /// Streams that owe the host credit.
    credits: VecDeque<u32>,
    /// What windows may still grow by.
    windows_left: u32,
    silence: Silence,
    processes: Processes,
    /// Processes with more output than one turn takes.
    loud: Vec<u32>,
    shutdown_wanted: Option<u32>,
    shutdown: Option<Shutdown>,
}

impl Agent {
    /// An agent that serves `link`. To be made before the program has other threads: child signals are blocked here.
    pub fn new(link: LinkEnd, hangup: Hangup) -> io::Result<Agent> {
        kernel::settle_heap();
        kernel::close_all_on_exec()?;
        kernel::raise_priority();
        let signals = kernel::child_signals()?;
        let poll = Poll::new()?;
        let workers = Workers::new()?;
        let port = Port::new(link, &poll)?;
        poll.add(&signals, Source::Signals)?;
        poll.add(workers.bell(), Source::Workers)?;
        let rings = (metrics::memory_total() / 8).clamp(*RINGS_BYTES.start(), *RINGS_BYTES.end());
        Ok(Agent {
            poll,
            signals,
            workers,
            port,
            hangup,
            session: None,
            sessions: 0,
            partial: None,
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            credits: VecDeque::new(),
            windows_left: WINDOWS_BYTES,
            silence: Silence::None,
            processes: Processes::new(rings as usize),
            loud: Vec::new(),
            shutdown_wanted: None,
            shutdown: None,
        })
    }

    /// Serves until the machine stops, or the host hangs up where that means the end.
    pub fn run(mut self) -> io::Result<()> {
        let mut decoder = Decoder::new(Side::Guest);
        loop {
            for ready in self.poll.wait(self.timeout_ms())? {
                self.react(ready);
            }
            for id in std::mem::take(&mut self.loud) {
                self.read_output(id);
            }
            if self.read_port(&mut decoder) == Flow::Ended {
                return Ok(());
            }
            for id in self.processes.tick() {
                self.announce(id);
            }
            self.processes.evict();
            self.pump();
            if let Some(grace_ms) = self.shutdown_wanted.take() {
                self.shutdown.get_or_insert_with(|| Shutdown::begin(grace_ms));
            }
            if let Some(shutdown) = &mut self.shutdown {
                shutdown.advance();
            }
        }
    }

    /// How long to wait: not at all while there is work, for ever when nothing is due.
    fn timeout_ms(&self) -> i32 {
        if !self.loud.is_empty() || self.port.has_work() || (self.port.takes() && self.can_compose()) {
            return 0;
        }
        let due = self.processes.next_deadline_ns().into_iter();
        let Some(due) = due.chain(self.shutdown.as_ref().map(Shutdown::next_deadline_ns)).min() else {
            return -1;
        };
        let left = due.saturating_sub(kernel::monotonic_ns());
        i32::try_from(left.div_ceil(1_000_000)).unwrap_or(i32::MAX)
    }

    fn react(&mut self, ready: Ready) {
        match ready.source {
            Source::Port => self.port.wake(ready.readable, ready.writable),
            Source::Signals => {
                // How many there were does not matter: every child that ended is collected.
                let _ = self.signals.read(&mut [0; 512]);
                self.reap();
            }
            Source::Workers => {
                for completion in self.workers.results() {
                    self.complete(completion);
                }
            }
            Source::Stdout(id) if ready.readable => {
                self.processes.mark_readable(id, 0);
                self.read_output(id);
            }
            Source::Stderr(id) if ready.readable => {
                self.processes.mark_readable(id, 1);
                self.read_output(id);
            }
            Source::Stdin(id) if ready.writable => {
                self.processes.mark_writable(id);
                self.write_input(id);
            }
            Source::Connection(id) => self.drive_connection(id, ready),
            Source::Watch(id) => self.drive_watch(id),
            Source::Stdout(_) | Source::Stderr(_) | Source::Stdin(_) => {}
        }
    }

    fn reap(&mut self) {
        for id in self.processes.reap() {
            self.write_input(id);
            self.read_output(id);
            self.processes.compact(id);
        }
    }

    /// Reads what a process wrote and tells the streams that follow it.
    fn read_output(&mut self, id: u32) {
        if self.processes.read_output(id) == Progress::More {
            self.loud.push(id);
        }
        self.announce(id);
    }

    /// Puts the streams that follow a process in line.
    fn announce(&mut self, id: u32) {
        let Ok(process) = self.processes.get(guest_link::message::ProcessId(id)) else { return };
        for attached in &process.attached {
            if let Some(stream) = self.streams.get_mut(&attached.stream) {
                stream.enqueue(attached.stream, &mut self.ready);
            }
        }
    }
}

/// Whether there is more to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Goes,
    Ended,
}
