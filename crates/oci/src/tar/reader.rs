//! Reading an archive from its beginning to its end, once.

use std::io::{self, Read};

use super::header::Header;
use super::pax::Pax;
use super::{BLOCK, Entry, Kind, Mtime, Segment, TarError, sparse};

/// Most bytes that records or a long name before an entry may have. Extended attributes are up to 64 KiB each.
const ABOUT_BYTES_MAX: u64 = 1 << 20;

/// Reads entries, and between them the content of the last one.
pub struct Reader<R> {
    input: R,
    /// Content of the current entry that was not read yet.
    content: u64,
    /// Zeros after it.
    padding: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// An archive at its beginning.
    pub fn new(input: R) -> Self {
        Self { input, content: 0, padding: 0, ended: false }
    }

    /// The next entry; nothing after the last. Content of the one before that was not read is skipped.
    ///
    /// # Errors
    /// When the archive is damaged or cannot be read. It cannot be used afterwards.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, TarError> {
        let mut pax: Option<Pax> = None;
        let mut long_path = None;
        let mut long_link = None;
        loop {
            let mut block = [0; BLOCK];
            if !self.next_header(&mut block)? {
                return match pax.is_some() || long_path.is_some() || long_link.is_some() {
                    true => Err(TarError::Truncated),
                    false => Ok(None),
                };
            }
            let header = Header::check(&block)?;
            let size = header.size()?;
            match header.kind() {
                b'x' => pax = Some(Pax::parse(&self.about(size)?)?),
                // Records about all entries say nothing that unpacking needs; Go's programs ignore them as well.
                b'g' => drop(self.about(size)?),
                b'L' => long_path = Some(long_name(self.about(size)?)?),
                b'K' => long_link = Some(long_name(self.about(size)?)?),
                _ => {
                    let mut pax = pax.unwrap_or_default();
                    if let Some(path) = long_path {
                        pax.path = Some(path);
                    }
                    if let Some(link) = long_link {
                        pax.link = Some(link);
                    }
                    return self.entry(&header, size, pax).map(Some);
                }
            }
        }
    }

    /// Reads what is left of the archive after its last entry, so that whoever sums the bytes has seen all of them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn drain(mut self) -> Result<(), TarError> {
        io::copy(&mut self.input, &mut io::sink())?;
        Ok(())
    }

    fn entry(&mut self, header: &Header<'_>, size: u64, pax: Pax) -> Result<Entry, TarError> {
        let mut path = pax.path.clone().unwrap_or_else(|| header.path());
        let letter = header.kind();
        let kind = match letter {
            // Programs from before there were directories in archives mark them by a slash.
            0 if path.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::CharDevice,
            b'4' => Kind::BlockDevice,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => return Err(TarError::UnknownKind(other)),
        };
        // Only files have content, whatever length the headers of others state.
        let mut content = if kind == Kind::File { pax.size.unwrap_or(size) } else { 0 };
        let mut size = content;
        let padding = padding(content);
        let mut segments = Vec::new();
        if letter == b'S' {
            size = self.old_sparse(header, &mut segments)?;
            sparse::check(&segments, size, content)?;
        } else if kind == Kind::File
            && let Some((map, real, consumed)) = sparse::from_pax(&pax, &mut (&mut self.input).take(content))?
        {
            content = content.checked_sub(consumed).ok_or(TarError::Truncated)?;
            (segments, size) = (map, real);
            sparse::check(&segments, size, content)?;
            if let Some(name) = pax.sparse.get(&b"name"[..]) {
                path = name.clone();
            }
        } else if size > 0 {
            segments.push(Segment { offset: 0, length: size });
        }
        if path.contains(&0) {
            return Err(TarError::damaged("a name holds a NUL"));
        }
        (self.content, self.padding) = (content, padding);
        Ok(Entry {
            path,
            kind,
            link: pax.link.unwrap_or_else(|| header.link()),
            mode: header.mode()?,
            uid: pax.uid.map_or_else(|| header.uid(), Ok)?,
            gid: pax.gid.map_or_else(|| header.gid(), Ok)?,
            mtime: match pax.mtime {
                Some(time) => time,
                None => Mtime { seconds: header.mtime()?, nanoseconds: 0 },
            },
            size,
            segments,
            xattrs: pax.xattrs,
            device: if matches!(kind, Kind::CharDevice | Kind::BlockDevice) {
                header.device()?
            } else {
                (0, 0)
            },
        })
    }

    /// The map of GNU's old sparse files, which may go on in blocks of its own; the file's length.
    fn old_sparse(&mut self, header: &Header<'_>, segments: &mut Vec<Segment>) -> Result<u64, TarError> {
        let (pairs, mut more, size) = header.sparse()?;
        sparse::old_pairs(pairs, segments)?;
        while more {
            let mut block = [0; BLOCK];
            self.input.read_exact(&mut block)?;
            let before = segments.len();
            sparse::old_pairs(&block[..504], segments)?;
            more = block[504] != 0;
            if more && segments.len() == before {
                return Err(TarError::damaged("a sparse file's map is wrong"));
            }
        }
        Ok(size)
    }

    /// Content of a small entry that says something about the next one.
    fn about(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        if size > ABOUT_BYTES_MAX {
            return Err(TarError::TooLarge {
                what: "bytes of records or name before an entry",
                max: ABOUT_BYTES_MAX,
            });
        }
        let mut bytes = Vec::new();
        (&mut self.input).take(size).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != size {
            return Err(TarError::Truncated);
        }
        self.padding = padding(size);
        Ok(bytes)
    }

    /// Reads the next block; false at the end: two blocks of zeros, or nothing at all.
    fn next_header(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, TarError> {
        if self.ended {
            return Ok(false);
        }
        let rest = self.content + self.padding;
        if io::copy(&mut (&mut self.input).take(rest), &mut io::sink())? != rest {
            return Err(TarError::Truncated);
        }
        (self.content, self.padding) = (0, 0);
        let mut zeros = 0;
        loop {
            match self.block(block)? {
                false => self.ended = true,
                true if block.iter().all(|byte| *byte == 0) => {
                    zeros += 1;
                    self.ended = zeros == 2;
                }
                true if zeros > 0 => return Err(TarError::damaged("something follows its end")),
                true => return Ok(true),
            }
            if self.ended {
                return Ok(false);
            }
        }
    }

    /// Fills a block; false when nothing is left.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, TarError> {
        let mut filled = 0;
        block.fill(0);
        while filled < BLOCK {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(TarError::Truncated),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

/// The content of the last entry that was returned: its segments, one after the other.
impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(usize::try_from(self.content).unwrap_or(usize::MAX));
        if room == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut buffer[..room])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.content -= count as u64;
        Ok(count)
    }
}

fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

fn long_name(mut bytes: Vec<u8>) -> Result<Vec<u8>, TarError> {
    // GNU's names end with a NUL; what follows the first one is nothing.
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    if bytes.is_empty() { Err(TarError::damaged("a long name is empty")) } else { Ok(bytes) }
}
