//! What `docker save` writes: `manifest.json` lists a configuration and layers by the names of files in the archive.

use std::io::Read;

use serde::Deserialize;

use super::archive::Files;
use super::{ImportError, Wanted};
use crate::image::MANIFEST_BYTES_MAX;
use crate::layout::{Layout, host};
use crate::manifest::{Descriptor, LAYERS_MAX, Manifest};
use crate::media_type::{OCI_CONFIG, OCI_LAYER, OCI_LAYER_GZIP, OCI_LAYER_ZSTD, OCI_MANIFEST};
use crate::write::encoded;

const FILE: &str = "manifest.json";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default, deserialize_with = "crate::config::null_is_empty")]
    repo_tags: Vec<String>,
    #[serde(default, deserialize_with = "crate::config::null_is_empty")]
    layers: Vec<String>,
}

/// Makes a manifest for the wanted image and keeps it.
pub(super) fn manifest(inner: &Layout, files: &Files, wanted: Wanted<'_>) -> Result<Descriptor, ImportError> {
    let missing = |what: &str| ImportError::NotAnImage { missing: what.chars().take(200).collect() };
    let list = files.find(FILE).ok_or_else(|| missing("index.json or manifest.json"))?;
    let bytes = inner.read_blob(&list, MANIFEST_BYTES_MAX)?;
    let images: Vec<Saved> =
        serde_json::from_slice(&bytes).map_err(|source| ImportError::Malformed { file: FILE, source })?;
    let names =
        || images.iter().flat_map(|image| &image.repo_tags).take(20).cloned().collect::<Vec<_>>().join(", ");
    let image = match (wanted, images.as_slice()) {
        (Wanted::Only, [only]) => only,
        (Wanted::Only, []) => return Err(missing("image in its manifest.json")),
        (Wanted::Only, _) => return Err(ImportError::Several { names: names() }),
        (Wanted::Named(name), images) => images
            .iter()
            .find(|image| image.repo_tags.iter().any(|tag| tag == name))
            .ok_or_else(|| ImportError::NoSuchImage { name: name.to_owned(), names: names() })?,
    };
    if image.layers.len() > LAYERS_MAX {
        return Err(ImportError::Limit { what: "layers", max: LAYERS_MAX as u64 });
    }
    let file = |name: &String| files.find(name).ok_or_else(|| missing(name));
    let config = Descriptor { media_type: OCI_CONFIG.into(), ..file(&image.config)? };
    let mut layers = Vec::new();
    for name in &image.layers {
        let mut layer = file(name)?;
        let mut start = Vec::new();
        let path = inner.blob_path(&layer.digest);
        inner.open_blob(&layer)?.take(4).read_to_end(&mut start).map_err(host("read", &path))?;
        layer.media_type = match start.as_slice() {
            [0x1f, 0x8b, ..] => OCI_LAYER_GZIP,
            [0x28, 0xb5, 0x2f, 0xfd] => OCI_LAYER_ZSTD,
            _ => OCI_LAYER,
        }
        .into();
        layers.push(layer);
    }
    let manifest = Manifest { schema_version: 2, media_type: OCI_MANIFEST.into(), config, layers };
    Ok(inner.put(OCI_MANIFEST, &encoded(&manifest))?)
}
