//! Removing content that no image in the index needs.

use std::collections::HashSet;
use std::fs;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{IN_USE, Layout, LayoutError, host};
use crate::image::MANIFEST_BYTES_MAX;
use crate::manifest::{Descriptor, Document};

/// How deep indexes may list indexes.
const NESTING_MAX: usize = 4;

impl Layout {
    /// Removes all content that no image needs, and parts of content that never came whole. Tells how many bytes that was.
    ///
    /// # Errors
    /// `InUse` while somebody brings content: nothing was removed then. Otherwise some may have been.
    pub fn sweep(&self) -> Result<u64, LayoutError> {
        let lock = self.lock_file()?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(LayoutError::InUse { path: self.root.clone() }),
            Err(errno) => return Err(host("lock", &self.root.join(IN_USE))(errno.into())),
        }
        let mut needed = HashSet::new();
        for image in self.images()? {
            self.need(&image, NESTING_MAX, &mut needed);
        }
        let mut freed = 0;
        for folder in [self.blobs(), self.staging()] {
            for entry in fs::read_dir(&folder).map_err(host("list", &folder))? {
                let entry = entry.map_err(host("list", &folder))?;
                let name = entry.file_name();
                let is_needed = name.to_str().is_some_and(|name| needed.contains(name));
                if folder == self.staging() || !is_needed {
                    let path = entry.path();
                    let found = fs::symlink_metadata(&path).map_err(host("look at", &path))?;
                    match found.is_dir() {
                        true => fs::remove_dir_all(&path).map_err(host("remove", &path))?,
                        false => fs::remove_file(&path).map_err(host("remove", &path))?,
                    }
                    freed += found.len();
                }
            }
        }
        Ok(freed)
    }

    /// Adds everything an image leads to. What of it is not there leads nowhere.
    fn need(&self, image: &Descriptor, nesting: usize, needed: &mut HashSet<String>) {
        needed.insert(image.digest.hex());
        let Ok(bytes) = self.read_blob(image, MANIFEST_BYTES_MAX) else { return };
        match Document::decode(&bytes, Some(&image.media_type)) {
            Ok(Document::Manifest(manifest)) => {
                needed.insert(manifest.config.digest.hex());
                needed.extend(manifest.layers.iter().map(|layer| layer.digest.hex()));
            }
            Ok(Document::Index(index)) if nesting > 0 => {
                index.manifests.iter().for_each(|inner| self.need(inner, nesting - 1, needed));
            }
            _ => {}
        }
    }
}
