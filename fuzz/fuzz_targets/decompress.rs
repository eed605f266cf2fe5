//! Compressed kernels and modules: never more than is allowed, whatever they claim.

#![no_main]
#![allow(dead_code, reason = "a file of another crate, of which this target needs a part")]

#[path = "../../crates/image/src/decompress.rs"]
mod decompress;
#[path = "../../crates/image/src/little_endian.rs"]
mod little_endian;

use std::io::Write;

use fuzz::seeds;
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 20;
const MAGICS: [&[u8]; 5] = [b"", b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x02\x21\x4c\x18"];

fuzz_target!(
    init: seeds(|| {
        let mut gzip = flate2::write::GzEncoder::new(vec![0], flate2::Compression::fast());
        gzip.write_all(b"hello hello hello").expect("compress");
        let zstd = ruzstd::encoding::compress_to_vec(
            &b"hello hello hello"[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        let block = lz4_flex::block::compress(b"hello hello hello");
        let lz4 = [&[4][..], &(block.len() as u32).to_le_bytes(), &block].concat();
        // `hello` as xz makes it.
        let xz = b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4F\x02\0!\x01\x16\0\0\0t/\xe5\xa3\x01\0\x04hello\0\0\0\0";
        vec![gzip.finish().expect("compress"), [&[0][..], &zstd].concat(), lz4, [&[0][..], xz].concat()]
    }),
    |data: &[u8]| {
        let Some((which, rest)) = data.split_first() else { return };
        let bytes = [MAGICS[usize::from(*which) % MAGICS.len()], rest].concat();
        if let Ok(output) = decompress::decompress(&bytes, LIMIT) {
            assert!(output.len() <= LIMIT);
        }
    }
);
