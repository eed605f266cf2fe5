//! The processes this program started, running and recently ended, with their output and input.
//!
//! ```text
//! running ──SIGCHLD──► ended (output until then still being read) ──► drained ──► forgotten, oldest first
//! ```
//!
//! Attached streams hold a process back: what they have not been sent stays in the ring, and a full ring is not read into.
//! Without a stream the ring drops its oldest bytes. A background child that keeps the pipe of an ended process open goes on
//! writing to the ring; that pipe is never closed under it.

pub(crate) mod account;
pub(crate) mod defaults;
mod ring;
pub(crate) mod spawn;
mod table;
pub(crate) mod terminal;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};

use guest_link::message::{Channel, Command, Exit, OffsetRange, ProcessId, ProcessInfo, ProcessSpec};
pub(crate) use table::Processes;

use self::ring::{RING_BYTES_MAX, Ring};
use self::spawn::Spawned;
use crate::kernel;

/// What one turn of the event loop reads from one pipe, so that a loud process does not starve the others.
const READ_BYTES_PER_TURN: usize = 256 * 1024;

/// Longest command kept for listings.
const COMMAND_BYTES_MAX: usize = 4096;

/// How long the last words in an ended program's terminal may take to arrive.
const TERMINAL_DRAIN_NS: u64 = 100_000_000;

pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) pid: i32,
    tag: Option<String>,
    command: Command,
    cwd: Option<guest_link::GuestPath>,
    pub(crate) terminal: bool,
    started_unix_ns: u64,
    started_ns: u64,
    /// When it is killed.
    deadline_ns: Option<u64>,
    timed_out: bool,
    pub(crate) exit: Option<Exit>,
    /// When an ended program's terminal counts as drained.
    drain_ns: Option<u64>,
    pub(crate) input: Input,
    output: [Output; 2],
    /// Streams that follow it: id and, per channel, the offset sent up to.
    pub(crate) attached: Vec<Attached>,
    /// Evicted, kept only to read on behalf of background children.
    forgotten: bool,
}

/// A stream that follows a process.
pub(crate) struct Attached {
    pub(crate) stream: u32,
    pub(crate) sent: [u64; 2],
}

/// Standard input.
#[derive(Default)]
pub(crate) struct Input {
    file: Option<File>,
    writable: bool,
    queue: VecDeque<Piece>,
    close: bool,
}

/// Bytes on their way to standard input.
struct Piece {
    stream: u32,
    data: Vec<u8>,
    written: usize,
    /// What to return to the stream's window.
    cost: u32,
}

/// One output channel.
#[derive(Default)]
struct Output {
    file: Option<File>,
    readable: bool,
    ring: Ring,
    /// Offset of the last byte written before the process ended, once known.
    last: Option<u64>,
}

/// What reading output came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing more for now.
    Idle,
    /// The turn is over and more is waiting.
    More,
}

impl Process {
    fn new(id: ProcessId, spec: &ProcessSpec, spawned: Spawned) -> Process {
        let now = kernel::monotonic_ns();
        let closed = Output { last: Some(0), ..Output::default() };
        let pipe = |file| Output { file: Some(file), readable: true, ..Output::default() };
        Process {
            id,
            pid: spawned.pid,
            tag: spec.tag.clone(),
            command: shortened(&spec.command),
            cwd: spec.cwd.clone(),
            terminal: spec.terminal.is_some(),
            started_unix_ns: kernel::unix_ns(),
            started_ns: now,
            deadline_ns: spec.timeout_ms.map(|timeout| now.saturating_add(timeout.saturating_mul(1_000_000))),
            timed_out: false,
            exit: None,
            drain_ns: None,
            input: Input { file: spawned.stdin, writable: true, queue: VecDeque::new(), close: false },
            output: [pipe(spawned.stdout), spawned.stderr.map_or(closed, pipe)],
            attached: Vec::new(),
            forgotten: false,
        }
    }

    pub(crate) fn info(&self) -> ProcessInfo {
        let range = |output: &Output| OffsetRange { start: output.ring.start(), end: output.ring.end() };
        ProcessInfo {
            process: self.id,
            pid: self.pid as u32,
            tag: self.tag.clone(),
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            terminal: self.terminal,
            started_unix_ns: self.started_unix_ns,
            exit: self.exit,
            stdout: range(&self.output[0]),
            stderr: range(&self.output[1]),
        }
    }

