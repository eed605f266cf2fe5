//! The tree that is made: a directory held open, and names resolved below it.
//!
//! The kernel never follows a link here: each part of a name is opened relative to the directory before it, and only if it is a
//! directory itself. Links are read and walked by us, an absolute one from the tree's root, and `..` takes the last opened directory
//! from a stack, so that it cannot climb past the root whatever moves meanwhile.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::error::UnpackCause;
use super::metadata;
use crate::tar::{Mtime, shown};

/// Links on the way of one name, as the kernel limits it.
const LINKS_MAX: usize = 40;
/// Directories are listed and entered, but not through links.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Which directory: device and inode.
pub(super) type Id = (u64, u64);

/// A directory of the tree, held open.
pub(super) struct Directory {
    pub(super) fd: OwnedFd,
    pub(super) id: Id,
    mtime: Mtime,
}

impl Directory {
    fn new(fd: OwnedFd) -> Result<Rc<Self>, UnpackCause> {
        let stat = fstat(&fd).map_err(UnpackCause::host("look at a directory"))?;
        let mtime = Mtime { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 };
        Ok(Rc::new(Self { fd, id: id(&stat), mtime }))
    }

    /// Opens a directory in it, which must be one itself.
    pub(super) fn open(&self, name: &[u8]) -> Result<Rc<Self>, Errno> {
        let fd = openat(self.fd.as_fd(), name, DIRECTORY, Mode::empty())?;
        Self::new(fd).map_err(|_| Errno::IO)
    }

    /// What is there under a name, links not followed.
    pub(super) fn look(&self, name: &[u8]) -> Result<Option<Stat>, UnpackCause> {
        match statat(self.fd.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(UnpackCause::host("look at what is there")(errno)),
        }
    }
}

pub(super) fn id(stat: &Stat) -> Id {
    (stat.st_dev, stat.st_ino)
}

/// What to do about directories that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// Make them, as old as the entry that needs them.
    Make(Mtime),
    /// Answer that there is nothing.
    Tell,
}

/// The tree, and what the current layer did to it.
pub(super) struct Tree {
    root: Rc<Directory>,
    depth_max: usize,
    /// The directory found last, by the name that led to it: entries of one directory follow each other.
    last: Option<(Vec<u8>, Rc<Directory>)>,
    /// Names that the current layer made or changed: whiteouts of the same layer do not concern them.
    made: HashSet<(Id, Box<[u8]>)>,
    /// Times that directories get when the layer is done: those they were given, or had before something in them changed.
    times: HashMap<Id, (Vec<u8>, Mtime)>,
}

impl Tree {
    pub(super) fn open(root: &Path, depth_max: usize) -> Result<Self, UnpackCause> {
        let fd =
            rustix::fs::open(root, DIRECTORY, Mode::empty()).map_err(UnpackCause::host("open the root"))?;
        let root = Directory::new(fd)?;
        Ok(Self { root, depth_max, last: None, made: HashSet::new(), times: HashMap::new() })
    }

    pub(super) fn begin_layer(&mut self) {
        self.last = None;
        self.made.clear();
        self.times.clear();
    }

