//! A tree of files becomes a layer: the same tree gives the same bytes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fgetxattr, flistxattr, fstat, major, minor, openat,
    readlinkat, statat,
};
use rustix::io::Errno;

use crate::tar::{Entry, Kind, Mtime, Writer};

/// Longest value of an extended attribute, and longest list of names.
const XATTR_BYTES_MAX: usize = 1 << 16;
/// Directories within each other: each is held open.
const DEPTH_MAX: usize = 400;

/// Which times the entries get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// Those of the files.
    Kept,
    /// The same for all, in seconds since 1970.
    Fixed(i64),
}

/// Writes the tree below `root` as an archive, in the order of names. A file with several names in the tree is written once, under the
/// first of them. Sockets are left out.
///
/// # Errors
/// When something cannot be read or written.
pub fn write_tree(root: &Path, times: Times, out: impl Write) -> io::Result<()> {
    let folder = rustix::fs::open(root, DIRECTORY, Mode::empty())?;
    let mut packer = Packer { writer: Writer::new(out), times, seen: HashMap::new() };
    let stat = fstat(&folder)?;
    let mut entry = packer.entry(&stat, Kind::Directory, b"./");
    read_xattrs(&folder, &mut entry)?;
    packer.writer.add(&entry)?;
    packer.folder(&folder, b"", 0)?;
    packer.writer.finish()?.flush()
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

struct Packer<W> {
    writer: Writer<W>,
    times: Times,
    /// Names of files that have several.
    seen: HashMap<(u64, u64), Vec<u8>>,
}

impl<W: Write> Packer<W> {
    fn folder(&mut self, folder: &OwnedFd, path: &[u8], depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(io::Error::other("directories are nested too deeply"));
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            names.push(entry?.file_name().to_bytes().to_vec());
        }
        names.sort_unstable();
        for name in names.iter().filter(|name| *name != b"." && *name != b"..") {
            let path = [path, name.as_slice()].concat();
            self.one(folder, name, path, depth)?;
        }
        Ok(())
    }

    fn one(&mut self, folder: &OwnedFd, name: &[u8], path: Vec<u8>, depth: usize) -> io::Result<()> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::CharacterDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Socket | FileType::Unknown => return Ok(()),
        };
        let mut entry = self.entry(&stat, kind, &path);
        if kind != Kind::Directory && stat.st_nlink > 1 {
            let id = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.seen.get(&id) {
                (entry.kind, entry.link, entry.size) = (Kind::HardLink, first.clone(), 0);
                return self.writer.add(&entry);
            }
            self.seen.insert(id, path.clone());
        }
        match kind {
            Kind::File => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = File::from(openat(folder, name, flags, Mode::empty())?);
                read_xattrs(&file, &mut entry)?;
                self.writer.add_file(&entry, file)
            }
            Kind::Directory => {
                entry.path.push(b'/');
                let inner = openat(folder, name, DIRECTORY, Mode::empty())?;
                read_xattrs(&inner, &mut entry)?;
                self.writer.add(&entry)?;
                self.folder(&inner, &entry.path, depth + 1)
            }
            Kind::Symlink => {
                entry.link = readlinkat(folder, name, Vec::new())?.into_bytes();
                self.writer.add(&entry)
            }
            _ => {
                entry.device = (major(stat.st_rdev), minor(stat.st_rdev));
                self.writer.add(&entry)
            }
        }
    }

    fn entry(&self, stat: &Stat, kind: Kind, path: &[u8]) -> Entry {
        let mut entry = Entry::new(kind, path, stat.st_mode & 0o7777);
        (entry.uid, entry.gid) = (stat.st_uid, stat.st_gid);
        entry.size = if kind == Kind::File { stat.st_size as u64 } else { 0 };
        entry.mtime = match self.times {
            Times::Kept => Mtime { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 },
            Times::Fixed(seconds) => Mtime { seconds, nanoseconds: 0 },
        };
        entry
    }
}

/// The attributes that unpacking keeps as well.
fn read_xattrs(fd: impl AsFd, entry: &mut Entry) -> io::Result<()> {
    let mut list = Vec::with_capacity(XATTR_BYTES_MAX);
    match flistxattr(fd.as_fd(), rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    for name in list.split(|byte| *byte == 0).filter(|name| crate::unpack::is_kept(name)) {
        let mut value = Vec::with_capacity(XATTR_BYTES_MAX);
        fgetxattr(fd.as_fd(), name, rustix::buffer::spare_capacity(&mut value))?;
        entry.xattrs.insert(name.to_vec(), value);
    }
    Ok(())
}
