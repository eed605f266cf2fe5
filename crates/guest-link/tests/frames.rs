//! Decoders meet everything: any split, any garbage, torn and mutated streams. They never panic, never deliver what was not sent,
//! and find the next session.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use guest_link::frame::{self, Decoder, FrameError, Incoming, Kind, RESYNC_BYTES, Side};
use guest_link::limits::PAYLOAD_BYTES_MAX;
use guest_link::session::{GuestInfo, Hello, Nonce, PROTOCOL_VERSION, Tag, encode_reply};
use proptest::prelude::*;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Hello(Nonce),
    Reply(GuestInfo),
    Frame(Kind, u32, Vec<u8>),
}

fn feed(
    decoder: &mut Decoder,
    mut bytes: &[u8],
    piece: usize,
    seen: &mut Vec<Seen>,
) -> Result<(), FrameError> {
    loop {
        while let Some(incoming) = decoder.next()? {
            seen.push(match incoming {
                Incoming::Hello(hello) => Seen::Hello(hello.nonce),
                Incoming::Reply(info) => Seen::Reply(info),
                Incoming::Frame { kind, stream, payload } => Seen::Frame(kind, stream, payload.to_vec()),
            });
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let space = decoder.space();
        assert!(!space.is_empty(), "a drained decoder takes more");
        let count = space.len().min(piece).min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        decoder.commit(count);
        bytes = &bytes[count..];
    }
}

fn hello(nonce: Nonce) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_hello(&mut out, &Hello { version: PROTOCOL_VERSION, nonce });
    out
}

fn info() -> GuestInfo {
    GuestInfo { version: 1, program: "x".into(), sessions_before: 0, uptime_ns: 5 }
}

fn reply(nonce: Nonce) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode(&mut out, Kind::HelloReply, 0, &encode_reply(&nonce, &info()), Tag::of(&nonce));
    out
}

const KINDS: [Kind; 6] = [Kind::Request, Kind::Data, Kind::Event, Kind::Credit, Kind::Done, Kind::Control];

fn frames() -> impl Strategy<Value = Vec<(usize, u32, Vec<u8>, usize)>> {
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        prop::collection::vec(any::<u8>(), PAYLOAD_BYTES_MAX - 2..=PAYLOAD_BYTES_MAX),
    ];
    prop::collection::vec((0..KINDS.len(), any::<u32>(), payload, 0_usize..4), 0..6)
}

