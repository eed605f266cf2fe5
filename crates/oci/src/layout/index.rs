//! The index of a layout: which images it has, and what they are called.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{Layout, LayoutError, host};
use crate::manifest::Descriptor;
use crate::media_type::OCI_INDEX;

/// The annotation that holds an image's name.
pub const NAME_ANNOTATION: &str = "org.opencontainers.image.ref.name";
/// Longest index that is read.
const INDEX_BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexFile {
    schema_version: u32,
    #[serde(default = "oci_index")]
    media_type: String,
    #[serde(default, deserialize_with = "crate::config::null_is_empty")]
    manifests: Vec<Descriptor>,
}

fn oci_index() -> String {
    OCI_INDEX.to_owned()
}

impl Layout {
    /// What the index lists.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn images(&self) -> Result<Vec<Descriptor>, LayoutError> {
        let path = self.index_path();
        let found = fs::symlink_metadata(&path).map_err(host("look at", &path))?;
        if !found.is_file() || found.len() > INDEX_BYTES_MAX {
            return Err(host("read", &path)(io::Error::other("it is too large, or not a file")));
        }
        let text = fs::read(&path).map_err(host("read", &path))?;
        let index: IndexFile =
            serde_json::from_slice(&text).map_err(|source| LayoutError::Index { path, source })?;
        Ok(index.manifests)
    }

    /// The image of a name.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn find(&self, name: &str) -> Result<Option<Descriptor>, LayoutError> {
        let called =
            |image: &Descriptor| image.annotations.get(NAME_ANNOTATION).is_some_and(|its| its == name);
        Ok(self.images()?.into_iter().find(called))
    }

    /// Gives an image a name, which another one may have had.
    ///
    /// # Errors
    /// When the index cannot be read or written; it is then as before.
    pub fn name(&self, name: &str, image: &Descriptor) -> Result<(), LayoutError> {
        let mut image = image.clone();
        image.annotations.insert(NAME_ANNOTATION.to_owned(), name.to_owned());
        self.change(|images| {
            let called =
                |other: &Descriptor| other.annotations.get(NAME_ANNOTATION).is_some_and(|its| its == name);
            images.retain(|other| !called(other));
            images.push(image);
            true
        })
        .map(drop)
    }

    /// Takes a name away; false when nothing had it. Content stays until it is swept.
    ///
    /// # Errors
    /// When the index cannot be read or written; it is then as before.
    pub fn forget(&self, name: &str) -> Result<bool, LayoutError> {
        self.change(|images| {
            let before = images.len();
            images.retain(|image| image.annotations.get(NAME_ANNOTATION).is_none_or(|its| its != name));
            images.len() != before
        })
    }

    pub(super) fn ensure_index(&self) -> Result<(), LayoutError> {
        if self.index_path().exists() {
            return Ok(());
        }
        let _lock = self.lock_index()?;
        // Somebody else may have been quicker.
        if self.index_path().exists() { Ok(()) } else { self.write_index(Vec::new()) }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Descriptor>) -> bool) -> Result<bool, LayoutError> {
        let _lock = self.lock_index()?;
        let mut images = self.images()?;
        let changed = change(&mut images);
        if changed {
            self.write_index(images)?;
        }
        Ok(changed)
    }

    fn write_index(&self, manifests: Vec<Descriptor>) -> Result<(), LayoutError> {
        let path = self.index_path();
        let index = IndexFile { schema_version: 2, media_type: oci_index(), manifests };
        let text =
            serde_json::to_vec(&index).map_err(|source| LayoutError::Index { path: path.clone(), source })?;
        self.replace(&path, &text)
    }

    /// Waits for the lock: it is held for one small write only.
    fn lock_index(&self) -> Result<File, LayoutError> {
        let path = self.root.join(".index-lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(host("open", &path))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| host("lock", &path)(errno.into()))?;
        Ok(file)
    }

    fn index_path(&self) -> PathBuf {
        self.root.join("index.json")
    }
}
