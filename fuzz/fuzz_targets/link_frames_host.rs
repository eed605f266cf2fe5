//! What a guest sends to a host's decoder: any bytes, cut anywhere, give the same frames and the same end.

#![no_main]

use fuzz::{decoded, frame, raw, seeds, stream};
use guest_link::frame::{Kind, Side};
use guest_link::session::{GuestInfo, Nonce, PROTOCOL_VERSION, Tag, encode_reply};
use libfuzzer_sys::fuzz_target;

const NONCE: Nonce = *b"0123456789abcdef";

fn reply() -> Vec<u8> {
    let info = GuestInfo {
        version: PROTOCOL_VERSION,
        program: "0.1.0".to_owned(),
        sessions_before: 0,
        uptime_ns: 1,
    };
    encode_reply(&NONCE, &info)
}

fuzz_target!(
    init: seeds(|| {
        vec![
            [raw(b"left over"), frame(Kind::HelloReply, 0, &reply()), frame(Kind::Event, 1, &[5])].concat(),
            [frame(Kind::HelloReply, 0, &reply()), frame(Kind::Data, 1, b"out"), frame(Kind::Done, 1, &[0, 0])].concat(),
        ]
    }),
    |data: &[u8]| {
        let Some((&size, script)) = data.split_last() else { return };
        let bytes = stream(script, Tag::of(&NONCE));
        let side = Side::Host(NONCE);
        let whole = decoded(side, &bytes, bytes.len());
        assert_eq!(whole, decoded(side, &bytes, usize::from(size)));
    }
);
