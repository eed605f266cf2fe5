//! What is said inside the frames. One file per service.
//!
//! A stream is: one [`Request`] from the host; then events and data from the guest, data from the host where the request takes
//! any; then one `Result<Response, Failure>` from the guest, unless the host cancelled.

mod bytes;
mod connect;
mod failure;
mod file;
mod identity;
mod process;
mod system;

pub use connect::ConnectRequest;
pub use failure::{Failure, FileFailure, ProcessFailure};
pub use file::{
    Entry, EntryKind, FileRequest, Links, ListSpec, Owner, Parents, RemoveScope, SymbolicLink, WatchEvent,
    WatchKind, WatchScope, WatchSpec, WriteMode, WriteSpec,
};
pub use identity::{
    ENTROPY_BYTES, FreshIdentity, GATEWAY, HostKey, Identity, IdentityConfirmed, IdentityStep, Network,
    NetworkPast, USUAL_HOST_NAME_BYTES, USUAL_KEY_BYTES,
};
pub use process::{
    Attachment, Channel, Command, Exit, ExitStatus, InputEnd, OffsetRange, Offsets, ProcessDefaults,
    ProcessId, ProcessInfo, ProcessRequest, ProcessSpec, SignalScope, Started, Stdin, Terminal, TerminalSize,
    User,
};
use serde::{Deserialize, Serialize};
pub use system::{Cpu, Disk, ListeningPort, Memory, Metrics, SystemRequest};

/// What a host asks for on a new stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Become a machine of its own.
    Identify(Box<Identity>),
    /// Start and tend processes.
    Process(ProcessRequest),
    /// Read and change files.
    File(FileRequest),
    /// Reach a TCP port inside the guest.
    Connect(ConnectRequest),
    /// Look at and steer the machine itself.
    System(SystemRequest),
}

/// What a guest says on an open stream before the final result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The process runs; its output follows from these offsets.
    Started(Started),
    /// Output before `offset` is lost: nobody was attached and the ring overflowed.
    Gap {
        /// Which output.
        channel: Channel,
        /// Offset of the next byte.
        offset: u64,
    },
    /// A batch of the process list.
    Processes(Vec<ProcessInfo>),
    /// The file is open; its contents follow.
    Opened(Entry),
    /// A batch of a directory listing.
    Entries(Vec<Entry>),
    /// The watch is in place: every later change is reported.
    Watching,
    /// A batch of changes.
    Changes(Vec<WatchEvent>),
    /// The TCP connection stands.
    Connected,
    /// A batch of listening ports.
    Ports(Vec<ListeningPort>),
}

/// How a stream ended well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// Nothing more to say.
    Done,
    /// The guest is a machine of its own.
    Identified(IdentityConfirmed),
    /// A detached process runs.
    Started(Started),
    /// An attached process ended and all its output was sent.
    Exited(Exit),
    /// State of one process.
    Process(ProcessInfo),
    /// A file's metadata.
    Entry(Entry),
    /// Text of a symbolic link.
    Link(Vec<u8>),
    /// Bytes of a finished upload or download.
    Transferred {
        /// How many.
        bytes: u64,
    },
    /// End of a directory listing.
    Listed {
        /// Entries sent.
        entries: u64,
        /// Whether a directory had more entries than a listing may hold.
        truncated: bool,
    },
    /// Load of the machine.
    Metrics(Metrics),
}

/// What a host says about the link itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostControl {
    /// Stop sending at a frame boundary and say so.
    Quiesce {
        /// Flush file systems first.
        sync: bool,
    },
    /// Go on sending.
    Resume,
}

/// What a guest says about the link itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestControl {
    /// The last frame until `Resume` or a new session.
    Quiesced(Quiesced),
}

/// A guest that has gone silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiesced {
    /// Streams that go on after `Resume`.
    pub streams: u32,
    /// Processes the guest started that still run.
    pub processes: u32,
}

/// A message as bytes.
#[must_use]
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // A value in memory can always be written to memory.
    postcard::to_stdvec(message).unwrap_or_default()
}

/// Reads a message from a peer; `None` when it is not one. The payload's own length bounds what it can hold.
#[must_use]
pub fn decode<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Option<T> {
    postcard::from_bytes(payload).ok()
}
