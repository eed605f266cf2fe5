//! How a session starts: the host's `Hello`, the guest's reply, and the tag both put at the end of every later frame.
//!
//! The tag is not a secret. It tells frames of this session from what an older one left in the pipe: the second half of a frame
//! whose first half was lost, or a frame that was completed with padding.

use serde::{Deserialize, Serialize};

/// Changes whenever a message or the framing changes. A guest restored from a snapshot runs the program it was baked with, so
/// the host refuses a guest that speaks another version.
pub const PROTOCOL_VERSION: u16 = 2;

/// Opens every `Hello` payload.
pub const HELLO_MAGIC: [u8; 16] = *b"pandastack\xf7hello";

/// Opens every `HelloReply` payload.
pub const REPLY_MAGIC: [u8; 16] = *b"pandastack\xf7reply";

/// Bytes of a `Hello` payload: magic, version, nonce. Fixed, so that a confused guest can search for it.
pub const HELLO_BYTES: usize = 16 + 2 + 16;

/// Longest `HelloReply` payload.
pub const REPLY_BYTES_MAX: usize = 1024;

/// Sixteen random bytes that name a session.
pub type Nonce = [u8; 16];

/// Ends every frame of a session. No byte of it is zero, so that padding never completes a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag([u8; 4]);

impl Tag {
    /// The tag of the session that `nonce` names.
    #[must_use]
    pub fn of(nonce: &Nonce) -> Tag {
        let mut tag = [0_u8; 4];
        for (at, byte) in nonce.iter().enumerate() {
            tag[at % 4] ^= byte.rotate_left(at as u32 / 4);
        }
        Tag(tag.map(|byte| if byte == 0 { 0xa5 } else { byte }))
    }

    /// The bytes at the end of a frame.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 4] {
        self.0
    }
}

/// The host's opening words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The host's [`PROTOCOL_VERSION`].
    pub version: u16,
    /// Names the session.
    pub nonce: Nonce,
}

impl Hello {
    /// The payload of a `Hello` frame.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut payload = [0; HELLO_BYTES];
        payload[..16].copy_from_slice(&HELLO_MAGIC);
        payload[16..18].copy_from_slice(&self.version.to_le_bytes());
        payload[18..].copy_from_slice(&self.nonce);
        payload
    }

    /// Reads the payload of a `Hello` frame; `None` when it is not one.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Hello> {
        let payload: &[u8; HELLO_BYTES] = payload.try_into().ok()?;
        let (magic, rest) = payload.split_at(16);
        let (version, nonce) = rest.split_at(2);
        if magic != HELLO_MAGIC {
            return None;
        }
        Some(Hello { version: u16::from_le_bytes(version.try_into().ok()?), nonce: nonce.try_into().ok()? })
    }
}

/// What a guest says about itself when a session starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestInfo {
    /// The guest's [`PROTOCOL_VERSION`].
    pub version: u16,
    /// Version of the guest program.
    pub program: String,
    /// Sessions this program has had before this one, across snapshots.
    pub sessions_before: u64,
    /// Nanoseconds since the guest's kernel started, as its monotonic clock tells.
    pub uptime_ns: u64,
}

/// The payload of a `HelloReply`: magic, the host's nonce, then [`GuestInfo`].
#[must_use]
pub fn encode_reply(nonce: &Nonce, info: &GuestInfo) -> Vec<u8> {
    let mut payload = Vec::with_capacity(96);
    payload.extend_from_slice(&REPLY_MAGIC);
    payload.extend_from_slice(nonce);
    postcard::to_extend(info, payload).expect("plain strings and integers always encode")
}

/// Reads the payload of a `HelloReply` that answers `nonce`; `None` when it is not one.
#[must_use]
pub fn decode_reply(nonce: &Nonce, payload: &[u8]) -> Option<GuestInfo> {
    let rest = payload.strip_prefix(&REPLY_MAGIC)?.strip_prefix(nonce)?;
    postcard::from_bytes(rest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_no_zero_byte() {
        assert_eq!(Tag::of(&[0; 16]).to_bytes(), [0xa5; 4]);
        for seed in 0..=255_u8 {
            let nonce: Nonce = std::array::from_fn(|at| seed.wrapping_mul(at as u8 | 1));
            assert!(!Tag::of(&nonce).to_bytes().contains(&0));
        }
    }

    #[test]
    fn hello_and_reply_round_trip() {
        let hello = Hello { version: 7, nonce: *b"0123456789abcdef" };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        assert_eq!(Hello::decode(&hello.encode()[1..]), None);
        let info = GuestInfo { version: 7, program: "0.1.0".into(), sessions_before: 3, uptime_ns: 9 };
        let payload = encode_reply(&hello.nonce, &info);
        assert_eq!(decode_reply(&hello.nonce, &payload), Some(info));
        assert_eq!(decode_reply(&[0; 16], &payload), None);
    }
}
