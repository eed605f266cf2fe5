//! What the targets share: seeds that are made by code, and byte streams of frames that a decoder takes further than its first check.

mod decoded;

use std::path::Path;

use guest_link::frame::{Kind, encode};
use guest_link::session::Tag;

pub use decoded::decoded;

/// Set by `fuzz/run`: the directory to leave seeds in, instead of fuzzing.
const SEEDS: &str = "FUZZ_SEEDS";

/// For a target's `init`: writes the seeds when they are asked for, and ends the process.
pub fn seeds(make: impl FnOnce() -> Vec<Vec<u8>>) {
    let Ok(folder) = std::env::var(SEEDS) else { return };
    for (at, seed) in make().into_iter().enumerate() {
        let path = Path::new(&folder).join(format!("seed-{at:02}"));
        std::fs::write(&path, seed).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
    }
    std::process::exit(0);
}

/// Reads `script` as pieces of a byte stream. A piece is `op stream length bytes`: with an even `op` a frame of that kind with the right tag
/// around the bytes, with an odd one the bytes as they are. Kinds from 0x80 up are written without that bit.
#[must_use]
pub fn stream(script: &[u8], tag: Tag) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = script;
    while let [op, number, length, after @ ..] = rest {
        let (bytes, after) = after.split_at(usize::from(*length).min(after.len()));
        match Kind::from_byte(op >> 1).or(Kind::from_byte(op >> 1 | 0x80)) {
            Some(kind) if op & 1 == 0 => encode(&mut out, kind, u32::from(*number), bytes, tag),
            _ => out.extend_from_slice(bytes),
        }
        rest = after;
    }
    out
}

/// A piece of a script for [`stream`]: a frame.
#[must_use]
pub fn frame(kind: Kind, number: u8, payload: &[u8]) -> Vec<u8> {
    piece((kind as u8 & 0x7f) << 1, number, payload)
}

/// A piece of a script for [`stream`]: bytes as they are.
#[must_use]
pub fn raw(bytes: &[u8]) -> Vec<u8> {
    piece(1, 0, bytes)
}

fn piece(op: u8, number: u8, bytes: &[u8]) -> Vec<u8> {
    let bytes = &bytes[..bytes.len().min(255)];
    [&[op, number, bytes.len() as u8], bytes].concat()
}
