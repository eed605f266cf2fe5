//! Finds frames in a byte stream. Memory is bounded by its one buffer; nothing it is fed makes it panic.
//!
//! ```text
//! guest:  Seeking ──Hello──► Open ──Hello──► Open (new session)      Open ──bad header or tag──► Seeking
//! host:   Seeking ──HelloReply with our nonce──► Open ──bad header or tag──► error, for good
//! ```
//!
//! A guest must recover, because a host may be killed in the middle of a frame. A host need not: it opens the link anew.

use super::{HEADER_BYTES, Kind, OVERHEAD_BYTES, hello_header};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::session::{
    GuestInfo, HELLO_BYTES, HELLO_MAGIC, Hello, Nonce, REPLY_BYTES_MAX, REPLY_MAGIC, Tag, decode_reply,
};

/// Room for one frame of the largest size and a good read after it.
const BUFFER_BYTES: usize = 2 * (PAYLOAD_BYTES_MAX + OVERHEAD_BYTES);

/// Which end of the link a decoder serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Reads what a host sends.
    Guest,
    /// Reads what a guest sends, in the session named by the nonce.
    Host(Nonce),
}

/// What came out of the byte stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// A host starts a session; everything before it is void.
    Hello(Hello),
    /// The guest confirmed our session.
    Reply(GuestInfo),
    /// A frame of the current session.
    Frame {
        /// What it is.
        kind: Kind,
        /// The stream it belongs to.
        stream: u32,
        /// Its contents.
        payload: &'a [u8],
    },
}

/// Why a host gave up on a byte stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not a kind of frame a guest sends.
    #[error("unknown frame kind {0:#04x}")]
    Kind(u8),
    /// A length beyond the bound.
    #[error("frame announces {0} bytes")]
    Length(u32),
    /// The frame does not end with the session's tag.
    #[error("frame does not carry this session's tag")]
    Tag,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Looking for the frame that starts a session, at any offset.
    Seeking,
    /// At a frame boundary of a session.
    Open(Tag),
}

/// An incremental frame parser. Fill [`Decoder::space`], [`Decoder::commit`], then call [`Decoder::next`] until it gives `None`.
pub struct Decoder {
    side: Side,
    state: State,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Decoder {
    /// A decoder that waits for a session to start.
    #[must_use]
    pub fn new(side: Side) -> Decoder {
        Decoder {
            side,
            state: State::Seeking,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    /// Where the next bytes go. Never empty once [`Decoder::next`] has given `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.buffer.len() - self.end < PAYLOAD_BYTES_MAX + OVERHEAD_BYTES && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.buffer[self.end..]
    }

    /// Tells how many bytes were written to [`Decoder::space`].
    pub fn commit(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// Whether a session is open and no part of a frame is waiting for its rest.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        matches!(self.state, State::Open(_))
            && self.buffer[self.start..self.end].iter().all(|byte| *byte == 0)
    }

    /// The next thing in the stream; `None` when more bytes are needed. Only a host sees an error, and then no more frames.
    #[allow(clippy::should_implement_trait, reason = "the item borrows the decoder")]
    pub fn next(&mut self) -> Result<Option<Incoming<'_>>, FrameError> {
        loop {
            let tag = match self.state {
                State::Seeking => match self.seek() {
                    Some(found) => return Ok(Some(found)),
                    None => return Ok(None),
                },
                State::Open(tag) => tag,
            };
            while self.start < self.end && self.buffer[self.start] == 0 {
                self.start += 1;
            }
            let waiting = &self.buffer[self.start..self.end];
            let Some((kind, length, stream)) = read_header(waiting) else { return Ok(None) };
            let error = if Kind::from_byte(kind).is_none() {
                Some(FrameError::Kind(kind))
            } else if length as usize > PAYLOAD_BYTES_MAX {
                Some(FrameError::Length(length))
            } else if waiting.len() < length as usize + OVERHEAD_BYTES {
                return Ok(None);
            } else {
                None
            };
            if let Some(error) = error {
                self.start += 1;
                self.lose(error)?;
                continue;
            }
            let frame = self.start..self.start + length as usize + OVERHEAD_BYTES;
            self.start = frame.end;
            let payload = frame.start + HEADER_BYTES..frame.end - 4;
            let trailer = [0, 1, 2, 3].map(|at| self.buffer[payload.end + at]);
            let kind = Kind::from_byte(kind).ok_or(FrameError::Kind(kind))?;
            if kind == Kind::Hello && self.side == Side::Guest {
                match Hello::decode(&self.buffer[payload]) {
                    Some(hello) if Tag::of(&hello.nonce).to_bytes() == trailer => {
                        self.state = State::Open(Tag::of(&hello.nonce));
                        return Ok(Some(Incoming::Hello(hello)));
                    }
                    _ => self.lose(FrameError::Tag)?,
                }
            } else if trailer == tag.to_bytes() {
                return Ok(Some(Incoming::Frame { kind, stream, payload: &self.buffer[payload] }));
            } else {
                self.lose(FrameError::Tag)?;
            }
        }
    }

    /// What was read is no frame: a guest waits for the next `Hello`, a host fails.
    fn lose(&mut self, error: FrameError) -> Result<(), FrameError> {
        self.state = State::Seeking;
        match self.side {
            Side::Guest => Ok(()),
            Side::Host(_) => Err(error),
        }
    }

    fn seek(&mut self) -> Option<Incoming<'static>> {
        match self.side {
            Side::Guest => self.seek_hello().map(Incoming::Hello),
            Side::Host(nonce) => self.seek_reply(&nonce).map(Incoming::Reply),
        }
    }

