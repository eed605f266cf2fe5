//! What a host sends to a guest's decoder: any bytes, cut anywhere, give the same frames.

#![no_main]

use fuzz::{decoded, frame, raw, seeds, stream};
use guest_link::frame::{Kind, Side, encode_hello};
use guest_link::session::{Hello, Nonce, PROTOCOL_VERSION, Tag};
use libfuzzer_sys::fuzz_target;

const NONCE: Nonce = *b"0123456789abcdef";

fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_hello(&mut bytes, &Hello { version: PROTOCOL_VERSION, nonce: NONCE });
    bytes
}

fuzz_target!(
    init: seeds(|| {
        vec![
            [raw(&hello()), frame(Kind::Request, 1, b"\x01\x02"), frame(Kind::Data, 1, b"hello")].concat(),
            [raw(&[0; 40]), raw(&hello()), raw(&hello()), frame(Kind::Credit, 2, &[1, 0, 0, 0])].concat(),
            [raw(&hello()), frame(Kind::Control, 0, &[0, 1]), raw(&[9, 255, 255, 255, 255, 0, 0, 0, 0])].concat(),
        ]
    }),
    |data: &[u8]| {
        let Some((&size, script)) = data.split_last() else { return };
        let bytes = stream(script, Tag::of(&NONCE));
        let whole = decoded(Side::Guest, &bytes, bytes.len());
        assert_eq!(whole, decoded(Side::Guest, &bytes, usize::from(size)));
    }
);