    /// Must be called when anything but a file went away: the way to the last directory may have led through it.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    pub(super) fn note_made(&mut self, parent: &Directory, name: &[u8]) {
        self.made.insert((parent.id, name.into()));
    }

    pub(super) fn was_made(&self, parent: Id, name: &[u8]) -> bool {
        // A borrowed pair cannot be looked up, so this copies the name; whiteouts are few.
        self.made.contains(&(parent, Box::from(name)))
    }

    /// Remembers the time of a directory in which something is about to change.
    pub(super) fn touch(&mut self, directory: &Directory, path: &[&[u8]]) {
        self.times.entry(directory.id).or_insert_with(|| (path.join(&b'/'), directory.mtime));
    }

    /// The time that a directory is to have in the end.
    pub(super) fn give_time(&mut self, directory: &Directory, path: &[&[u8]], mtime: Mtime) {
        self.times.insert(directory.id, (path.join(&b'/'), mtime));
    }

    /// Gives directories their times, when nothing in them changes any more.
    pub(super) fn set_times(&mut self) -> Result<(), UnpackCause> {
        for (id, (path, mtime)) in std::mem::take(&mut self.times) {
            let parts: Vec<&[u8]> =
                path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
            // What took its place, or nothing, was given its own time.
            let found = match self.directory(&parts, Missing::Tell) {
                Err(UnpackCause::NotADirectory { .. } | UnpackCause::TooManyLinks) => None,
                found => found?,
            };
            if let Some(directory) = found.filter(|directory| directory.id == id) {
                metadata::set_time(&directory.fd, mtime)?;
            }
        }
        Ok(())
    }

    /// The directory that a name leads to, inside the tree whatever links say.
    pub(super) fn directory(
        &mut self,
        path: &[&[u8]],
        missing: Missing,
    ) -> Result<Option<Rc<Directory>>, UnpackCause> {
        let key = path.join(&b'/');
        if let Some((last, directory)) = &self.last
            && *last == key
        {
            return Ok(Some(directory.clone()));
        }
        let Some(directory) = self.walk(path, missing)? else { return Ok(None) };
        self.last = Some((key, directory.clone()));
        Ok(Some(directory))
    }

    fn walk(&mut self, path: &[&[u8]], missing: Missing) -> Result<Option<Rc<Directory>>, UnpackCause> {
        let mut stack = vec![(self.root.clone(), Vec::new())];
        let mut ahead: Vec<Vec<u8>> = path.iter().rev().map(|part| part.to_vec()).collect();
        let mut links = 0;
        while let Some(part) = ahead.pop() {
            if part.is_empty() || part == b"." {
                continue;
            }
            if part == b".." {
                // Above the root is the root, as in any system.
                stack.truncate(stack.len().saturating_sub(1).max(1));
                continue;
            }
            let (here, _) = stack.last().expect("the root stays on the stack");
            let here = here.clone();
            let next = match here.open(&part) {
                Ok(next) => next,
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let Ok(target) = readlinkat(here.fd.as_fd(), part.as_slice(), Vec::new()) else {
                        return Err(UnpackCause::NotADirectory { part: shown(&part) });
                    };
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(UnpackCause::TooManyLinks);
                    }
                    let target = target.as_bytes();
                    if target.starts_with(b"/") {
                        stack.truncate(1);
                    }
                    ahead.extend(target.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec));
                    continue;
                }
                Err(Errno::NOENT) => match missing {
                    Missing::Tell => return Ok(None),
                    Missing::Make(mtime) => self.make(&here, &stack, &part, mtime)?,
                },
                Err(errno) => return Err(UnpackCause::host("open a directory")(errno)),
            };
            if stack.len() > self.depth_max {
                return Err(UnpackCause::Limit {
                    what: "directories within each other",
                    max: self.depth_max as u64,
                });
            }
            stack.push((next, part));
        }
        Ok(stack.pop().map(|(directory, _)| directory))
    }

    /// Makes a directory that entries take for granted.
    fn make(
        &mut self,
        here: &Rc<Directory>,
        stack: &[(Rc<Directory>, Vec<u8>)],
        part: &[u8],
        mtime: Mtime,
    ) -> Result<Rc<Directory>, UnpackCause> {
        let mut path: Vec<&[u8]> = stack.iter().skip(1).map(|(_, part)| part.as_slice()).collect();
        self.touch(here, &path);
        mkdirat(here.fd.as_fd(), part, Mode::from(0o755)).map_err(UnpackCause::host("make a directory"))?;
        let made = here.open(part).map_err(UnpackCause::host("open a directory"))?;
        // Whatever the process masks, the tree is the same.
        metadata::set_mode(&made.fd, 0o755)?;
        self.note_made(here, part);
        path.push(part);
        self.give_time(&made, &path, mtime);
        Ok(made)
    }
}