    /// Our end of its terminal, while it runs in one.
    pub(crate) fn terminal_file(&self) -> Option<&File> {
        self.output[0].file.as_ref().filter(|_| self.terminal)
    }

    /// Bytes of both rings.
    fn held(&self) -> usize {
        self.output.iter().map(|output| output.ring.len()).sum()
    }

    /// Whether a pipe is still open at the other end.
    fn has_writers(&self) -> bool {
        self.output.iter().any(|output| output.file.is_some())
    }

    /// Where an attachment begins: no later than what was written.
    pub(crate) fn clamp(&self, offsets: [u64; 2]) -> [u64; 2] {
        [0, 1].map(|at| offsets[at].min(self.output[at].ring.end()))
    }

    /// The ended process's exit, once everything it wrote was sent to the attached stream.
    pub(crate) fn finished_for(&self, attached: &Attached) -> Option<Exit> {
        let drained = |at: usize| self.output[at].last.is_some_and(|last| attached.sent[at] >= last);
        self.exit.filter(|_| drained(0) && drained(1))
    }

    /// Offset from which bytes of a channel must be kept: what some attached stream has not been sent.
    fn keep_from(&self, at: usize) -> u64 {
        self.attached.iter().map(|attached| attached.sent[at]).min().unwrap_or(u64::MAX)
    }

    /// The next bytes for an attached stream: up to `most` of them appended to `out`, or the offset after a gap.
    pub(crate) fn next_for(&self, attached: &Attached, most: usize, out: &mut Vec<u8>) -> Option<Next> {
        for (at, channel) in [(0, Channel::Stdout), (1, Channel::Stderr)] {
            let ring = &self.output[at].ring;
            // After the end nothing follows, though a background child may still write.
            let end = match self.exit {
                Some(_) => self.output[at].last.unwrap_or(u64::MAX).min(ring.end()),
                None => ring.end(),
            };
            let sent = attached.sent[at];
            if sent >= end {
                continue;
            }
            if sent < ring.start() {
                return Some(Next::Gap { channel, offset: ring.start().min(end) });
            }
            let most = most.min(usize::try_from(end - sent).unwrap_or(usize::MAX));
            let count = ring.copy(sent, most, out);
            return Some(Next::Data { channel, count });
        }
        None
    }

    /// Reads what the process wrote, as far as there is room. `budget` is what all rings together may still grow by.
    fn read_output(&mut self, scratch: &mut [u8], budget: &mut usize) -> Progress {
        let mut progress = Progress::Idle;
        for at in [0, 1] {
            let keep_from = self.keep_from(at);
            let most = if self.forgotten { 0 } else { RING_BYTES_MAX };
            if self.output[at].read(scratch, most, keep_from, budget) == Progress::More {
                progress = Progress::More;
            }
        }
        self.settle();
        progress
    }

    /// Notes where the ended process's own output ends.
    fn settle(&mut self) {
        if self.exit.is_none() {
            return;
        }
        let drained = self.drain_ns.is_none();
        for output in &mut self.output {
            if output.last.is_none() && (output.file.is_none() || (self.terminal && drained)) {
                output.last = Some(output.ring.end());
            }
        }
    }

    /// The process ended.
    fn ended(&mut self, exit: Exit) {
        self.exit = Some(Exit { timed_out: self.timed_out, ..exit });
        self.deadline_ns = None;
        // Input that was not read is void, and a background child reads no more of it.
        self.input.close = true;
        if self.terminal {
            self.drain_ns = Some(kernel::monotonic_ns().saturating_add(TERMINAL_DRAIN_NS));
        } else {
            for output in &mut self.output {
                // What is in the pipe now was written before the end was seen.
                if let Some(file) = &output.file {
                    output.last = Some(output.ring.end() + kernel::readable_bytes(file));
                    output.readable = true;
                }
            }
        }
        self.settle();
    }

    fn exit_of(&self, status: i32, usage: &libc::rusage) -> Exit {
        let micros = |time: libc::timeval| {
            (time.tv_sec as u64).saturating_mul(1_000_000).saturating_add(time.tv_usec as u64)
        };
        let status = if libc::WIFSIGNALED(status) {
            guest_link::message::ExitStatus::Signal(libc::WTERMSIG(status))
        } else {
            guest_link::message::ExitStatus::Code(libc::WEXITSTATUS(status))
        };
        Exit {
            status,
            timed_out: false,
            duration_ms: kernel::monotonic_ns().saturating_sub(self.started_ns) / 1_000_000,
            user_cpu_us: micros(usage.ru_utime),
            system_cpu_us: micros(usage.ru_stime),
            memory_max_kib: usage.ru_maxrss as u64,
        }
    }
}

