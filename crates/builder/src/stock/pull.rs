//! Images come into the stock: from registries and from files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use oci::{Client, Image, ImportLimits, Progress, Reference, Wanted};
use tokio_util::sync::CancellationToken;

use super::Stock;
use crate::error::BuildError;
use crate::log::Journal;
use crate::staging::blocking;

const MB: f64 = 1e6;

impl Stock {
    /// The image that a name leads to now, all of it here.
    pub(crate) async fn pull(&self, name: &str, journal: &Journal<'_>) -> Result<Image, BuildError> {
        let reference = Reference::parse(name, &self.settings.naming)?;
        let part = journal.begin(&format!("pull {reference}"));
        let report = |progress: Progress| match progress {
            Progress::Found { digest, layers, bytes } => {
                part.say(&format!("{digest}, {layers} layers, {:.1} MB", bytes as f64 / MB));
            }
            Progress::BlobDone { digest } => part.say(&format!("{digest} is here")),
            Progress::BlobThere { .. } | Progress::Blob { .. } => {}
        };
        let pulled = async {
            let client = Client::new(self.settings.pull.clone(), self.settings.credentials.clone());
            let client = client
                .map_err(|error| BuildError::host("prepare to ask registries")(io::Error::other(error)))?;
            let pulled = client.pull(&reference, &self.layout, &report).await;
            pulled.map_err(|error| BuildError::pull(name, error))
        };
        match pulled.await {
            Ok(pulled) => {
                part.done();
                Ok(pulled.image)
            }
            Err(error) => {
                part.failed(&error);
                Err(error)
            }
        }
    }

    /// The only image in a layout, an archive of one, or what `docker save` wrote.
    pub(crate) async fn import(
        &self,
        path: &Path,
        cancelled: &CancellationToken,
    ) -> Result<Image, BuildError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Nobody asks for it by name: the name goes once its disk is made.
        let name = format!("import-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let (layout, path, machine) =
            (self.layout.clone(), path.to_owned(), self.settings.pull.platform.clone());
        let limits =
            ImportLimits { bytes_max: self.settings.pull.image_bytes_max, ..ImportLimits::default() };
        let cancelled = cancelled.clone();
        blocking(move || {
            let about = std::fs::symlink_metadata(&path).map_err(BuildError::host("find the image"))?;
            let imported = if about.is_dir() {
                layout.import_directory(&path, Wanted::Only, &name, &machine)
            } else if about.is_file() {
                let file = File::open(&path).map_err(BuildError::host("open the image"))?;
                let source = Watched { source: file, cancelled: cancelled.clone() };
                layout.import_archive(source, Wanted::Only, &name, &machine, limits)
            } else {
                let problem = "the image is neither a file nor a directory".to_owned();
                return Err(BuildError::Source { problem });
            };
            if cancelled.is_cancelled() {
                return Err(BuildError::Cancelled);
            }
            let image = imported.map_err(BuildError::import)?;
            // Its content stays while this build is in progress.
            layout.forget(&name).map_err(|error| BuildError::import(error.into()))?;
            Ok(image)
        })
        .await
    }
}

/// Ends when the build is cancelled, so that nothing goes on for long that nobody waits for.
pub(super) struct Watched<R> {
    pub(super) source: R,
    pub(super) cancelled: CancellationToken,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.cancelled.is_cancelled() {
            true => Err(io::Error::other("the build was cancelled")),
            false => self.source.read(buffer),
        }
    }
}
