//! Taking things away from the tree.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Dir, FileType, Stat, unlinkat};

use super::error::UnpackCause;
use super::tree::{Directory, Tree};

/// What stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stays {
    /// Nothing.
    Nothing,
    /// What the current layer brought.
    OfThisLayer,
}

impl Tree {
    /// Removes what is under a name, all of it or what came from lower layers.
    pub(super) fn remove(
        &mut self,
        parent: &Directory,
        name: &[u8],
        stat: &Stat,
        stays: Stays,
    ) -> Result<(), UnpackCause> {
        let of_this_layer = stays == Stays::OfThisLayer && self.was_made(parent.id, name);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.forget();
            let directory = parent.open(name).map_err(UnpackCause::host("open a directory"))?;
            let empty = self.clear(&directory, stays)?;
            if empty && !of_this_layer {
                unlinkat(parent.fd.as_fd(), name, AtFlags::REMOVEDIR)
                    .map_err(UnpackCause::host("remove a directory"))?;
            }
        } else if !of_this_layer {
            if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                self.forget();
            }
            unlinkat(parent.fd.as_fd(), name, AtFlags::empty())
                .map_err(UnpackCause::host("remove a file"))?;
        }
        Ok(())
    }

    /// Removes what is in a directory; tells whether it is empty now. Goes no deeper than the tree could be made.
    pub(super) fn clear(&mut self, directory: &Directory, stays: Stays) -> Result<bool, UnpackCause> {
        for name in names(directory)? {
            if let Some(stat) = directory.look(&name)? {
                self.remove(directory, &name, &stat, stays)?;
            }
        }
        Ok(stays == Stays::Nothing || names(directory)?.is_empty())
    }
}

fn names(directory: &Directory) -> Result<Vec<Vec<u8>>, UnpackCause> {
    let failed = UnpackCause::host("list a directory");
    let mut names = Vec::new();
    for entry in Dir::read_from(directory.fd.as_fd()).map_err(&failed)? {
        let name = entry.map_err(&failed)?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}
