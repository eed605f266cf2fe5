//! An image that is all there: its manifest, its configuration, and its layers in a layout.

use std::path::Path;

use crate::config::{ConfigError, ImageConfig};
use crate::layout::{Layout, LayoutError};
use crate::manifest::{Descriptor, Document, Manifest, ManifestError, Platform};
use crate::unpack::{Policy, UnpackError, Unpacked, Unpacker};

/// Longest manifest or index, as registries limit it.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Longest configuration.
pub(crate) const CONFIG_BYTES_MAX: u64 = 8 << 20;
/// Indexes within indexes that are followed.
pub(crate) const NESTING_MAX: usize = 3;

/// Why content is no image that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Content is missing or damaged.
    #[error("content of the image cannot be had")]
    Layout(#[from] LayoutError),
    /// The manifest.
    #[error("manifest {digest} cannot be used")]
    Manifest {
        /// Which.
        digest: crate::digest::Digest,
        /// Why.
        #[source]
        source: ManifestError,
    },
    /// The configuration.
    #[error("configuration cannot be used")]
    Config(#[from] ConfigError),
    /// For another kind of machine.
    #[error("the image is for {found}, not for {wanted}")]
    OtherPlatform {
        /// What was wanted.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// Manifest and configuration disagree.
    #[error("the image has {layers} layers and says that it has {diff_ids}")]
    LayerCount {
        /// In the manifest.
        layers: usize,
        /// In the configuration.
        diff_ids: usize,
    },
    /// Indexes within indexes without end.
    #[error("indexes are nested more than {NESTING_MAX} deep")]
    Nested,
    /// A layer cannot be unpacked.
    #[error("layers cannot be unpacked")]
    Unpack(#[source] Box<UnpackError>),
}

impl From<UnpackError> for ImageError {
    fn from(error: UnpackError) -> Self {
        Self::Unpack(Box::new(error))
    }
}

/// An image for one kind of machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its manifest's descriptor: the digest is the image's identity.
    pub descriptor: Descriptor,
    /// Its manifest.
    pub manifest: Manifest,
    /// Its configuration.
    pub config: ImageConfig,
}

impl Image {
    /// Reads the image that `descriptor`, a manifest or an index, has for `machine`. All of it but the layers is checked.
    ///
    /// # Errors
    /// When something is missing, damaged, no image, or for another machine.
    pub fn load(layout: &Layout, descriptor: &Descriptor, machine: &Platform) -> Result<Self, ImageError> {
        let mut descriptor = descriptor.clone();
        for _ in 0..=NESTING_MAX {
            let bytes = layout.read_blob(&descriptor, MANIFEST_BYTES_MAX)?;
            let failed = |source| ImageError::Manifest { digest: descriptor.digest, source };
            match Document::decode(&bytes, Some(&descriptor.media_type)).map_err(failed)? {
                Document::Index(index) => descriptor = index.choose(machine).map_err(failed)?.clone(),
                Document::Manifest(manifest) => {
                    manifest.check().map_err(failed)?;
                    let config = ImageConfig::decode(&layout.read_blob(&manifest.config, CONFIG_BYTES_MAX)?)?;
                    let image = Self { descriptor, manifest, config };
                    image.check(machine)?;
                    return Ok(image);
                }
            }
        }
        Err(ImageError::Nested)
    }

    fn check(&self, machine: &Platform) -> Result<(), ImageError> {
        let found = self.config.platform();
        if found.os != machine.os || found.architecture != machine.architecture {
            return Err(ImageError::OtherPlatform { wanted: machine.to_string(), found: found.to_string() });
        }
        let (layers, diff_ids) = (self.manifest.layers.len(), self.config.rootfs.diff_ids.len());
        if layers != diff_ids {
            return Err(ImageError::LayerCount { layers, diff_ids });
        }
        Ok(())
    }

    /// Unpacks all layers into the empty directory `root`, each checked against the configuration. Blocks for as long as that takes.
    ///
    /// # Errors
    /// See `Unpacker`. What is in `root` then must be thrown away.
    pub fn unpack(&self, layout: &Layout, root: &Path, policy: Policy) -> Result<Unpacked, ImageError> {
        let mut unpacker = Unpacker::new(root, policy)?;
        for (number, (layer, diff_id)) in
            self.manifest.layers.iter().zip(&self.config.rootfs.diff_ids).enumerate()
        {
            let label = format!("layer {} of {} ({})", number + 1, self.manifest.layers.len(), layer.digest);
            unpacker.layer(&label, layout.open_blob(layer)?, diff_id)?;
        }
        Ok(unpacker.unpacked())
    }
}
