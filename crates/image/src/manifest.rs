//! What a finished entry says about itself, kept beside its files as `manifest.json`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

pub(crate) const MANIFEST: &str = "manifest.json";
/// Manifests of another format are treated as absent, and what they describe is made anew.
const FORMAT: u32 = 1;
/// A longer manifest is not one of ours. A Debian with 5,000 packages needs 300 kB.
const MANIFEST_LENGTH_MAX: u64 = 16 << 20;

/// The content of `manifest.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Manifest<T> {
    format: u32,
    pub(crate) files: Vec<FileRecord>,
    pub(crate) details: T,
}

/// What a file or folder must be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub(crate) name: String,
    /// 0 for folders: their digest covers the lengths of what is in them.
    pub(crate) length: u64,
    pub(crate) digest: Digest,
}

/// How a file of an entry is hashed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// All of it.
    Plain,
    /// Without its holes.
    Sparse,
    /// A folder with everything in it.
    Tree,
}

impl FileRecord {
    /// Hashes what is there now. Blocks on reading it.
    pub(crate) fn take(entry: &Path, name: &str, content: Content) -> io::Result<Self> {
        let path = entry.join(name);
        let (length, digest) = match content {
            Content::Plain => (path.metadata()?.len(), Digest::of_file(&path)?),
            Content::Sparse => (path.metadata()?.len(), Digest::of_sparse_file(&path)?),
            Content::Tree => (0, Digest::of_tree(&path)?),
        };
        Ok(Self { name: name.to_owned(), length, digest })
    }

    /// The cheap test: the file is there and as long as it was.
    fn looks_right(&self, entry: &Path) -> bool {
        let is_tree = self.digest.is_of_tree();
        entry.join(&self.name).symlink_metadata().is_ok_and(|found| {
            if is_tree { found.is_dir() } else { found.is_file() && found.len() == self.length }
        })
    }

    /// The full test: every byte is what it was. Blocks on reading the file.
    pub(crate) fn is_intact(&self, entry: &Path) -> io::Result<bool> {
        Ok(self.looks_right(entry) && self.digest.matches(&entry.join(&self.name))?)
    }
}

impl<T: Serialize + DeserializeOwned> Manifest<T> {
    pub(crate) fn new(files: Vec<FileRecord>, details: T) -> Self {
        Self { format: FORMAT, files, details }
    }

    pub(crate) fn write(&self, entry: &Path) -> io::Result<()> {
        fs::write(entry.join(MANIFEST), serde_json::to_vec_pretty(self)?)
    }

    /// The manifest of an entry that is there, has our format and whose files have the right length.
    pub(crate) fn load(entry: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(entry.join(MANIFEST)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        file.take(MANIFEST_LENGTH_MAX).read_to_end(&mut text)?;
        let Ok(manifest) = serde_json::from_slice::<Self>(&text) else { return Ok(None) };
        let usable =
            manifest.format == FORMAT && manifest.files.iter().all(|record| record.looks_right(entry));
        Ok(usable.then_some(manifest))
    }

    /// The record of the file called `name`.
    pub(crate) fn file(&self, name: &str) -> Option<&FileRecord> {
        self.files.iter().find(|record| record.name == name)
    }
}
