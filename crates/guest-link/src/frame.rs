//! The frame: how messages lie in the byte stream. Pure: no I/O, usable by both sides.
//!
//! ```text
//! kind u8 (never 0) │ payload length u32 LE │ stream u32 LE │ payload │ session tag, 4 bytes, none of them 0
//! ```
//!
//! A zero byte where a frame could start is padding. A host that lost track of what it had sent writes [`RESYNC_BYTES`] zeros:
//! they complete whatever frame the guest was reading, its tag does not match, and the guest drops it.

mod decoder;

pub use decoder::{Decoder, FrameError, Incoming, Side};
use serde::Serialize;

use crate::limits::PAYLOAD_BYTES_MAX;
use crate::session::{HELLO_BYTES, Hello, Tag};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 9;

/// Most messages are no longer than this; others make their room as they grow.
const PAYLOAD_BYTES_USUAL: usize = 128;

/// Bytes around the payload.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + 4;

/// Zeros that complete any half-received frame.
pub const RESYNC_BYTES: usize = PAYLOAD_BYTES_MAX + OVERHEAD_BYTES;

/// The stream of messages about the link itself.
pub const CONTROL_STREAM: u32 = 0;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// SnapshotMetadata the link itself: `HostControl` or `GuestControl`, on stream 0.
    Control = 1,
    /// Host: a whole `Request`, or its last part. Opens the stream.
    Request = 2,
    /// Host: a part of a `Request`, more follows.
    RequestPart = 3,
    /// Guest: an `Event` on an open stream. Flow-controlled.
    Event = 4,
    /// Bytes of the stream (standard input or output, file contents, TCP). Flow-controlled.
    Data = 5,
    /// Guest: bytes of standard error. Flow-controlled.
    DataError = 6,
    /// No more `Data` from this side.
    End = 7,
    /// The receiver consumed this many bytes (u32 LE): the other side may send as many more.
    Credit = 8,
    /// Guest: `Result<Response, Failure>`; the stream is over.
    Done = 9,
    /// Host: the stream is over; the guest detaches or aborts what it was for.
    Cancel = 10,
    /// Host: starts a session.
    Hello = 0xb1,
    /// Guest: confirms it.
    HelloReply = 0xb2,
}

impl Kind {
    /// The kind a byte stands for.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Control,
            2 => Kind::Request,
            3 => Kind::RequestPart,
            4 => Kind::Event,
            5 => Kind::Data,
            6 => Kind::DataError,
            7 => Kind::End,
            8 => Kind::Credit,
            9 => Kind::Done,
            10 => Kind::Cancel,
            0xb1 => Kind::Hello,
            0xb2 => Kind::HelloReply,
            _ => return None,
        })
    }
}

/// Why a message could not be put in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// More than one frame holds.
    #[error("message of {length} bytes does not fit in a frame")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// The encoder refused the value.
    #[error("message could not be encoded")]
    Encoder,
}

/// Appends a frame with the given payload. `payload` must not exceed [`PAYLOAD_BYTES_MAX`].
pub fn encode(out: &mut Vec<u8>, kind: Kind, stream: u32, payload: &[u8], tag: Tag) {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a caller cuts its data");
    header(out, kind, stream, payload.len());
    out.extend_from_slice(payload);
    out.extend_from_slice(&tag.to_bytes());
}

/// Appends a frame whose payload is `message`, and tells the payload's length. `out` is unchanged after an error.
pub fn encode_message<T: Serialize>(
    out: &mut Vec<u8>,
    kind: Kind,
    stream: u32,
    message: &T,
    tag: Tag,
) -> Result<usize, EncodeError> {
    let payload = to_payload(message)?;
    encode(out, kind, stream, &payload, tag);
    Ok(payload.len())
}

/// Encodes a message that must fit in one frame.
pub fn to_payload<T: Serialize>(message: &T) -> Result<Vec<u8>, EncodeError> {
    let room = Vec::with_capacity(PAYLOAD_BYTES_USUAL);
    let payload = postcard::to_extend(message, room).map_err(|_| EncodeError::Encoder)?;
    if payload.len() > PAYLOAD_BYTES_MAX {
        Err(EncodeError::TooLong { length: payload.len() })
    } else {
        Ok(payload)
    }
}

/// Appends a `Hello` frame. Its tag is its own session's, so it stands alone.
pub fn encode_hello(out: &mut Vec<u8>, hello: &Hello) {
    encode(out, Kind::Hello, CONTROL_STREAM, &hello.encode(), Tag::of(&hello.nonce));
}

/// How every `Hello` frame starts, up to its magic.
fn hello_header() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0] = Kind::Hello as u8;
    bytes[1..5].copy_from_slice(&(HELLO_BYTES as u32).to_le_bytes());
    bytes
}

fn header(out: &mut Vec<u8>, kind: Kind, stream: u32, length: usize) {
    out.reserve(length + OVERHEAD_BYTES);
    out.push(kind as u8);
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(&stream.to_le_bytes());
}
