//! Indices of packed files from a store, damaged and, with a digest that fits, hostile.

#![no_main]

use fuzz::seeds;
use libfuzzer_sys::fuzz_target;
use memory::stream::{CHUNK_BYTES, Index};
use sha2::{Digest, Sha256};

fn check(bytes: &[u8]) {
    let Ok(index) = Index::decode(bytes) else { return };
    assert_eq!(index.encode(), bytes);
    let mut end = 0;
    for number in 0..index.chunk_count() {
        let file = index.file_range(number);
        assert!(!file.is_empty() && file.end <= index.length());
        let Some(range) = index.blob_range(number) else { continue };
        assert!(range.start == end && !range.is_empty() && range.end - range.start <= CHUNK_BYTES);
        end = range.end;
    }
    assert_eq!(end, index.packed_length());
}

/// The content of an index, without the digest at its end: a file of two chunks and a byte, with pages in the second and the last.
fn content() -> Vec<u8> {
    let mut bytes = b"PIDX".to_vec();
    for word in [1_u32, 4 << 20, 4096] {
        bytes.extend(word.to_le_bytes());
    }
    for word in [(8_u64 << 20) + 1, 3] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.push(0);
    for map in [0x81_u8, 1] {
        bytes.extend([1, map]);
        bytes.extend([0; 127 + 32]);
    }
    bytes
}

fuzz_target!(
    init: seeds(|| vec![content(), content()[..33].to_vec()]),
    |data: &[u8]| {
        check(data);
        let mut sealed = data.to_vec();
        sealed.extend(Sha256::digest(data));
        check(&sealed);
    }
);
