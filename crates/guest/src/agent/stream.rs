//! One request and what it has become.

use std::collections::VecDeque;

use guest_link::frame::{self, Kind};
use guest_link::limits::{GUEST_WINDOW_BYTES, GUEST_WINDOW_BYTES_MAX, HOST_WINDOW_BYTES};
use guest_link::message::{Event, Failure, InputEnd, ProcessId, Response};

use crate::connection::Connection;
use crate::file;

pub(super) struct Stream {
    pub(super) work: Work,
    /// What we may send.
    pub(super) credit: u32,
    /// What the host may still send.
    pub(super) window_left: u32,
    /// How much that is when we owe nothing.
    pub(super) window: u32,
    /// What we consumed and did not tell.
    pub(super) owed: u32,
    pub(super) credit_queued: bool,
    /// Events and the final word, before any data of `work`.
    pub(super) messages: VecDeque<Message>,
    queued: bool,
}

pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) payload: Vec<u8>,
}

/// What a stream is for.
pub(super) enum Work {
    /// An answer is under way, or waits to be sent.
    Answer,
    /// A process is being started; what came for its input waits.
    Start { input: Vec<(Vec<u8>, u32)>, ended: bool },
    /// Follows a process; the host's data is its input.
    Attached { process: ProcessId },
    /// Feeds a process.
    Input { process: ProcessId, end: InputEnd, ended: bool },
    /// Moves file contents or metadata.
    File(Box<FileWork>),
    /// A TCP connection.
    Connection(Box<Connection>),
}

/// A file task and what goes in and out of it.
pub(super) struct FileWork {
    /// Absent while a worker has it, and after the last step.
    pub(super) task: Option<Box<file::Task>>,
    pub(super) data: Vec<u8>,
    pub(super) sent: usize,
    pub(super) input: file::Input,
    /// Window cost of `input`.
    pub(super) cost: u32,
    pub(super) outcome: Option<Result<Response, Failure>>,
    /// Whether a watch is registered with the event loop.
    pub(super) watched: bool,
    /// Whether a watch has something to read.
    pub(super) news: bool,
}

impl FileWork {
    pub(super) fn new(task: file::Task) -> Box<FileWork> {
        Box::new(FileWork {
            task: Some(Box::new(task)),
            data: Vec::new(),
            sent: 0,
            input: file::Input::default(),
            cost: 0,
            outcome: None,
            watched: false,
            news: true,
        })
    }
}

impl Stream {
    pub(super) fn new() -> Stream {
        Stream {
            work: Work::Answer,
            credit: HOST_WINDOW_BYTES,
            window_left: GUEST_WINDOW_BYTES,
            window: GUEST_WINDOW_BYTES,
            owed: 0,
            credit_queued: false,
            messages: VecDeque::new(),
            queued: false,
        }
    }

    /// Puts it in line to say something.
    pub(super) fn enqueue(&mut self, id: u32, ready: &mut VecDeque<u32>) {
        if !self.queued {
            self.queued = true;
            ready.push_back(id);
        }
    }

    /// It has its turn.
    pub(super) fn dequeue(&mut self) {
        self.queued = false;
    }

    /// Adds an event; one that does not fit in a frame is dropped, which its maker's own bounds prevent.
    pub(super) fn say(&mut self, event: &Event) {
        if let Ok(payload) = frame::to_payload(event) {
            self.messages.push_back(Message { kind: Kind::Event, payload });
        }
    }

    /// Adds the final word.
    pub(super) fn finish(&mut self, outcome: &Result<Response, Failure>) {
        let fallback =
            || frame::to_payload(&Err::<Response, Failure>(Failure::Malformed)).unwrap_or_default();
        let payload = frame::to_payload(outcome).unwrap_or_else(|_| fallback());
        self.messages.push_back(Message { kind: Kind::Done, payload });
    }

    /// Gives window back to the host, and a wider one to a stream that uses it; `true` when the host should be told.
    pub(super) fn consumed(&mut self, cost: u32, windows_left: &mut u32) -> bool {
        self.owed += cost;
        if self.owed < self.window / 4 {
            return false;
        }
        let growth = self.window.min(GUEST_WINDOW_BYTES_MAX - self.window).min(*windows_left);
        self.window += growth;
        self.owed += growth;
        *windows_left -= growth;
        !std::mem::replace(&mut self.credit_queued, true)
    }
}
