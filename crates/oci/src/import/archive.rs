//! Archives of images. They are read once from beginning to end, and may have their lists last: so all content is taken, by digest,
//! into a layout for the time being, and what the image needs is moved from there.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};

use super::{ImportError, ImportLimits, Wanted, content, pick, saved};
use crate::image::{Image, MANIFEST_BYTES_MAX};
use crate::layout::{Layout, LayoutError};
use crate::manifest::{Descriptor, Platform};
use crate::stream::{Bounds, Stream};
use crate::tar::{Kind, Reader, TarError};

/// How many times larger than its compressed form an archive may be.
const RATIO_MAX: u64 = 400;
/// Links that lead to links in an archive.
const LINKS_MAX: usize = 8;

impl Layout {
    /// Takes an image from an archive of a layout or from what `docker save` writes, compressed or not, and calls it `name`.
    ///
    /// # Errors
    /// When it is neither, or not exactly one image is wanted, or it is damaged or too large. Nothing has changed then but for content
    /// that a sweep removes.
    pub fn import_archive(
        &self,
        source: impl Read + 'static,
        wanted: Wanted<'_>,
        name: &str,
        machine: &Platform,
        limits: ImportLimits,
    ) -> Result<Image, ImportError> {
        let _in_use = self.in_use()?;
        let failed = |source| LayoutError::Host { doing: "write in", path: self.staging(), source };
        let folder = tempfile::tempdir_in(self.staging()).map_err(failed)?;
        let inner = Layout::open(folder.path())?;
        let files = Files::take(&inner, source, limits)?;
        let image = if let Some(index) = files.find("index.json") {
            let bytes = inner.read_blob(&index, MANIFEST_BYTES_MAX)?;
            let malformed = |source| ImportError::Malformed { file: "index.json", source };
            #[derive(serde::Deserialize)]
            struct List {
                manifests: Vec<Descriptor>,
            }
            let list: List = serde_json::from_slice(&bytes).map_err(malformed)?;
            Image::load(&inner, pick(&list.manifests, wanted, machine)?, machine)?
        } else {
            let manifest = saved::manifest(&inner, &files, wanted)?;
            Image::load(&inner, &manifest, machine)?
        };
        for blob in content(&image) {
            if !self.has(blob) {
                let path = inner.blob_path(&blob.digest);
                let open = |source| LayoutError::Host { doing: "open", path: path.clone(), source };
                self.adopt(&File::open(&path).map_err(open)?, &path, blob)?;
            }
        }
        self.name(name, &image.descriptor)?;
        Ok(image)
    }
}

/// What an archive has: names and the content behind them. Names are only compared, never opened.
pub(super) struct Files {
    files: HashMap<Vec<u8>, Descriptor>,
    links: HashMap<Vec<u8>, Vec<u8>>,
}

impl Files {
    fn take(inner: &Layout, source: impl Read + 'static, limits: ImportLimits) -> Result<Self, ImportError> {
        let bounds = Bounds { bytes_max: limits.bytes_max, ratio_max: RATIO_MAX };
        let mut reader = Reader::new(Stream::open(source, bounds).map_err(TarError::Read)?);
        let mut found = Self { files: HashMap::new(), links: HashMap::new() };
        let mut entries = 0;
        while let Some(entry) = reader.next_entry()? {
            entries += 1;
            if entries > limits.entries_max {
                return Err(ImportError::Limit { what: "entries", max: limits.entries_max });
            }
            let path = tidy(&entry.path);
            match entry.kind {
                // A sparse file's content is not what it would be as a whole.
                Kind::File
                    if entry.segments.iter().map(|segment| segment.length).sum::<u64>() == entry.size =>
                {
                    let mut staged = inner.stage()?;
                    copy(&mut reader, &mut staged, inner)?;
                    found.files.insert(path, staged.keep("")?);
                }
                Kind::Symlink => {
                    let folder = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
                    let target = [&path[..folder], entry.link.as_slice()].concat();
                    found.links.insert(path, tidy(&target));
                }
                Kind::HardLink => drop(found.links.insert(path, tidy(&entry.link))),
                _ => {}
            }
        }
        Ok(found)
    }

    /// The content behind a name.
    pub(super) fn find(&self, name: &str) -> Option<Descriptor> {
        let mut path = tidy(name.as_bytes());
        for _ in 0..LINKS_MAX {
            if let Some(file) = self.files.get(&path) {
                return Some(file.clone());
            }
            path = self.links.get(&path)?.clone();
        }
        None
    }
}

/// Copies and tells failures of reading from those of writing.
fn copy(from: &mut impl Read, to: &mut impl io::Write, inner: &Layout) -> Result<(), ImportError> {
    let mut buffer = vec![0; 1 << 17];
    loop {
        let count = from.read(&mut buffer).map_err(TarError::from)?;
        if count == 0 {
            return Ok(());
        }
        let failed = |source| LayoutError::Host { doing: "write in", path: inner.root().to_owned(), source };
        to.write_all(&buffer[..count]).map_err(failed)?;
    }
}

/// A name without `.`, `..` and double slashes.
fn tidy(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}
