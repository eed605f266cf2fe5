//! Files of checksums from a disk, damaged and, with a digest that fits, hostile.

#![no_main]

use fuzz::seeds;
use libfuzzer_sys::fuzz_target;
use memory::Checksums;
use xxhash_rust::xxh3::xxh3_128;

fn check(bytes: &[u8]) {
    if let Ok(sums) = Checksums::decode(bytes) {
        assert_eq!(sums.encode(), bytes);
    }
}

/// The content of a file, without the digest at its end: two chunks of 4 KiB, the second cut short.
fn content() -> Vec<u8> {
    let mut bytes = b"PSUM".to_vec();
    for word in [1_u32, 4096, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for word in [5000_u64, 2, 0, 7] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

fuzz_target!(
    init: seeds(|| vec![content(), content()[..40].to_vec()]),
    |data: &[u8]| {
        check(data);
        let mut sealed = data.to_vec();
        sealed.extend(xxh3_128(data).to_le_bytes());
        check(&sealed);
    }
);
