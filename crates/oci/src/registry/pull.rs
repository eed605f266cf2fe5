//! From a name to an image in a layout.

use std::collections::HashSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use hyper::header::CONTENT_TYPE;

use super::blocking::blocking;
use super::error::{PullError, PullLimit};
use super::session::Session;
use super::{Client, blob};
use crate::digest::Digest;
use crate::image::{CONFIG_BYTES_MAX, Image, ImageError, MANIFEST_BYTES_MAX, NESTING_MAX};
use crate::layout::{Layout, host};
use crate::manifest::{Descriptor, Document, Manifest};
use crate::reference::Reference;

/// All kinds of manifest that are understood.
const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";
/// Where registries say what they send.
const DIGEST_HEADER: &str = "docker-content-digest";

/// What happens during a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The name led to an image.
    Found {
        /// Its manifest.
        digest: Digest,
        /// How many layers it has.
        layers: usize,
        /// How many bytes they are.
        bytes: u64,
    },
    /// A part of a blob has come: at most one report for each MiB.
    Blob {
        /// Which.
        digest: Digest,
        /// How much of it is there.
        bytes: u64,
        /// How much there will be.
        size: u64,
    },
    /// A blob is there that was not.
    BlobDone {
        /// Which.
        digest: Digest,
    },
    /// A blob was there already.
    BlobThere {
        /// Which.
        digest: Digest,
    },
}

/// A pulled image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The image for the machine.
    pub image: Image,
    /// What the name led to: the digest of the manifest, or of the index it was chosen from.
    pub found: Digest,
}

impl Client {
    /// Brings an image into the layout, under its full name. Layers that are there are not fetched again.
    ///
    /// # Errors
    /// When it cannot be had, is not right, or is not for the machine. The layout then has no new name.
    pub async fn pull(
        &self,
        reference: &Reference,
        layout: &Layout,
        report: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Pulled, PullError> {
        let pull = self.pull_untimed(reference, layout, report);
        tokio::time::timeout(self.settings.pull_timeout, pull).await.unwrap_or(Err(PullError::TimedOut))
    }

    /// The digest that a name leads to now: of a manifest, or of an index.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn resolve(&self, reference: &Reference) -> Result<Digest, PullError> {
        let session = Session::new(self, reference);
        let (_, bytes) = manifest(&session, &reference.wanted(), reference.digest()).await?;
        Ok(Digest::of(&bytes))
    }

    async fn pull_untimed(
        &self,
        reference: &Reference,
        layout: &Layout,
        report: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Pulled, PullError> {
        let _in_use = layout.in_use()?;
        let session = Session::new(self, reference);
        let (found, descriptor, manifest) = self.choose(&session, layout).await?;
        let bytes = manifest.layers.iter().fold(0, |sum: u64, layer| sum.saturating_add(layer.size));
        let max = self.settings.image_bytes_max;
        if bytes > max {
            return Err(PullLimit::Image { bytes, max }.into());
        }
        if manifest.config.size > CONFIG_BYTES_MAX {
            return Err(PullLimit::Small { what: "the configuration", max: CONFIG_BYTES_MAX }.into());
        }
        report(Progress::Found { digest: descriptor.digest, layers: manifest.layers.len(), bytes });
        blob::fetch(&session, &manifest.config, layout, report).await?;
        // The configuration says whether the rest is worth fetching.
        let platform = self.settings.platform.clone();
        let (inner, named) = (layout.clone(), descriptor.clone());
        let loaded = blocking(move || Image::load(&inner, &named, &platform)).await;
        let image = loaded.map_err(host("work in", layout.root()))??;
        let mut seen = HashSet::new();
        let layers = manifest.layers.iter().filter(|layer| seen.insert(layer.digest)).cloned();
        // Futures that own what they fetch: those over borrowed layers could not be sent to another thread.
        let session = &session;
        let fetches: Vec<_> =
            layers.map(|layer| async move { blob::fetch(session, &layer, layout, report).await }).collect();
        stream::iter(fetches)
            .buffer_unordered(self.settings.blobs_at_once.max(1))
            .try_collect::<()>()
            .await?;
        let (inner, name) = (layout.clone(), reference.to_string());
        blocking(move || inner.name(&name, &descriptor)).await.map_err(host("work in", layout.root()))??;
        Ok(Pulled { image, found })
    }

    /// Follows indexes to the manifest for the machine. Keeps the manifest.
    async fn choose(
        &self,
        session: &Session<'_>,
        layout: &Layout,
    ) -> Result<(Digest, Descriptor, Manifest), PullError> {
        let reference = session.reference();
        let failed = |source| PullError::Manifest { reference: reference.to_string(), source };
        let mut wanted = reference.wanted();
        let mut expected = reference.digest().copied();
        let mut found = None;
        for _ in 0..=NESTING_MAX {
            let (kind, bytes) = manifest(session, &wanted, expected.as_ref()).await?;
            let found = *found.get_or_insert(Digest::of(&bytes));
            match Document::decode(&bytes, kind.as_deref()).map_err(failed)? {
                Document::Index(index) => {
                    let chosen = index.choose(&self.settings.platform).map_err(failed)?;
                    wanted = chosen.digest.to_string();
                    expected = Some(chosen.digest);
                }
                Document::Manifest(manifest) => {
                    manifest.check().map_err(failed)?;
                    let (inner, kind) = (layout.clone(), manifest.media_type.clone());
                    let kept = blocking(move || inner.put(&kind, &bytes)).await;
                    let mut descriptor = kept.map_err(host("work in", layout.root()))??;
                    descriptor.platform = Some(self.settings.platform.clone());
                    return Ok((found, descriptor, manifest));
                }
            }
        }
        Err(ImageError::Nested.into())
    }
}

/// A manifest or index, its digest checked if one is expected, and the kind it came as.
async fn manifest(
    session: &Session<'_>,
    wanted: &str,
    expected: Option<&Digest>,
) -> Result<(Option<String>, Vec<u8>), PullError> {
    let path = format!("manifests/{wanted}");
    let mut failures = 0;
    loop {
        let answered = async {
            let answer = session.get(&path, ACCEPT, 0).await?;
            let kind = answer.header(CONTENT_TYPE).map(str::to_owned);
            let said = answer.header(DIGEST_HEADER).and_then(|text| Digest::parse(text).ok());
            let bytes = answer.whole("the manifest", MANIFEST_BYTES_MAX).await?;
            let digest = Digest::of(&bytes);
            match expected.copied().or(said) {
                Some(promised) if promised != digest => Err(PullError::Different { digest: promised }),
                _ => Ok((kind, bytes)),
            }
        };
        match answered.await {
            Err(error) if error.may_pass() => {
                failures += 1;
                if failures >= session.attempts_max() {
                    return Err(error);
                }
                tokio::time::sleep(session.delay(failures)).await;
            }
            done => return done,
        }
    }
}
