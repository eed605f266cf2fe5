//! Copies trees: directories are merged, files replaced, and what a file is besides its contents comes along.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use guest_link::tool::CopyWhat;

use super::attributes::{self, Attributes};
use super::{Tried, Trouble};
use crate::boot::c_path;
use crate::kernel::check;

/// Copies, and remembers files with several names.
pub(crate) struct Copier {
    owner: Option<(u32, u32)>,
    mode: Option<u32>,
    /// By device and number: where the first of a file's names went.
    first_names: BTreeMap<(u64, u64), PathBuf>,
}

/// Whether a directory was named by the request or lies below one that was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Named,
    Below,
}

impl Copier {
    pub(crate) fn new(owner: Option<(u32, u32)>, mode: Option<u32>) -> Copier {
        Copier { owner, mode, first_names: BTreeMap::new() }
    }

    /// Copies what `from` leads to.
    pub(crate) fn copy(&mut self, from: &Path, to: &Path, what: CopyWhat) -> Result<(), Trouble> {
        let metadata = fs::metadata(from).tried("copy to", to)?;
        if metadata.is_dir() {
            return self.directory(from, &metadata, to, Level::Named);
        }
        match what {
            CopyWhat::Itself => self.file(from, &metadata, to),
            CopyWhat::Contents => Err(Trouble(format!("what is copied to {} is no directory", to.display()))),
        }
    }

    fn directory(
        &mut self,
        from: &Path,
        metadata: &Metadata,
        to: &Path,
        level: Level,
    ) -> Result<(), Trouble> {
        let made = match DirBuilder::new().mode(0o700).create(to) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A link to a directory is one, as it is for every program.
                if !fs::metadata(to).is_ok_and(|there| there.is_dir()) {
                    let to = to.display();
                    return Err(Trouble(format!(
                        "{to} is no directory, and one would have to be copied there"
                    )));
                }
                false
            }
            Err(error) => return Err(error).tried("make", to),
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(from).tried("copy to", to)? {
            names.push(entry.tried("copy to", to)?.file_name());
        }
        for name in names {
            let (from, to) = (from.join(&name), to.join(&name));
            let metadata = fs::symlink_metadata(&from).tried("copy to", &to)?;
            match metadata.is_dir() {
                true => self.directory(&from, &metadata, &to, Level::Below)?,
                false => self.file(&from, &metadata, &to)?,
            }
        }
        if made || level == Level::Below {
            self.attributes(metadata).apply(from, to).tried("copy to", to)?;
        }
        Ok(())
    }

    /// Anything but a directory, under a name that is new or a file's.
    fn file(&mut self, from: &Path, metadata: &Metadata, to: &Path) -> Result<(), Trouble> {
        match fs::symlink_metadata(to) {
            Ok(there) if there.is_dir() => {
                let to = to.display();
                return Err(Trouble(format!(
                    "{to} is a directory, and a file would have to be copied there"
                )));
            }
            Ok(_) => fs::remove_file(to).tried("replace", to)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).tried("replace", to),
        }
        let number = (metadata.dev(), metadata.ino());
        if metadata.nlink() > 1 {
            // Where it cannot be a name of the same file it is a file of its own.
            if self.first_names.get(&number).is_some_and(|first| fs::hard_link(first, to).is_ok()) {
                return Ok(());
            }
            self.first_names.insert(number, to.to_owned());
        }
        make(from, metadata, to).tried("copy to", to)?;
        self.attributes(metadata).apply(from, to).tried("copy to", to)
    }

    fn attributes(&self, metadata: &Metadata) -> Attributes {
        Attributes::of(metadata, self.owner, self.mode)
    }
}

/// Makes a file with the same contents.
fn make(from: &Path, metadata: &Metadata, to: &Path) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
        let path = c_path(to)?;
        let mode = metadata.mode() & libc::S_IFMT | attributes::PRIVATE_MODE;
        // SAFETY: the path is a C string.
        check(unsafe { libc::mknod(path.as_ptr(), mode, metadata.rdev()) })?;
        return Ok(());
    }
    let source = File::open(from)?;
    let target = OpenOptions::new().write(true).create_new(true).mode(attributes::PRIVATE_MODE).open(to)?;
    contents(source, target)
}

/// Copies bytes; holes stay holes.
fn contents(mut source: File, mut target: File) -> io::Result<()> {
    let length = source.metadata()?.len();
    let mut at = 0;
    while at < length {
        let Some(begin) = seek(&source, at, libc::SEEK_DATA)? else { break };
        let end = seek(&source, begin, libc::SEEK_HOLE)?.unwrap_or(length);
        source.seek(SeekFrom::Start(begin))?;
        target.seek(SeekFrom::Start(begin))?;
        let copied = io::copy(&mut Read::take(&mut source, end - begin), &mut target)?;
        if copied == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at = begin + copied;
    }
    target.set_len(length)
}

/// The next data or hole; `None` when there is none.
fn seek(file: &File, from: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    let from = i64::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: no pointers.
    match unsafe { libc::lseek(file.as_raw_fd(), from, whence) } {
        found if found >= 0 => Ok(Some(found as u64)),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}