    fn seek_hello(&mut self) -> Option<Hello> {
        let mut pattern = [0; HEADER_BYTES + HELLO_MAGIC.len()];
        pattern[..HEADER_BYTES].copy_from_slice(&hello_header());
        pattern[HEADER_BYTES..].copy_from_slice(&HELLO_MAGIC);
        loop {
            self.skip_to(&pattern, 0)?;
            let waiting = &self.buffer[self.start..self.end];
            let frame = waiting.get(..HELLO_BYTES + OVERHEAD_BYTES)?;
            let (body, trailer) = frame.split_at(frame.len() - 4);
            if let Some(hello) = Hello::decode(&body[HEADER_BYTES..]) {
                let tag = Tag::of(&hello.nonce);
                if tag.to_bytes() == trailer {
                    self.start += HELLO_BYTES + OVERHEAD_BYTES;
                    self.state = State::Open(tag);
                    return Some(hello);
                }
            }
            self.start += 1;
        }
    }

    fn seek_reply(&mut self, nonce: &Nonce) -> Option<GuestInfo> {
        let mut pattern = [0; 32];
        pattern[..16].copy_from_slice(&REPLY_MAGIC);
        pattern[16..].copy_from_slice(nonce);
        loop {
            // The pattern stands behind a header, so everything before that header is stale.
            self.skip_to(&pattern, HEADER_BYTES)?;
            let waiting = &self.buffer[self.start..self.end];
            let (kind, length, _) = read_header(waiting)?;
            if kind == Kind::HelloReply as u8 && (length as usize) <= REPLY_BYTES_MAX {
                let whole = length as usize + OVERHEAD_BYTES;
                let frame = waiting.get(..whole)?;
                let tag = Tag::of(nonce);
                if frame[whole - 4..] == tag.to_bytes()
                    && let Some(info) = decode_reply(nonce, &frame[HEADER_BYTES..whole - 4])
                {
                    self.start += whole;
                    self.state = State::Open(tag);
                    return Some(info);
                }
            }
            self.start += 1;
        }
    }

    /// Drops bytes until `pattern` stands `before` bytes after the start; `None` when more bytes are needed. Keeps what could be
    /// the beginning of a match.
    fn skip_to(&mut self, pattern: &[u8], before: usize) -> Option<()> {
        let waiting = &self.buffer[self.start..self.end];
        let found = waiting
            .get(before..)
            .and_then(|rest| rest.windows(pattern.len()).position(|window| window == pattern));
        match found {
            Some(at) => {
                self.start += at;
                Some(())
            }
            None => {
                let keep = before + pattern.len() - 1;
                self.start = self.start.max(self.end.saturating_sub(keep));
                None
            }
        }
    }
}

/// Kind byte, length and stream, once the whole header is there.
fn read_header(bytes: &[u8]) -> Option<(u8, u32, u32)> {
    let (kind, rest) = bytes.split_first()?;
    let length = rest.get(..4)?.try_into().ok()?;
    let stream = rest.get(4..8)?.try_into().ok()?;
    Some((*kind, u32::from_le_bytes(length), u32::from_le_bytes(stream)))
}
