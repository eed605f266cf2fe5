//! Images from files: a layout directory, an archive of one, or what `docker save` writes. Everything is checked and copied into a
//! layout of ours. Blocking code.

mod archive;
mod saved;

use std::path::Path;

use crate::image::{Image, ImageError};
use crate::layout::{Layout, LayoutError, NAME_ANNOTATION};
use crate::manifest::{Descriptor, Index, Platform};
use crate::stream::{StreamLimit, limit_in};
use crate::tar::TarError;

/// Where `docker save` notes the whole name of an image.
const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// Why an image could not be taken from a file.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The archive is damaged.
    #[error("archive of an image cannot be read")]
    Archive(#[source] TarError),
    /// The archive is larger than allowed, or grows suspiciously.
    #[error("archive of an image is refused")]
    Stream(#[source] StreamLimit),
    /// More of something than allowed.
    #[error("archive has more {what} than the limit of {max}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// Neither kind of archive.
    #[error("it is neither an image layout nor a saved image: it has no {missing}")]
    NotAnImage {
        /// What is missing.
        missing: String,
    },
    /// A list in it cannot be read.
    #[error("`{file}` in it cannot be read")]
    Malformed {
        /// Which list.
        file: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// No image of that name.
    #[error("it has no image `{name}`; it has: {names}")]
    NoSuchImage {
        /// The name.
        name: String,
        /// What it has.
        names: String,
    },
    /// Several images, and nobody said which.
    #[error("it has several images: {names}")]
    Several {
        /// Their names.
        names: String,
    },
    /// The image cannot be used.
    #[error("the image in it cannot be used")]
    Image(#[from] ImageError),
    /// Our own layout cannot be written.
    #[error("the image cannot be kept")]
    Keep(#[from] LayoutError),
}

impl From<TarError> for ImportError {
    fn from(error: TarError) -> Self {
        match &error {
            TarError::Read(source) => limit_in(source).map_or_else(|| Self::Archive(error), Self::Stream),
            _ => Self::Archive(error),
        }
    }
}

/// Which image of several is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// The only one.
    Only,
    /// The one with this name: as written there, in full or the tag alone.
    Named(&'a str),
}

/// How much an archive may bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportLimits {
    /// Bytes of the archive when not compressed.
    pub bytes_max: u64,
    /// Entries in it.
    pub entries_max: u64,
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self { bytes_max: 64 << 30, entries_max: 100_000 }
    }
}

impl Layout {
    /// Copies an image from the layout in the directory `from`, and calls it `name`.
    ///
    /// # Errors
    /// When there is none, or not exactly the one that is wanted, or it is damaged. Nothing has changed then but for content that a
    /// sweep removes.
    pub fn import_directory(
        &self,
        from: &Path,
        wanted: Wanted<'_>,
        name: &str,
        machine: &Platform,
    ) -> Result<Image, ImportError> {
        let _in_use = self.in_use()?;
        let foreign = Layout::foreign(from)?;
        let images = foreign.images()?;
        let image = Image::load(&foreign, pick(&images, wanted, machine)?, machine)?;
        for blob in content(&image) {
            if !self.has(blob) {
                let mut staged = self.stage()?;
                let failed =
                    |source| LayoutError::Host { doing: "copy content from", path: from.to_owned(), source };
                std::io::copy(&mut foreign.open_blob(blob)?, &mut staged).map_err(failed)?;
                staged.keep_as(blob)?;
            }
        }
        self.name(name, &image.descriptor)?;
        Ok(image)
    }
}

/// Everything an image consists of.
pub(crate) fn content(image: &Image) -> impl Iterator<Item = &Descriptor> {
    [&image.descriptor, &image.manifest.config].into_iter().chain(&image.manifest.layers)
}

/// The image that is wanted, of those in an index.
fn pick<'a>(
    images: &'a [Descriptor],
    wanted: Wanted<'_>,
    machine: &Platform,
) -> Result<&'a Descriptor, ImportError> {
    let names = || images.iter().filter_map(name_of).take(20).collect::<Vec<_>>().join(", ");
    let candidates: Vec<&Descriptor> = match wanted {
        Wanted::Only => images.iter().collect(),
        Wanted::Named(name) => {
            let called = |key, image: &Descriptor| image.annotations.get(key).is_some_and(|its| its == name);
            let by = |key| images.iter().filter(|image| called(key, image)).collect::<Vec<_>>();
            let found = by(CONTAINERD_NAME);
            if found.is_empty() { by(NAME_ANNOTATION) } else { found }
        }
    };
    match (candidates.as_slice(), wanted) {
        ([one], _) => Ok(one),
        ([], Wanted::Named(name)) => Err(ImportError::NoSuchImage { name: name.to_owned(), names: names() }),
        ([], Wanted::Only) => Err(ImportError::NotAnImage { missing: "image in its index".into() }),
        (several, _) => {
            // Several forms of one image for different machines are one image.
            let fits = |image: &&&Descriptor| {
                image.platform.is_some()
                    && Index { manifests: vec![(**image).clone()] }.choose(machine).is_ok()
            };
            let mut fitting = several.iter().filter(fits);
            match (fitting.next(), fitting.next()) {
                (Some(one), None) => Ok(one),
                _ => Err(ImportError::Several { names: names() }),
            }
        }
    }
}

fn name_of(image: &Descriptor) -> Option<&str> {
    image
        .annotations
        .get(CONTAINERD_NAME)
        .or_else(|| image.annotations.get(NAME_ANNOTATION))
        .map(String::as_str)
}
