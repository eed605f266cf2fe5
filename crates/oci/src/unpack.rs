//! Layers become a tree of files. Blocking code, to be run as root on a thread that may block.
//!
//! Layers come from strangers. Every name is resolved by walking directories that are held open, one part at a time and never through
//! a link that the kernel follows by itself (`tree.rs`): links are read and walked as if the tree were `/`, so a name can end only
//! inside it. What no honest layer needs is refused; how much there may be is limited (`Policy`). After an error the tree is half
//! done and must be thrown away.

mod apply;
mod error;
mod metadata;
mod name;
mod policy;
mod remove;
mod tree;
mod whiteout;

use std::io::Read;
use std::path::Path;

use crate::digest::Digest;
use crate::stream::{Bounds, Stream};
use crate::tar::{Entry, Reader, TarError};

pub use error::{UnpackCause, UnpackError};
pub(crate) use metadata::is_kept;
pub use policy::{AbsoluteNames, Limits, Policy, SpecialFiles};

use apply::Whiteouts;
use tree::Tree;

/// What was unpacked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Entries of all archives.
    pub entries: u64,
    /// Lengths of all files, holes included and replaced files too.
    pub file_bytes: u64,
    /// Bytes of all archives when not compressed.
    pub archive_bytes: u64,
    /// Devices and pipes that were left out.
    pub special_files_skipped: u64,
    /// Extended attributes that were left out: those of other kinds than `user.` and `security.capability`, and those of links.
    pub xattrs_skipped: u64,
}

/// Whether something begins as an archive does that [`Unpacker::tarball`] takes: tar, gzip, Zstandard, xz or bzip2. What begins so may
/// still turn out to be damaged.
///
/// # Errors
/// When it cannot be read.
pub fn is_archive(source: impl Read + 'static) -> std::io::Result<bool> {
    let limits = Limits::default();
    let bounds = Bounds { bytes_max: limits.bytes_max, ratio_max: limits.ratio_max };
    let mut block = [0; crate::tar::BLOCK];
    match Stream::open(source, bounds)?.read_exact(&mut block) {
        Ok(()) => Ok(crate::tar::is_header(&block)),
        // Shorter, or not what its first bytes pretend.
        Err(_) => Ok(false),
    }
}

/// Unpacks archives over each other into one directory.
pub struct Unpacker {
    tree: Tree,
    policy: Policy,
    done: Unpacked,
}

impl Unpacker {
    /// Starts with the directory `root`, which should be empty and in nobody else's hands.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn new(root: &Path, policy: Policy) -> Result<Self, UnpackError> {
        let tree =
            Tree::open(root, policy.limits.depth_max).map_err(|cause| UnpackError::of("root", cause))?;
        Ok(Self { tree, policy, done: Unpacked::default() })
    }

    /// Applies a layer (tar, gzip or Zstandard) over what is there, whiteouts included, and checks that it is the one meant.
    /// `label` names it in errors.
    ///
    /// # Errors
    /// When the layer is damaged, hostile, beyond a limit or another one than `diff_id` says, or when the host refuses something.
    pub fn layer(
        &mut self,
        label: &str,
        source: impl Read + 'static,
        diff_id: &Digest,
    ) -> Result<(), UnpackError> {
        let found = self.archive(label, source, Whiteouts::Apply)?;
        if found != *diff_id {
            return Err(UnpackError::of(label, UnpackCause::WrongDiffId { expected: *diff_id, found }));
        }
        Ok(())
    }

    /// Unpacks a whole root file system (tar, gzip or Zstandard), in which whiteouts mean nothing, and tells its digest.
    ///
    /// # Errors
    /// As for a layer.
    pub fn tarball(&mut self, label: &str, source: impl Read + 'static) -> Result<Digest, UnpackError> {
        self.archive(label, source, Whiteouts::AreFiles)
    }

    /// What was unpacked so far.
    pub fn unpacked(&self) -> Unpacked {
        self.done
    }

    fn archive(
        &mut self,
        label: &str,
        source: impl Read + 'static,
        whiteouts: Whiteouts,
    ) -> Result<Digest, UnpackError> {
        let failed = |cause: UnpackCause| UnpackError::of(label, cause);
        let limits = self.policy.limits;
        let bounds = Bounds {
            bytes_max: limits.bytes_max.saturating_sub(self.done.archive_bytes),
            ratio_max: limits.ratio_max,
        };
        let mut stream =
            Stream::open(source, bounds).map_err(|error| failed(TarError::Read(error).into()))?;
        let mut reader = Reader::new(&mut stream);
        self.tree.begin_layer();
        while let Some(entry) = reader.next_entry().map_err(|error| failed(error.into()))? {
            self.count(&entry).and_then(|()| self.apply(&entry, &mut reader, whiteouts)).map_err(
                |cause| UnpackError { layer: label.to_owned(), entry: Some(entry.shown()), cause },
            )?;
        }
        reader.drain().map_err(|error| failed(error.into()))?;
        self.tree.set_times().map_err(failed)?;
        self.done.archive_bytes += stream.produced();
        Ok(stream.digest())
    }

    /// Counts an entry before anything is done about it.
    fn count(&mut self, entry: &Entry) -> Result<(), UnpackCause> {
        let limits = &self.policy.limits;
        self.done.entries += 1;
        self.done.file_bytes = self.done.file_bytes.saturating_add(entry.size);
        let within = |what, value: u64, max: u64| match value <= max {
            true => Ok(()),
            false => Err(UnpackCause::Limit { what, max }),
        };
        within("entries", self.done.entries, limits.entries_max)?;
        within("bytes in one file", entry.size, limits.file_bytes_max)?;
        within("bytes in all files", self.done.file_bytes, limits.bytes_max)
    }
}
