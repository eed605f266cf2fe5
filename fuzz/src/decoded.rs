//! Feeding a frame decoder and writing down what comes out.

use guest_link::frame::{Decoder, Incoming, Side};
use guest_link::limits::PAYLOAD_BYTES_MAX;

/// Everything that comes out of `bytes`, fed in chunks of `size`, as text. Checks what holds for any input.
#[must_use]
pub fn decoded(side: Side, bytes: &[u8], size: usize) -> Vec<String> {
    let mut decoder = Decoder::new(side);
    let mut found = Vec::new();
    for chunk in bytes.chunks(size.max(1)) {
        let mut chunk = chunk;
        while !chunk.is_empty() {
            let space = decoder.space();
            assert!(!space.is_empty(), "a decoder that waits has room");
            let count = space.len().min(chunk.len());
            space[..count].copy_from_slice(&chunk[..count]);
            decoder.commit(count);
            chunk = &chunk[count..];
            loop {
                match decoder.next() {
                    Ok(Some(incoming)) => {
                        if let Incoming::Frame { payload, .. } = &incoming {
                            assert!(payload.len() <= PAYLOAD_BYTES_MAX);
                        }
                        found.push(format!("{incoming:?}"));
                    }
                    Ok(None) => break,
                    Err(error) => {
                        assert!(matches!(side, Side::Host(_)), "a guest recovers");
                        found.push(error.to_string());
                        return found;
                    }
                }
            }
        }
    }
    found
}
