//! One entry of a layer, made in the tree.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, linkat, mkdirat, openat, symlinkat};
use rustix::io::Errno;

use super::error::UnpackCause;
use super::policy::SpecialFiles;
use super::remove::Stays;
use super::tree::{Directory, Missing, Tree};
use super::whiteout::Says;
use super::{Unpacker, metadata, name, whiteout};
use crate::tar::{Entry, Kind, TarError, shown};

/// Bytes of a file copied at once.
const COPY_BYTES: usize = 1 << 17;

/// What names that start with `.wh.` mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whiteouts {
    /// That something of a lower layer is gone.
    Apply,
    /// Nothing: they are files.
    AreFiles,
}

impl Unpacker {
    pub(super) fn apply(
        &mut self,
        entry: &Entry,
        content: &mut impl Read,
        whiteouts: Whiteouts,
    ) -> Result<(), UnpackCause> {
        let parts = name::parts(&entry.path, &self.policy)?;
        if matches!(entry.kind, Kind::CharDevice | Kind::BlockDevice | Kind::Fifo) {
            return match self.policy.special_files {
                SpecialFiles::Refuse => Err(UnpackCause::SpecialFile),
                SpecialFiles::Skip => {
                    self.done.special_files_skipped += 1;
                    Ok(())
                }
            };
        }
        let Some((last, above)) = parts.split_last() else { return self.apply_root(entry) };
        if whiteouts == Whiteouts::Apply {
            match whiteout::says(&parts)? {
                Says::Here => {}
                Says::Nothing => return Ok(()),
                Says::Gone(gone) => return self.tree.white_out(above, gone),
                Says::AllGone => return self.tree.white_out_all(above),
            }
        }
        let target = match entry.kind {
            Kind::HardLink => match self.link_target(entry)? {
                // A second name for itself changes nothing.
                Target::Itself => return Ok(()),
                Target::There(directory, name) => Some((directory, name)),
            },
            _ => None,
        };
        let found = self.tree.directory(above, Missing::Make(entry.mtime))?;
        let parent = found.expect("a missing directory is made or an error");
        self.tree.touch(&parent, above);
        let existing = parent.look(last)?;
        let merged = existing.as_ref().is_some_and(|stat| {
            entry.kind == Kind::Directory && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        });
        if let Some(stat) = existing.filter(|_| !merged) {
            self.tree.remove(&parent, last, &stat, Stays::Nothing)?;
        }
        self.tree.note_made(&parent, last);
        match entry.kind {
            Kind::Directory => {
                if !merged {
                    mkdirat(parent.fd.as_fd(), *last, Mode::from(0o700))
                        .map_err(UnpackCause::host("make a directory"))?;
                }
                let made = parent.open(last).map_err(UnpackCause::host("open a directory"))?;
                self.dress(&made, entry, merged)?;
                self.tree.give_time(&made, &parts, entry.mtime);
            }
            Kind::File => self.file(&parent, last, entry, content)?,
            Kind::Symlink => {
                if entry.link.is_empty() || entry.link.contains(&0) {
                    return Err(UnpackCause::name("it is a link to nothing"));
                }
                symlinkat(entry.link.as_slice(), parent.fd.as_fd(), *last)
                    .map_err(UnpackCause::host("make a link"))?;
                metadata::set_link(&parent.fd, last, entry)?;
                self.done.xattrs_skipped += entry.xattrs.len() as u64;
            }
            Kind::HardLink => {
                let (directory, name) = target.expect("hard links were resolved above");
                let linked = linkat(directory.fd.as_fd(), name, parent.fd.as_fd(), *last, AtFlags::empty());
                linked.map_err(|errno| match errno {
                    Errno::NOENT => hard_link(entry, "is not there"),
                    Errno::PERM => hard_link(entry, "is a directory"),
                    errno => UnpackCause::host("make a hard link")(errno),
                })?;
            }
            Kind::CharDevice | Kind::BlockDevice | Kind::Fifo => return Err(UnpackCause::SpecialFile),
        }
        Ok(())
    }

    /// The root itself: only its owner, mode, attributes and time.
    fn apply_root(&mut self, entry: &Entry) -> Result<(), UnpackCause> {
        if entry.kind != Kind::Directory {
            return Err(UnpackCause::name("it would replace the root"));
        }
        let found = self.tree.directory(&[], Missing::Tell)?;
        let root = found.expect("the root is always there");
        self.dress(&root, entry, true)?;
        self.tree.give_time(&root, &[], entry.mtime);
        Ok(())
    }

    fn dress(&mut self, directory: &Directory, entry: &Entry, was_there: bool) -> Result<(), UnpackCause> {
        if was_there {
            metadata::drop_xattrs(&directory.fd, entry)?;
        }
        self.done.xattrs_skipped += metadata::set(&directory.fd, entry)?;
        Ok(())
    }

    fn file(
        &mut self,
        parent: &Directory,
        name: &[u8],
        entry: &Entry,
        content: &mut impl Read,
    ) -> Result<(), UnpackCause> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(parent.fd.as_fd(), name, flags, Mode::from(0o600));
        let file = File::from(made.map_err(UnpackCause::host("make a file"))?);
        let failed = |source| UnpackCause::Host { doing: "write a file", source };
        let mut buffer = vec![0; usize::try_from(entry.size).map_or(COPY_BYTES, |size| size.min(COPY_BYTES))];
        let mut end = 0;
        // Maps of sparse files end with an empty segment, which writes nothing and so makes the file no longer.
        for segment in entry.segments.iter().filter(|segment| segment.length > 0) {
            end = segment.offset;
            let mut left = segment.length;
            while left > 0 {
                let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let count = content.read(&mut buffer[..room]).map_err(TarError::from)?;
                if count == 0 {
                    return Err(TarError::Truncated.into());
                }
                file.write_all_at(&buffer[..count], end).map_err(failed)?;
                end += count as u64;
                left -= count as u64;
            }
        }
        if end < entry.size {
            file.set_len(entry.size).map_err(failed)?;
        }
        self.done.xattrs_skipped += metadata::set(&file, entry)?;
        metadata::set_time(&file, entry.mtime)
    }

    /// Where a hard link's target is. Like any name it is resolved inside the tree.
    fn link_target<'a>(&mut self, entry: &'a Entry) -> Result<Target<'a>, UnpackCause> {
        let parts = name::parts(&entry.link, &self.policy)?;
        let Some((last, above)) = parts.split_last() else { return Err(hard_link(entry, "is the root")) };
        let directory =
            self.tree.directory(above, Missing::Tell)?.ok_or_else(|| hard_link(entry, "is not there"))?;
        let stat = directory.look(last)?.ok_or_else(|| hard_link(entry, "is not there"))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(hard_link(entry, "is a directory"));
        }
        let own = name::parts(&entry.path, &self.policy)?;
        let itself = own.split_last().is_some_and(|(own_last, own_above)| {
            own_last == last && same(&mut self.tree, own_above, &directory)
        });
        Ok(if itself { Target::Itself } else { Target::There(directory, last) })
    }
}

enum Target<'a> {
    Itself,
    There(std::rc::Rc<Directory>, &'a [u8]),
}

fn same(tree: &mut Tree, path: &[&[u8]], directory: &Directory) -> bool {
    matches!(tree.directory(path, Missing::Tell), Ok(Some(found)) if found.id == directory.id)
}

fn hard_link(entry: &Entry, reason: &'static str) -> UnpackCause {
    UnpackCause::HardLink { target: shown(&entry.link), reason }
}
