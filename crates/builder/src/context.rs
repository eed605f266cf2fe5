//! A build's context: the files that its Dockerfile may copy.
//!
//! Links in it are kept and never followed: what is read is what lies in the directory itself. Owners do not matter, all becomes root's.

mod disk;

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use dockerfile::{CopyStep, Destination, Entry, IgnoreFile, Listing, SelectError, Selection, Tree};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::error::BuildError;

pub(crate) use disk::{ContextDisk, Supply, archive_place, files_place, inline_place};

const IGNORE_FILE: &str = ".dockerignore";
/// Most files and directories of a context, those that are left out included.
const ENTRIES_MAX: usize = 1_000_000;
/// Longest `.dockerignore` that is read; its parser allows less.
const IGNORE_BYTES_MAX: u64 = 4 << 20;

/// The context of a build, without what `.dockerignore` leaves out.
pub(crate) struct Context {
    root: PathBuf,
    listing: Listing,
    /// Digests of files that somebody had to know.
    digests: Mutex<HashMap<String, String>>,
    cancelled: CancellationToken,
}

impl Context {
    /// Lists the directory `root`. Blocks.
    pub(crate) fn read(root: &Path, cancelled: &CancellationToken) -> Result<Self, BuildError> {
        let mut all = Listing::new();
        let mut count = 0;
        let mut pending = vec![String::new()];
        while let Some(below) = pending.pop() {
            if cancelled.is_cancelled() {
                return Err(BuildError::Cancelled);
            }
            let failed = BuildError::host("list the context");
            for entry in fs::read_dir(root.join(&below)).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                count += 1;
                if count > ENTRIES_MAX {
                    return Err(bad(format!("it has more than {ENTRIES_MAX} files")));
                }
                let Ok(name) = entry.file_name().into_string() else {
                    let shown = format!("{below}/{}", entry.file_name().to_string_lossy());
                    return Err(bad(format!("the name `{shown}` is not UTF-8")));
                };
                let path = if below.is_empty() { name } else { format!("{below}/{name}") };
                let kind = entry.file_type().map_err(failed)?;
                let found = if kind.is_dir() {
                    pending.push(path.clone());
                    Entry::Directory
                } else if kind.is_file() {
                    Entry::File
                } else if kind.is_symlink() {
                    let target = fs::read_link(entry.path()).map_err(failed)?;
                    match target.into_os_string().into_string() {
                        Ok(target) => Entry::Link(target),
                        Err(_) => return Err(bad(format!("the link `{path}` is not UTF-8"))),
                    }
                } else {
                    Entry::Other
                };
                all.insert(&path, found).map_err(|error| bad(error.to_string()))?;
            }
        }
        let listing = match ignore_file(root, &all)? {
            Some(ignore) => all.without(&ignore),
            None => all,
        };
        let (root, cancelled) = (root.to_owned(), cancelled.clone());
        Ok(Self { root, listing, digests: Mutex::default(), cancelled })
    }

    /// A context with nothing in it.
    pub(crate) fn empty() -> Self {
        Self {
            root: PathBuf::new(),
            listing: Listing::new(),
            digests: Mutex::default(),
            cancelled: CancellationToken::new(),
        }
    }

    /// What a step copies from here, when `there` is at its destination.
    pub(crate) fn select(&self, step: &CopyStep, there: Destination) -> Result<Selection, SelectError> {
        step.select(&self.listing, there)
    }

    /// A digest of everything that is selected: names, contents and modes. Blocks on reading the files.
    pub(crate) fn digest(&self, selection: &Selection) -> Result<String, BuildError> {
        selection.digest(&self.listing, |path| self.digest_of(path))
    }

    fn digest_of(&self, path: &str) -> Result<String, BuildError> {
        let known = self.digests.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some(digest) = known {
            return Ok(digest);
        }
        let failed = BuildError::host("read the context");
        let mut hash = Sha256::new();
        if self.listing.entry(path) == Some(Entry::File) {
            let (mut file, about) = self.open(path)?;
            hash.update(mode(&about).to_le_bytes());
            let mut buffer = vec![0; 1 << 17];
            loop {
                if self.cancelled.is_cancelled() {
                    return Err(BuildError::Cancelled);
                }
                match file.read(&mut buffer).map_err(failed)? {
                    0 => break,
                    count => hash.update(&buffer[..count]),
                }
            }
        } else {
            let about = fs::symlink_metadata(self.root.join(path)).map_err(failed)?;
            hash.update(mode(&about).to_le_bytes());
        }
        let digest = format!("{:x}", hash.finalize());
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        digests.insert(path.to_owned(), digest.clone());
        Ok(digest)
    }

    /// Opens a file of the listing; what became something else since is refused.
    fn open(&self, path: &str) -> Result<(File, Metadata), BuildError> {
        let failed = BuildError::host("read the context");
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file =
            File::options().read(true).custom_flags(flags).open(self.root.join(path)).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        match about.is_file() {
            true => Ok((file, about)),
            false => Err(bad(format!("`{path}` changed while it was read"))),
        }
    }

    /// Whether `path` is an archive that `ADD` unpacks.
    fn is_archive(&self, path: &str) -> Result<bool, BuildError> {
        let (file, _) = self.open(path)?;
        oci::is_archive(file).map_err(BuildError::host("read the context"))
    }
}

fn ignore_file(root: &Path, all: &Listing) -> Result<Option<IgnoreFile>, BuildError> {
    if all.entry(IGNORE_FILE) != Some(Entry::File) {
        return Ok(None);
    }
    let mut text = Vec::new();
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(root.join(IGNORE_FILE));
    file.and_then(|file| file.take(IGNORE_BYTES_MAX).read_to_end(&mut text))
        .map_err(BuildError::host("read .dockerignore"))?;
    Ok(Some(IgnoreFile::parse(&String::from_utf8_lossy(&text))?))
}

fn bad(problem: String) -> BuildError {
    BuildError::Context { problem }
}

fn mode(about: &Metadata) -> u32 {
    about.permissions().mode() & 0o7777
}

#[cfg(test)]
mod tests;
