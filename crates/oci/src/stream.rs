//! A layer's bytes as they are when not compressed: plain, gzip, Zstandard, xz or bzip2, found by looking. Counts, sums and stops at limits,
//! so that a small file cannot become an endless one.

mod bzip2;
mod xz;

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use self::bzip2::Bzip2;
use self::xz::Xz;
use crate::digest::{Digest, Digester};

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const XZ: &[u8] = b"\xfd7zXZ\0";
const BZIP2: &[u8] = b"BZh";
/// Bytes read from the compressed file at once.
const BUFFER_BYTES: usize = 1 << 16;
/// Most memory for the window of a Zstandard frame: what `zstd --long` makes at most without being told.
const WINDOW_BYTES_MAX: u64 = 128 << 20;
/// Bytes that may come out before their ratio to what went in is looked at: small files may be all zeros.
const RATIO_GRACE_BYTES: u64 = 64 << 20;

/// A limit that a stream ran into. Carried inside an `io::Error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamLimit {
    /// All layers together, not compressed.
    #[error("it has more than {0} bytes when not compressed")]
    Bytes(u64),
    /// What comes out against what goes in.
    #[error("it grows more than {0} times when decompressed")]
    Ratio(u64),
}

/// How far decompressing may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bytes_max: u64,
    pub(crate) ratio_max: u64,
}

/// The decompressed bytes of something.
pub(crate) struct Stream {
    inner: Box<dyn Read>,
    taken: Rc<Cell<u64>>,
    digester: Digester,
    bounds: Bounds,
}

impl Stream {
    /// Looks at the beginning of `source` to see how it is compressed.
    pub(crate) fn open(source: impl Read + 'static, bounds: Bounds) -> io::Result<Self> {
        let taken = Rc::new(Cell::new(0));
        let mut source = BufReader::with_capacity(BUFFER_BYTES, Counted { source, taken: taken.clone() });
        let start = beginning(&mut source)?;
        let inner: Box<dyn Read> = if start.starts_with(GZIP) {
            Box::new(MultiGzDecoder::new(source))
        } else if start.starts_with(ZSTD) || is_skippable(&start) {
            Box::new(Zstd::new(source))
        } else if start.starts_with(XZ) {
            Box::new(Xz::new(source))
        } else if start.starts_with(BZIP2) {
            Box::new(Bzip2::new(source))
        } else {
            Box::new(source)
        };
        Ok(Self { inner, taken, digester: Digester::default(), bounds })
    }

    /// The digest of everything that was read.
    pub(crate) fn digest(&self) -> Digest {
        self.digester.finish()
    }

    /// How many bytes were read.
    pub(crate) fn produced(&self) -> u64 {
        self.digester.bytes()
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.digester.update(&buffer[..count]);
        let bytes = self.digester.bytes();
        if bytes > self.bounds.bytes_max {
            return Err(io::Error::other(StreamLimit::Bytes(self.bounds.bytes_max)));
        }
        if bytes > RATIO_GRACE_BYTES && bytes / self.bounds.ratio_max.max(1) > self.taken.get() {
            return Err(io::Error::other(StreamLimit::Ratio(self.bounds.ratio_max)));
        }
        Ok(count)
    }
}

/// The limit inside an error, if that is what it is.
pub(crate) fn limit_in(error: &io::Error) -> Option<StreamLimit> {
    error.get_ref()?.downcast_ref::<StreamLimit>().copied()
}

/// Up to six bytes from the beginning, left where they are.
fn beginning(source: &mut impl BufRead) -> io::Result<Vec<u8>> {
    // One read of a file or a socket may bring less, but a buffer is filled from its start only once.
    let seen = source.fill_buf()?;
    Ok(seen[..seen.len().min(6)].to_vec())
}

struct Counted<R> {
    source: R,
    taken: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Whole buffers, so that the beginning is never seen in pieces.
        let mut filled = 0;
        while filled < buffer.len() {
            match self.source.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.taken.set(self.taken.get() + filled as u64);
        Ok(filled)
    }
}

/// Zstandard frames one after the other, with skippable ones between them.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

