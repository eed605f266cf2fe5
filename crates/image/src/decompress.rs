//! Unpacks what kernels and modules are compressed with: gzip, xz, zstd and LZ4's legacy frame. The input is
//! untrusted; the output is bounded by the caller.

use std::io::{self, Read};

use crate::little_endian::u32_at;

/// The legacy LZ4 frame cuts its input into blocks of this size.
const LZ4_BLOCK: usize = 8 << 20;
/// What an xz stream may ask us to remember. Kernels use 32 MiB, modules less.
const XZ_DICTIONARY_MAX: usize = 128 << 20;
const LZ4_MAGIC: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];

/// How bytes are compressed, told by their first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip, RFC 1952.
    Gzip,
    /// The xz container.
    Xz,
    /// Zstandard.
    Zstd,
    /// The frame that `lz4 -l` writes and kernels use.
    Lz4Legacy,
}

/// Why bytes could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// None of the supported formats begins like this.
    #[error("unknown compression (first bytes {first_bytes:02x?})")]
    UnknownFormat {
        /// Up to six bytes from the beginning.
        first_bytes: Vec<u8>,
    },
    /// The unpacked data is larger than the caller allows.
    #[error("unpacked data exceeds {limit} bytes")]
    TooLarge {
        /// The allowed size in bytes.
        limit: usize,
    },
    /// The compressed data is damaged or cut short.
    #[error("damaged {format:?} data")]
    Damaged {
        /// The format it claims to be.
        format: Compression,
        /// What the decoder said.
        #[source]
        source: io::Error,
    },
}

impl Compression {
    /// Recognises a format by its magic number.
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        const MAGICS: [(&[u8], Compression); 4] = [
            (&[0x1f, 0x8b], Compression::Gzip),
            (&[0xfd, b'7', b'z', b'X', b'Z', 0], Compression::Xz),
            (&[0x28, 0xb5, 0x2f, 0xfd], Compression::Zstd),
            (&LZ4_MAGIC, Compression::Lz4Legacy),
        ];
        MAGICS.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, format)| *format)
    }
}

/// Unpacks `bytes`, whatever supported format they are in, to at most `limit` bytes. What follows the end of the
/// compressed stream (kernels append the unpacked length) is ignored.
pub(crate) fn decompress(bytes: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let format = Compression::detect(bytes).ok_or_else(|| DecompressError::UnknownFormat {
        first_bytes: bytes.iter().take(6).copied().collect(),
    })?;
    match format {
        Compression::Gzip => read_bounded(format, flate2::read::GzDecoder::new(bytes), limit),
        Compression::Xz => xz(bytes, limit),
        Compression::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(bytes)
                .map_err(|error| damaged(format, &error.to_string()))?;
            read_bounded(format, decoder, limit)
        }
        Compression::Lz4Legacy => lz4_legacy(bytes, limit),
    }
}

fn read_bounded(format: Compression, decoder: impl Read, limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut output = Vec::new();
    decoder
        .take(limit as u64 + 1)
        .read_to_end(&mut output)
        .map_err(|source| DecompressError::Damaged { format, source })?;
    if output.len() > limit { Err(DecompressError::TooLarge { limit }) } else { Ok(output) }
}

/// One xz stream.
fn xz(bytes: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let format = Compression::Xz;
    let mut decoder =
        xz4rust::XzDecoder::with_alloc_dict_size(xz4rust::DICT_SIZE_PROFILE_0, XZ_DICTIONARY_MAX);
    let mut output = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    let mut rest = bytes;
    loop {
        let step = decoder.decode(rest, &mut buffer).map_err(|error| damaged(format, &error.to_string()))?;
        rest = &rest[step.input_consumed()..];
        output.extend_from_slice(&buffer[..step.output_produced()]);
        if output.len() > limit {
            return Err(DecompressError::TooLarge { limit });
        }
        if step.is_end_of_stream() {
            return Ok(output);
        }
        if !step.made_progress() {
            return Err(damaged(format, "the data ends inside the stream"));
        }
    }
}

