//! Writing an archive: the same entries give the same bytes. Headers are ustar; PAX records carry what does not fit into them.

use std::io::{self, Read, Write};

use super::{BLOCK, Entry, Kind};

/// Longest name in a header; longer ones go into a record.
const NAME_BYTES_MAX: usize = 100;
/// Largest number in seven and in eleven octal digits.
const SEVEN_DIGITS_MAX: u64 = 0o7_777_777;
const ELEVEN_DIGITS_MAX: u64 = 0o77_777_777_777;

/// Writes entries one after the other.
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// An archive without entries.
    pub fn new(output: W) -> Self {
        Self { output }
    }

    /// Adds an entry that has no content.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, entry: &Entry) -> io::Result<()> {
        self.header(entry, 0)
    }

    /// Adds a file with all of its `entry.size` bytes from `content`.
    ///
    /// # Errors
    /// When it cannot be read or written, or when there is less content than that.
    pub fn add_file(&mut self, entry: &Entry, content: impl Read) -> io::Result<()> {
        self.header(entry, entry.size)?;
        if io::copy(&mut content.take(entry.size), &mut self.output)? != entry.size {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
        }
        self.pad(entry.size)
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.write_all(&[0; 2 * BLOCK])?;
        Ok(self.output)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let rest = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        self.output.write_all(&[0; BLOCK][..rest as usize])
    }

    fn header(&mut self, entry: &Entry, size: u64) -> io::Result<()> {
        let records = records(entry, size);
        if !records.is_empty() {
            let header = block(
                b"pax",
                b"",
                b'x',
                &Numbers { size: records.len() as u64, mode: 0o644, ..Numbers::default() },
            );
            self.output.write_all(&header)?;
            self.output.write_all(&records)?;
            self.pad(records.len() as u64)?;
        }
        let letter = match entry.kind {
            Kind::File => b'0',
            Kind::HardLink => b'1',
            Kind::Symlink => b'2',
            Kind::CharDevice => b'3',
            Kind::BlockDevice => b'4',
            Kind::Directory => b'5',
            Kind::Fifo => b'6',
        };
        let numbers = Numbers {
            mode: u64::from(entry.mode & 0o7777),
            uid: u64::from(entry.uid),
            gid: u64::from(entry.gid),
            size,
            mtime: u64::try_from(entry.mtime.seconds).unwrap_or(0),
            device: (u64::from(entry.device.0), u64::from(entry.device.1)),
        };
        self.output.write_all(&block(&entry.path, &entry.link, letter, &numbers))
    }
}

#[derive(Default)]
struct Numbers {
    mode: u64,
    uid: u64,
    gid: u64,
    size: u64,
    mtime: u64,
    device: (u64, u64),
}

fn records(entry: &Entry, size: u64) -> Vec<u8> {
    let mut out = Vec::new();
    // Names that are not plain go into records as well, because the encoding of a header's is anybody's guess.
    let unfit = |name: &[u8]| name.len() > NAME_BYTES_MAX || !name.is_ascii();
    if unfit(&entry.path) {
        record(&mut out, b"path", &entry.path);
    }
    if unfit(&entry.link) {
        record(&mut out, b"linkpath", &entry.link);
    }
    if size > ELEVEN_DIGITS_MAX {
        record(&mut out, b"size", size.to_string().as_bytes());
    }
    for (key, owner) in [("uid", entry.uid), ("gid", entry.gid)] {
        if u64::from(owner) > SEVEN_DIGITS_MAX {
            record(&mut out, key.as_bytes(), owner.to_string().as_bytes());
        }
    }
    let time = entry.mtime;
    let plain = u64::try_from(time.seconds).is_ok_and(|seconds| seconds <= ELEVEN_DIGITS_MAX);
    if time.nanoseconds > 0 || !plain {
        record(&mut out, b"mtime", decimal_time(time.seconds, time.nanoseconds).as_bytes());
    }
    for (name, value) in &entry.xattrs {
        record(&mut out, &[b"SCHILY.xattr.", name.as_slice()].concat(), value);
    }
    out
}

fn decimal_time(seconds: i64, nanoseconds: u32) -> String {
    match (seconds, nanoseconds) {
        (seconds, 0) => seconds.to_string(),
        (seconds, after) if seconds >= 0 => format!("{seconds}.{after:09}"),
        // Whole seconds count down before 1970, so the fraction counts from the other end.
        (seconds, after) => format!("-{}.{:09}", (seconds + 1).unsigned_abs(), 1_000_000_000 - after),
    }
}

/// A record's length counts its own digits.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let bare = key.len() + value.len() + 3;
    let mut long = bare + bare.to_string().len();
    if bare + long.to_string().len() != long {
        long = bare + long.to_string().len();
    }
    out.extend_from_slice(long.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn block(path: &[u8], link: &[u8], letter: u8, numbers: &Numbers) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    let octal = |width: usize, value: u64| format!("{value:0width$o}").into_bytes();
    let fits = |value: u64, max: u64| if value <= max { value } else { 0 };
    put(0, &path[..path.len().min(NAME_BYTES_MAX)]);
    put(100, &octal(7, numbers.mode));
    put(108, &octal(7, fits(numbers.uid, SEVEN_DIGITS_MAX)));
    put(116, &octal(7, fits(numbers.gid, SEVEN_DIGITS_MAX)));
    put(124, &octal(11, fits(numbers.size, ELEVEN_DIGITS_MAX)));
    put(136, &octal(11, fits(numbers.mtime, ELEVEN_DIGITS_MAX)));
    put(148, b"        ");
    put(156, &[letter]);
    put(157, &link[..link.len().min(NAME_BYTES_MAX)]);
    put(257, b"ustar\x0000");
    put(329, &octal(7, fits(numbers.device.0, SEVEN_DIGITS_MAX)));
    put(337, &octal(7, fits(numbers.device.1, SEVEN_DIGITS_MAX)));
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..154].copy_from_slice(&octal(6, sum));
    block[154] = 0;
    block
}