fn is_skippable(start: &[u8]) -> bool {
    start.len() >= 4 && start[0] & 0xf0 == 0x50 && start[1..4] == [0x2a, 0x4d, 0x18]
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self { source, decoder, in_frame: false }
    }

    /// Begins the next frame; false when there is none.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            let mut magic = [0; 4];
            self.source.read_exact(&mut magic)?;
            if !is_skippable(&magic) {
                // The decoder wants to read the magic number itself.
                self.decoder.init((&magic[..]).chain(&mut self.source)).map_err(io::Error::other)?;
                return Ok(true);
            }
            let mut length = [0; 4];
            self.source.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            if io::copy(&mut (&mut self.source).take(length), &mut io::sink())? != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame && !self.begin()? {
                return Ok(0);
            }
            self.in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            self.in_frame = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    const BOUNDS: Bounds = Bounds { bytes_max: 1 << 40, ratio_max: 200 };

    fn decompress(bytes: Vec<u8>, bounds: Bounds) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut stream = Stream::open(io::Cursor::new(bytes), bounds)?;
        stream.read_to_end(&mut out)?;
        assert_eq!((stream.digest(), stream.produced()), (Digest::of(&out), out.len() as u64));
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        compressed_by(Command::new("xz").arg("-0"), bytes)
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        compressed_by(Command::new("bzip2").arg("-1"), bytes)
    }

    /// By a program: nothing here compresses so.
    fn compressed_by(program: &mut Command, bytes: &[u8]) -> Vec<u8> {
        let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let (mut input, bytes) = (child.stdin.take().unwrap(), bytes.to_vec());
        let writer = std::thread::spawn(move || input.write_all(&bytes).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success());
        output.stdout
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    #[test]
    fn several_parts_are_one_stream() {
        let text: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let skipped = [&[0x5a, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"noise"].concat();
        for whole in [
            text.repeat(2),
            [gzip(&text), gzip(&text)].concat(),
            [zstd(&text), zstd(&text)].concat(),
            [xz(&text), vec![0; 8], xz(&text), vec![0; 4]].concat(),
            [bzip2(&text), bzip2(b""), bzip2(&text)].concat(),
            [skipped.clone(), zstd(&text), skipped.clone(), zstd(&text), skipped].concat(),
        ] {
            assert!(decompress(whole, BOUNDS).unwrap() == text.repeat(2));
        }
        assert_eq!(decompress(Vec::new(), BOUNDS).unwrap(), b"");
    }

    #[test]
    fn damage_is_an_error() {
        let text: Vec<u8> = (0..50_000u32).flat_map(u32::to_le_bytes).collect();
        for whole in [gzip(&text), zstd(&text), xz(&text), bzip2(&text)] {
            assert!(decompress(whole[..whole.len() - 9].to_vec(), BOUNDS).is_err());
        }
        let mut wrong = gzip(&text);
        let end = wrong.len();
        wrong[end - 6] ^= 1;
        assert!(decompress(wrong, BOUNDS).is_err());
        assert!(decompress(b"BZh91AY&SY".to_vec(), BOUNDS).is_err());
    }

    #[test]
    fn bzip2_is_undone_whatever_was_done() {
        let noise = |length: u32, kinds: u32| -> Vec<u8> {
            let step = |seed: &mut u32| {
                *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                Some(((*seed >> 16) % kinds) as u8)
            };
            let mut seed = 7;
            (0..length).filter_map(|_| step(&mut seed)).collect()
        };
        for bytes in [
            b"a".to_vec(),
            noise(300_000, 256),
            noise(250_000, 3),
            noise(100_000, 1),
            [vec![9; 255], vec![8; 259], vec![7; 260], vec![6; 4], vec![6; 100_000]].concat(),
            (0..100_000u32).flat_map(|number| number.to_string().into_bytes()).collect(),
        ] {
            let whole = bzip2(&bytes);
            assert!(decompress(whole.clone(), BOUNDS).unwrap() == bytes);
            // Whatever is wrong in it, it is told or was not used.
            for at in (4..whole.len()).step_by(1 + whole.len() / 25) {
                let mut wrong = whole.clone();
                wrong[at] ^= 0x10;
                assert!(
                    decompress(wrong, BOUNDS).is_err_and(|error| limit_in(&error).is_none())
                        || at > whole.len() - 2
                );
            }
        }
    }

    #[test]
    fn what_grows_too_much_is_stopped() {
        let bomb = vec![0; 80 << 20];
        for whole in [gzip(&bomb), zstd(&bomb), xz(&bomb), bzip2(&bomb)] {
            let error = decompress(whole, BOUNDS).unwrap_err();
            assert_eq!(limit_in(&error), Some(StreamLimit::Ratio(200)));
        }
        let error = decompress(vec![0; 1000], Bounds { bytes_max: 999, ratio_max: 10 }).unwrap_err();
        assert_eq!(limit_in(&error), Some(StreamLimit::Bytes(999)));
    }
}