/// The legacy frame: a magic number, then blocks, each preceded by its compressed length. The kernel's build appends
/// the unpacked length to it, recognisable as a last word that nothing follows.
fn lz4_legacy(bytes: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let format = Compression::Lz4Legacy;
    let mut output = Vec::new();
    let mut block = vec![0; LZ4_BLOCK.min(limit.saturating_add(1))];
    let mut rest = &bytes[LZ4_MAGIC.len()..];
    while !rest.is_empty() {
        let Some(word) = u32_at(rest, 0) else {
            return Err(damaged(format, "the data ends inside a block length"));
        };
        rest = &rest[4..];
        if word.to_le_bytes() == LZ4_MAGIC {
            continue;
        }
        if rest.is_empty() {
            if word as usize != output.len() {
                return Err(damaged(format, "the recorded length does not match the data"));
            }
            break;
        }
        let Some(compressed) = rest.get(..word as usize) else {
            return Err(damaged(format, "the data ends inside a block"));
        };
        rest = &rest[word as usize..];
        let length = match lz4_flex::block::decompress_into(compressed, &mut block) {
            Ok(length) => length,
            Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if block.len() < LZ4_BLOCK => {
                return Err(DecompressError::TooLarge { limit });
            }
            Err(error) => return Err(damaged(format, &error.to_string())),
        };
        if output.len() + length > limit {
            return Err(DecompressError::TooLarge { limit });
        }
        output.extend_from_slice(&block[..length]);
    }
    Ok(output)
}

fn damaged(format: Compression, reason: &str) -> DecompressError {
    DecompressError::Damaged { format, source: io::Error::new(io::ErrorKind::InvalidData, reason.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    fn lz4_frame(content: &[u8], trailer: bool) -> Vec<u8> {
        let mut frame = LZ4_MAGIC.to_vec();
        for block in content.chunks(LZ4_BLOCK) {
            let compressed = lz4_flex::block::compress(block);
            frame.extend((compressed.len() as u32).to_le_bytes());
            frame.extend(compressed);
        }
        if trailer {
            frame.extend((content.len() as u32).to_le_bytes());
        }
        frame
    }

    fn packed_by(program: &str, arguments: &[&str], content: &[u8]) -> Option<Vec<u8>> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut input = child.stdin.take().unwrap();
        let content = content.to_vec();
        let writer = std::thread::spawn(move || input.write_all(&content));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        output.status.success().then_some(output.stdout)
    }

    fn sample() -> Vec<u8> {
        (0..200_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect()
    }

    #[test]
    fn what_the_usual_programs_pack_is_unpacked() {
        let content = sample();
        let x86_filter = ["--check=crc32", "--x86", "--lzma2=preset=6", "-c"];
        for (program, arguments) in
            [("gzip", &["-c"][..]), ("xz", &["-c"]), ("xz", &x86_filter), ("zstd", &["-19", "-c"])]
        {
            let Some(packed) = packed_by(program, arguments, &content) else {
                eprintln!("SKIPPED: `{program}` is not installed");
                continue;
            };
            assert_eq!(decompress(&packed, 1 << 20).unwrap(), content, "{program}");
            let cut = &packed[..packed.len() / 2];
            assert!(matches!(decompress(cut, 1 << 20), Err(DecompressError::Damaged { .. })), "{program}");
            assert!(matches!(decompress(&packed, 1000), Err(DecompressError::TooLarge { limit: 1000 })));
        }
    }

    #[test]
    fn lz4_frames_with_and_without_a_length_are_unpacked() {
        let content: Vec<u8> = sample().into_iter().cycle().take(LZ4_BLOCK + 12345).collect();
        for trailer in [false, true] {
            let frame = lz4_frame(&content, trailer);
            assert_eq!(decompress(&frame, 1 << 24).unwrap(), content);
            assert!(matches!(decompress(&frame, 100), Err(DecompressError::TooLarge { .. })));
            assert!(matches!(
                decompress(&frame[..frame.len() - 5], 1 << 24),
                Err(DecompressError::Damaged { .. })
            ));
        }
    }

    #[test]
    fn unknown_formats_are_named() {
        let error = decompress(b"BZh91AY", 10).unwrap_err();
        assert_eq!(error.to_string(), "unknown compression (first bytes [42, 5a, 68, 39, 31, 41])");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(format in 0usize..4, body in proptest::collection::vec(any::<u8>(), 0..400)) {
            let magic: [&[u8]; 4] = [&[0x1f, 0x8b, 8], b"\xfd7zXZ\0", &[0x28, 0xb5, 0x2f, 0xfd], &LZ4_MAGIC];
            let mut bytes = magic[format].to_vec();
            bytes.extend(body);
            let _ = decompress(&bytes, 1 << 16);
        }

        #[test]
        fn a_mutated_lz4_frame_never_panics(offset in 0usize..2000, value: u8) {
            let mut frame = lz4_frame(&sample()[..20_000], true);
            if let Some(byte) = frame.get_mut(offset) {
                *byte = value;
            }
            let _ = decompress(&frame, 1 << 16);
        }
    }
}