/// The frames as bytes, with padding before each, and as what a decoder should see.
fn encode(frames: &[(usize, u32, Vec<u8>, usize)], tag: Tag) -> (Vec<u8>, Vec<Seen>) {
    let (mut bytes, mut seen) = (Vec::new(), Vec::new());
    for (kind, stream, payload, padding) in frames {
        bytes.resize(bytes.len() + padding, 0);
        frame::encode(&mut bytes, KINDS[*kind], *stream, payload, tag);
        seen.push(Seen::Frame(KINDS[*kind], *stream, payload.clone()));
    }
    (bytes, seen)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_survive_any_split(nonce: Nonce, frames in frames(), piece in 1_usize..70_000) {
        let (body, mut expected) = encode(&frames, Tag::of(&nonce));
        let mut bytes = hello(nonce);
        bytes.extend_from_slice(&body);
        let mut seen = Vec::new();
        feed(&mut Decoder::new(Side::Guest), &bytes, piece, &mut seen).unwrap();
        expected.insert(0, Seen::Hello(nonce));
        prop_assert_eq!(&seen, &expected);

        let mut bytes = reply(nonce);
        bytes.extend_from_slice(&body);
        seen.clear();
        feed(&mut Decoder::new(Side::Host(nonce)), &bytes, piece, &mut seen).unwrap();
        expected[0] = Seen::Reply(info());
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn a_torn_stream_is_mended_by_padding(old: Nonce, new: Nonce, frames in frames(), cut: prop::sample::Index, piece in 1_usize..70_000) {
        prop_assume!(Tag::of(&old) != Tag::of(&new));
        let (body, expected) = encode(&frames, Tag::of(&old));
        let mut bytes = hello(old);
        let start = bytes.len();
        bytes.extend_from_slice(&body);
        bytes.truncate(start + cut.index(body.len() + 1));
        bytes.resize(bytes.len() + RESYNC_BYTES, 0);
        bytes.extend_from_slice(&hello(new));
        frame::encode(&mut bytes, Kind::Cancel, 9, b"", Tag::of(&new));
        let mut seen = Vec::new();
        feed(&mut Decoder::new(Side::Guest), &bytes, piece, &mut seen).unwrap();
        // A prefix of what was sent, whole frames only, then the new session and its frame.
        let tail = seen.split_off(seen.len() - 2);
        prop_assert_eq!(tail, vec![Seen::Hello(new), Seen::Frame(Kind::Cancel, 9, Vec::new())]);
        prop_assert_eq!(&seen[0], &Seen::Hello(old));
        prop_assert_eq!(&seen[1..], &expected[..seen.len() - 1]);
    }

    #[test]
    fn garbage_delivers_nothing_and_hides_no_session(nonce: Nonce, garbage in prop::collection::vec(any::<u8>(), 0..4096), piece in 1_usize..5000) {
        let mut bytes = garbage.clone();
        bytes.extend_from_slice(&hello(nonce));
        let mut seen = Vec::new();
        feed(&mut Decoder::new(Side::Guest), &bytes, piece, &mut seen).unwrap();
        prop_assert_eq!(seen, vec![Seen::Hello(nonce)]);

        let mut bytes = garbage.clone();
        bytes.extend_from_slice(&reply(nonce));
        bytes.extend_from_slice(&garbage);
        let mut seen = Vec::new();
        // Garbage after the reply is an error or an unfinished frame, never a panic.
        let _ = feed(&mut Decoder::new(Side::Host(nonce)), &bytes, piece, &mut seen);
        prop_assert_eq!(&seen[0], &Seen::Reply(info()));
    }

    #[test]
    fn mutated_streams_do_no_harm(nonce: Nonce, frames in frames(), at: prop::sample::Index, byte: u8, piece in 1_usize..70_000) {
        let (body, _) = encode(&frames, Tag::of(&nonce));
        for (mut bytes, side) in [(hello(nonce), Side::Guest), (reply(nonce), Side::Host(nonce))] {
            bytes.extend_from_slice(&body);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let mut seen = Vec::new();
            let mut decoder = Decoder::new(side);
            let result = feed(&mut decoder, &bytes, piece, &mut seen);
            if side == Side::Guest {
                // A guest always recovers with the next session.
                result.unwrap();
                let mut more = vec![0; RESYNC_BYTES];
                more.extend_from_slice(&hello([7; 16]));
                feed(&mut decoder, &more, piece, &mut seen).unwrap();
                prop_assert_eq!(seen.last(), Some(&Seen::Hello([7; 16])));
            }
        }
    }

    #[test]
    fn random_messages_do_not_decode_into_trouble(payload in prop::collection::vec(any::<u8>(), 0..512)) {
        use guest_link::message::*;
        let _ = decode::<Request>(&payload);
        let _ = decode::<HostControl>(&payload);
        let _ = decode::<Event>(&payload);
        let _ = decode::<GuestControl>(&payload);
        let _ = decode::<Result<Response, Failure>>(&payload);
    }
}

#[test]
fn every_split_of_a_small_stream() {
    let nonce = *b"0123456789abcdef";
    let mut bytes = hello(nonce);
    frame::encode(&mut bytes, Kind::Request, 1, b"abc", Tag::of(&nonce));
    frame::encode(&mut bytes, Kind::End, 1, b"", Tag::of(&nonce));
    let expected = vec![
        Seen::Hello(nonce),
        Seen::Frame(Kind::Request, 1, b"abc".to_vec()),
        Seen::Frame(Kind::End, 1, Vec::new()),
    ];
    for split in 0..=bytes.len() {
        let (mut decoder, mut seen) = (Decoder::new(Side::Guest), Vec::new());
        feed(&mut decoder, &bytes[..split], usize::MAX, &mut seen).unwrap();
        feed(&mut decoder, &bytes[split..], usize::MAX, &mut seen).unwrap();
        assert_eq!(seen, expected, "split at {split}");
        assert!(decoder.at_boundary());
    }
}

#[test]
fn a_host_refuses_oversized_frames_and_foreign_tags() {
    let nonce = [3; 16];
    let check = |tail: &[u8], expected: FrameError| {
        let mut bytes = reply(nonce);
        bytes.extend_from_slice(tail);
        let result = feed(&mut Decoder::new(Side::Host(nonce)), &bytes, usize::MAX, &mut Vec::new());
        assert_eq!(result, Err(expected));
    };
    check(&[5, 1, 0, 1, 0, 0, 0, 0, 0], FrameError::Length(65_537));
    check(&[5, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], FrameError::Length(u32::MAX));
    check(&[0xee, 0, 0, 0, 0, 0, 0, 0, 0], FrameError::Kind(0xee));
    let mut foreign = Vec::new();
    frame::encode(&mut foreign, Kind::Data, 1, b"x", Tag::of(&[4; 16]));
    check(&foreign, FrameError::Tag);
}

#[test]
fn a_session_hidden_in_torn_upload_data_is_not_found() {
    // A host dies while it uploads a file that contains a `Hello`: the contents must not start a session.
    let (old, new) = ([1; 16], [2; 16]);
    let mut upload = Vec::new();
    frame::encode(&mut upload, Kind::Data, 1, &hello([9; 16]), Tag::of(&old));
    let mut bytes = hello(old);
    bytes.extend_from_slice(&upload[..upload.len() - 2]);
    bytes.resize(bytes.len() + RESYNC_BYTES, 0);
    bytes.extend_from_slice(&hello(new));
    let mut seen = Vec::new();
    feed(&mut Decoder::new(Side::Guest), &bytes, 4096, &mut seen).unwrap();
    assert_eq!(seen, vec![Seen::Hello(old), Seen::Hello(new)]);
}