/// What an attached stream gets next.
pub(crate) enum Next {
    Data { channel: Channel, count: usize },
    Gap { channel: Channel, offset: u64 },
}

impl Output {
    fn read(&mut self, scratch: &mut [u8], most: usize, keep_from: u64, budget: &mut usize) -> Progress {
        let mut turn = 0;
        while self.readable
            && let Some(file) = &self.file
        {
            if turn >= READ_BYTES_PER_TURN {
                return Progress::More;
            }
            // Room: what the ring and the common budget leave, after dropping what nobody waits for.
            let wanted = scratch.len();
            let room = (most.saturating_sub(self.ring.len())).min(*budget);
            if room < wanted {
                *budget += self.ring.drop_oldest(wanted - room, keep_from);
            }
            let room = (most.saturating_sub(self.ring.len())).min(*budget);
            // Nobody attached and no room at all: read, count and throw away, so that the process goes on.
            let discard = room == 0 && keep_from == u64::MAX;
            let length = if discard { wanted } else { room.min(wanted) };
            if length == 0 {
                return Progress::Idle;
            }
            match (&*file).read(&mut scratch[..length]) {
                Ok(0) => self.file = None,
                Ok(count) if discard => {
                    *budget += self.ring.drop_oldest(usize::MAX, u64::MAX);
                    self.ring.skip(count);
                    turn += count;
                }
                Ok(count) => {
                    self.ring.push(&scratch[..count]);
                    *budget -= count;
                    turn += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A terminal whose programs are gone says EIO.
                Err(_) => self.file = None,
            }
        }
        Progress::Idle
    }
}

impl Input {
    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some() && !self.close
    }

    /// Takes bytes from a stream; their cost comes back from [`Input::write`].
    pub(crate) fn push(&mut self, stream: u32, data: Vec<u8>, cost: u32) {
        self.queue.push_back(Piece { stream, data, written: 0, cost });
    }

    /// Closes after what is queued.
    pub(crate) fn close(&mut self, terminal: bool) {
        if terminal {
            // Typed, as a person would: the terminal itself stays.
            self.queue.push_back(Piece { stream: 0, data: vec![0x04], written: 0, cost: 0 });
        } else {
            self.close = true;
        }
    }

    pub(crate) fn waiting(&self, stream: u32) -> bool {
        self.queue.iter().any(|piece| piece.stream == stream)
    }

    /// Writes what the process takes; tells which streams get how much of their windows back.
    fn write(&mut self, returned: &mut Vec<(u32, u32)>) {
        while let (Some(piece), Some(file)) = (self.queue.front_mut(), &self.file) {
            if piece.written == piece.data.len() {
                returned.push((piece.stream, piece.cost));
                self.queue.pop_front();
                continue;
            }
            if !self.writable {
                break;
            }
            match (&*file).write(&piece.data[piece.written..]) {
                Ok(count) => piece.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.file = None,
            }
        }
        if self.queue.is_empty() && self.close {
            self.file = None;
        }
        if self.file.is_none() {
            // Nobody reads it: the streams get their windows back and find standard input closed.
            returned.extend(self.queue.drain(..).map(|piece| (piece.stream, piece.cost)));
        }
    }
}

fn shortened(command: &Command) -> Command {
    let cut = |text: &str, most: usize| {
        text.chars()
            .scan(0, |used, letter| {
                *used += letter.len_utf8();
                (*used <= most).then_some(letter)
            })
            .collect::<String>()
    };
    match command {
        Command::Shell(line) => Command::Shell(cut(line, COMMAND_BYTES_MAX)),
        Command::Argv(argv) => {
            let mut left = COMMAND_BYTES_MAX;
            let mut short = Vec::new();
            for argument in argv {
                if left == 0 {
                    break;
                }
                let argument = cut(argument, left);
                left = left.saturating_sub(argument.len().max(1));
                short.push(argument);
            }
            Command::Argv(short)
        }
    }
}
