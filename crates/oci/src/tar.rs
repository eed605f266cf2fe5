//! Tar archives as layers use them: POSIX (ustar and PAX), GNU's long names and sparse files.
//!
//! Written for input that means harm: nothing is allocated by a length that an archive claims, and wherever archives can be read in
//! two ways they are read as the programs that make and unpack images do (Go's), or refused.

mod header;
mod pax;
mod reader;
mod sparse;
mod writer;

use std::collections::BTreeMap;
use std::io;

pub use reader::Reader;
pub use writer::Writer;

/// Headers, data and padding come in blocks of this size.
pub(crate) const BLOCK: usize = 512;

/// Whether a block is the header of an entry.
pub(crate) fn is_header(block: &[u8; BLOCK]) -> bool {
    header::Header::check(block).is_ok()
}

/// Why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// What it is read from failed.
    #[error("archive cannot be read")]
    Read(#[source] io::Error),
    /// It ends in the middle of something.
    #[error("archive is cut off")]
    Truncated,
    /// A header that is none.
    #[error("archive is damaged: {reason}")]
    Damaged {
        /// What is wrong.
        reason: &'static str,
    },
    /// Something larger than sense allows.
    #[error("archive has {what} beyond the limit of {max}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// An entry of a kind that nothing here understands.
    #[error("archive has an entry of unknown kind {0:#x}")]
    UnknownKind(u8),
}

impl TarError {
    fn damaged(reason: &'static str) -> Self {
        Self::Damaged { reason }
    }
}

impl From<io::Error> for TarError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            _ => Self::Read(error),
        }
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file with content.
    File,
    /// Another name for an entry that is there already.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A directory.
    Directory,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
}

/// A time as files have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mtime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds, below 10⁹.
    pub nanoseconds: u32,
}

/// A stretch of a file that has content; everything else in it is zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where in the file.
    pub offset: u64,
    /// How long.
    pub length: u64,
}

/// An entry of an archive, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, as it stands there: to be distrusted.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// What a link points to.
    pub link: Vec<u8>,
    /// Permission bits, set-user-id and such included.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When it was changed.
    pub mtime: Mtime,
    /// The length of a file, holes included.
    pub size: u64,
    /// Where the content that follows belongs, in rising order.
    pub segments: Vec<Segment>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Major and minor number of a device.
    pub device: (u32, u32),
}

impl Entry {
    /// An entry of the superuser's without content.
    pub fn new(kind: Kind, path: &[u8], mode: u32) -> Self {
        Self {
            path: path.to_vec(),
            kind,
            link: Vec::new(),
            mode,
            uid: 0,
            gid: 0,
            mtime: Mtime::default(),
            size: 0,
            segments: Vec::new(),
            xattrs: BTreeMap::new(),
            device: (0, 0),
        }
    }

    /// Its name for people: printable, and not too long.
    pub fn shown(&self) -> String {
        shown(&self.path)
    }
}

/// A name from an archive for people.
pub(crate) fn shown(name: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(name).chars().take(200).collect();
    text.escape_debug().to_string()
}

#[cfg(test)]
mod tests;
