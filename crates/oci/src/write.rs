//! Writing images into a layout, and layouts into archives.

use std::io::{self, Write};

use flate2::Compression as Level;
use flate2::write::GzEncoder;

use crate::config::ImageConfig;
use crate::digest::{Digest, Digester};
use crate::image::{Image, ImageError};
use crate::layout::{Layout, LayoutError, NAME_ANNOTATION, Staged, host};
use crate::manifest::{Descriptor, Manifest};
use crate::media_type::{OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_LAYER_GZIP, OCI_MANIFEST};
use crate::tar::{Entry, Kind, Writer};

/// How a layer is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As it is.
    None,
    /// With gzip: the same bytes give the same bytes.
    Gzip,
}

/// A layer in a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The content as it is kept.
    pub descriptor: Descriptor,
    /// Its digest when not compressed.
    pub diff_id: Digest,
}

impl Layout {
    /// Writes a layer: `write` gives the archive.
    ///
    /// # Errors
    /// When `write` fails, or the disk.
    pub fn write_layer(
        &self,
        compression: Compression,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Layer, LayoutError> {
        let failed = |source| host("write a layer below", self.root())(source);
        let staged = self.stage()?;
        match compression {
            Compression::None => {
                let mut tee = Tee { inner: staged, digester: Digester::default() };
                write(&mut tee).map_err(failed)?;
                let diff_id = tee.digester.finish();
                Ok(Layer { descriptor: tee.inner.keep(OCI_LAYER)?, diff_id })
            }
            Compression::Gzip => {
                let encoder: GzEncoder<Staged> = GzEncoder::new(staged, Level::default());
                let mut tee = Tee { inner: encoder, digester: Digester::default() };
                write(&mut tee).map_err(failed)?;
                let diff_id = tee.digester.finish();
                let staged = tee.inner.finish().map_err(failed)?;
                Ok(Layer { descriptor: staged.keep(OCI_LAYER_GZIP)?, diff_id })
            }
        }
    }

    /// Writes an image of layers, lowest first, under a name. The configuration's list of layers is made here.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_image(
        &self,
        name: &str,
        mut config: ImageConfig,
        layers: &[Layer],
    ) -> Result<Descriptor, LayoutError> {
        config.rootfs.diff_ids = layers.iter().map(|layer| layer.diff_id).collect();
        let platform = config.platform();
        let config = self.put(OCI_CONFIG, &encoded(&config))?;
        let layers = layers.iter().map(|layer| layer.descriptor.clone()).collect();
        let manifest = Manifest { schema_version: 2, media_type: OCI_MANIFEST.into(), config, layers };
        let mut descriptor = self.put(OCI_MANIFEST, &encoded(&manifest))?;
        descriptor.platform = Some(platform);
        self.name(name, &descriptor)?;
        Ok(descriptor)
    }

    /// Writes an image as an OCI archive, under a name or without one.
    ///
    /// # Errors
    /// When its content cannot be read or the archive not written.
    pub fn write_archive(
        &self,
        image: &Image,
        name: Option<&str>,
        out: impl Write,
    ) -> Result<(), ImageError> {
        let failed =
            |source| LayoutError::Host { doing: "write an archive of", path: self.root().to_owned(), source };
        let mut descriptor = image.descriptor.clone();
        descriptor.annotations.clear();
        descriptor.annotations.extend(name.map(|name| (NAME_ANNOTATION.to_owned(), name.to_owned())));
        let index =
            serde_json::json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [descriptor]});
        let mut writer = Writer::new(out);
        let mut add = |path: &str, content: &mut dyn io::Read, size: u64| {
            let mut entry = Entry::new(Kind::File, path.as_bytes(), 0o644);
            entry.size = size;
            writer.add_file(&entry, content).map_err(failed)
        };
        let marker = r#"{"imageLayoutVersion":"1.0.0"}"#.as_bytes();
        add("oci-layout", &mut &*marker, marker.len() as u64)?;
        let index = index.to_string().into_bytes();
        add("index.json", &mut index.as_slice(), index.len() as u64)?;
        let mut written = std::collections::HashSet::new();
        for blob in [&image.descriptor, &image.manifest.config].into_iter().chain(&image.manifest.layers) {
            if written.insert(blob.digest) {
                let path = format!("blobs/sha256/{}", blob.digest.hex());
                add(&path, &mut self.open_blob(blob)?, blob.size)?;
            }
        }
        writer.finish().and_then(|mut out| out.flush()).map_err(failed)?;
        Ok(())
    }
}

pub(crate) fn encoded(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("maps with text keys and numbers are always JSON")
}

struct Tee<W> {
    inner: W,
    digester: Digester,
}

impl<W: Write> Write for Tee<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digester.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
