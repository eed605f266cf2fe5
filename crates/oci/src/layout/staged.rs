//! Content on its way into a layout: summed while it is written, and there only when it is whole.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use super::{Layout, LayoutError, check, host};
use crate::digest::Digester;
use crate::manifest::Descriptor;

/// Content that is being written. Dropped, it is gone.
pub(crate) struct Staged {
    layout: Layout,
    file: NamedTempFile,
    digester: Digester,
}

impl Layout {
    /// Begins to write content.
    pub(crate) fn stage(&self) -> Result<Staged, LayoutError> {
        let file = NamedTempFile::new_in(self.staging()).map_err(host("write in", &self.staging()))?;
        Ok(Staged { layout: self.clone(), file, digester: Digester::default() })
    }

    /// Writes a file of the layout aside, syncs it and puts it in its place.
    pub(super) fn replace(&self, path: &Path, content: &[u8]) -> Result<(), LayoutError> {
        let mut file = NamedTempFile::new_in(self.staging()).map_err(host("write in", &self.staging()))?;
        file.write_all(content).and_then(|()| file.as_file().sync_all()).map_err(host("write", path))?;
        file.persist(path).map_err(|error| host("put in place", path)(error.error))?;
        sync_folder(self.root())
    }

    /// Syncs a finished file and gives it its name among the blobs.
    pub(crate) fn adopt(&self, file: &File, from: &Path, blob: &Descriptor) -> Result<(), LayoutError> {
        let to = self.blob_path(&blob.digest);
        file.sync_all().map_err(host("sync", from))?;
        std::fs::rename(from, &to).map_err(host("put in place", &to))?;
        sync_folder(&self.blobs())
    }
}

impl Staged {
    /// Keeps what was written, by its digest.
    pub(crate) fn keep(self, media_type: &str) -> Result<Descriptor, LayoutError> {
        let blob = Descriptor::new(media_type, self.digester.finish(), self.digester.bytes());
        if !self.layout.has(&blob) {
            let (file, path) = self.file.into_parts();
            self.layout.adopt(&file, &path, &blob)?;
            // It has moved: there is nothing left to remove.
            path.keep().map_err(|error| host("keep", self.layout.root())(error.error))?;
        }
        Ok(blob)
    }

    /// Keeps what was written if it is what it should be.
    pub(crate) fn keep_as(self, blob: &Descriptor) -> Result<(), LayoutError> {
        check(blob, &self.digester)?;
        self.keep(&blob.media_type).map(drop)
    }
}

impl Write for Staged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.digester.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn sync_folder(path: &Path) -> Result<(), LayoutError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(host("sync", path))
}
