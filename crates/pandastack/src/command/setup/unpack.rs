//! Takes one program out of the archive of a release and looks at nothing else in it. Nothing is written but that program.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};

use anyhow::{Context, bail, ensure};
use flate2::bufread::GzDecoder;
use oci::tar::{Kind, Reader, Segment};

/// The published program has about 4 MB.
const PROGRAM_BYTES_MAX: u64 = 64 << 20;
/// All files of an archive together; a small archive could otherwise become an endless one.
const UNPACKED_BYTES_MAX: u64 = 512 << 20;

/// Writes the file called `wanted` to `output`.
pub(super) fn program(archive: impl Read, wanted: &str, mut output: &File) -> anyhow::Result<()> {
    let unpacked = Bounded { inner: GzDecoder::new(BufReader::new(archive)), left: UNPACKED_BYTES_MAX };
    let mut archive = Reader::new(unpacked);
    let mut found = false;
    while let Some(entry) = archive.next_entry()? {
        let path = entry.path.strip_prefix(b"./").unwrap_or(&entry.path);
        let leads_out =
            path.first() == Some(&b'/') || path.split(|byte| *byte == b'/').any(|part| part == b"..");
        ensure!(!leads_out, "`{}` leads out of the archive", entry.shown());
        if path != wanted.as_bytes() {
            continue;
        }
        ensure!(!found, "it is there twice");
        ensure!(entry.kind == Kind::File, "it is not a file ({:?})", entry.kind);
        let (size, max) = (entry.size, PROGRAM_BYTES_MAX >> 20);
        ensure!(size <= PROGRAM_BYTES_MAX, "it has {size} bytes, and at most {max} MiB are taken");
        let whole = [Segment { offset: 0, length: size }];
        ensure!(size > 0 && entry.segments == whole, "it is empty, or has holes");
        let copied = io::copy(&mut archive, &mut output).context("copy it")?;
        ensure!(copied == size, "it is cut off");
        output.flush().context("write it")?;
        found = true;
    }
    // The end of the compressed stream has a sum of its own.
    archive.drain()?;
    if !found {
        bail!("it is not there");
    }
    Ok(())
}

/// Fails where more comes than may.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::other(format!("it has more than {} MiB when unpacked", UNPACKED_BYTES_MAX >> 20))
        })?;
        Ok(read)
    }
}
