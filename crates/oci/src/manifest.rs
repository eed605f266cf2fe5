//! Manifests and indexes, OCI's and Docker's (version 2, schema 2), and which entry of an index is for which machine.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::media_type::{
    DOCKER_CONFIG, DOCKER_INDEX, DOCKER_MANIFEST, OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST,
};

/// Kinds of configuration that belong to an image rather than to some other artifact.
const CONFIGS: [&str; 2] = [OCI_CONFIG, DOCKER_CONFIG];
/// Kinds of layers: what stands before `+gzip`, `.gzip` or `+zstd`. How one is compressed is found by looking at it.
const LAYERS: [&str; 4] = [
    OCI_LAYER,
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];

/// Most layers an image may have. Docker makes at most 127.
pub(crate) const LAYERS_MAX: usize = 512;
/// Most entries of an index that are looked at.
const INDEX_ENTRIES_MAX: usize = 1024;

/// Why a manifest or an index cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON of the right form.
    #[error("manifest cannot be read")]
    Malformed(#[source] serde_json::Error),
    /// Too old, or something else altogether.
    #[error("`{kind}` is not a kind of manifest that can be used")]
    UnknownKind {
        /// The media type, or what stands for it.
        kind: String,
    },
    /// It contradicts itself or what it came as, so that others could read it differently.
    #[error("manifest is ambiguous: {reason}")]
    Ambiguous {
        /// What contradicts what.
        reason: &'static str,
    },
    /// An artifact that is not an image.
    #[error("it is not a container image: {what} is of kind `{kind}`")]
    NotAnImage {
        /// Its configuration or a layer.
        what: &'static str,
        /// The media type there.
        kind: String,
    },
    /// More layers or entries than allowed.
    #[error("manifest has {count} {what}, {max} is the limit")]
    TooMany {
        /// Layers or entries.
        what: &'static str,
        /// How many.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// Nothing in the index for the machine.
    #[error("no image for {wanted}; there are: {offered}")]
    NoPlatform {
        /// The machine.
        wanted: String,
        /// What there is.
        offered: String,
    },
}

/// What kind of machine an image is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// The operating system, such as `linux`.
    #[serde(default)]
    pub os: String,
    /// The architecture by Go's names, such as `amd64`.
    #[serde(default)]
    pub architecture: String,
    /// A finer kind of the architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// Linux on x86-64: what guests are.
    pub fn linux_amd64() -> Self {
        Self { os: "linux".into(), architecture: "amd64".into(), variant: None }
    }

    /// How well an image for `self` runs on `machine`: lower is better, nothing is not at all. An image that asks for more than the
    /// basic kind of an architecture is taken last, and only if nothing else is there, because it may need a newer CPU.
    fn distance_to(&self, machine: &Self) -> Option<usize> {
        if self.os != machine.os || self.architecture != machine.architecture {
            return None;
        }
        let basic =
            |variant: &Option<String>| variant.as_deref().is_none_or(|it| it.is_empty() || it == "v1");
        Some(match () {
            () if self.variant == machine.variant => 0,
            () if basic(&self.variant) => 1,
            () => 2,
        })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) if !variant.is_empty() => write!(out, "/{variant}"),
            _ => Ok(()),
        }
    }
}

/// Some content, by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What kind of content.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// How many bytes it has.
    pub size: u64,
    /// The machine it is for, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Notes about it.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "crate::config::null_is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// The descriptor of `bytes`.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self::new(media_type, Digest::of(bytes), bytes.len() as u64)
    }

    /// A descriptor without platform and notes.
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self { media_type: media_type.to_owned(), digest, size, platform: None, annotations: BTreeMap::new() }
    }
}

/// One image: its configuration and its layers, lowest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub(crate) schema_version: u32,
    pub(crate) media_type: String,
    /// The configuration.
    pub config: Descriptor,
    /// The layers, lowest first.
    pub layers: Vec<Descriptor>,
}

/// Several images for different machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// What there is.
    pub manifests: Vec<Descriptor>,
}

/// What a registry or a layout has under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// One image.
    Manifest(Manifest),
    /// A choice of images.
    Index(Index),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    schema_version: Option<u32>,
    media_type: Option<String>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
    fs_layers: Option<serde::de::IgnoredAny>,
}

impl Document {
    /// Reads a manifest or an index. `declared` is the kind it came as: a header's or a descriptor's.
    ///
    /// # Errors
    /// When it is neither, or when it could be taken for both.
    pub fn decode(bytes: &[u8], declared: Option<&str>) -> Result<Self, ManifestError> {
        // A list of the right length would also be read as a manifest, but by nobody else.
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            return Err(ManifestError::Ambiguous { reason: "it is a list" });
        }
        let raw: Raw = serde_json::from_slice(bytes).map_err(ManifestError::Malformed)?;
        let declared = declared.map(|kind| kind.split(';').next().unwrap_or(kind).trim());
        if raw.fs_layers.is_some() || raw.schema_version == Some(1) {
            return Err(ManifestError::UnknownKind { kind: "schema 1".into() });
        }
        let own = raw.media_type.as_deref();
        // Servers that do not care send manifests as plain JSON; a manifest's own word then decides.
        let known = |kind: &&str| [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX].contains(kind);
        if let (Some(own), Some(declared)) = (own, declared.filter(known))
            && own != declared
        {
            return Err(ManifestError::Ambiguous { reason: "it says it is of another kind than it came as" });
        }
        if raw.manifests.is_some() && (raw.layers.is_some() || raw.config.is_some()) {
            return Err(ManifestError::Ambiguous { reason: "it has both manifests and layers" });
        }
        let inferred = if raw.manifests.is_some() { OCI_INDEX } else { OCI_MANIFEST };
        match (own.or(declared.filter(known)).unwrap_or(inferred), raw.config, raw.layers, raw.manifests) {
            (kind @ (OCI_MANIFEST | DOCKER_MANIFEST), Some(config), Some(layers), None) => {
                let media_type = kind.to_owned();
                Ok(Self::Manifest(Manifest { schema_version: 2, media_type, config, layers }))
            }
            (OCI_INDEX | DOCKER_INDEX, None, None, Some(manifests)) => Ok(Self::Index(Index { manifests })),
            (OCI_MANIFEST | DOCKER_MANIFEST | OCI_INDEX | DOCKER_INDEX, ..) => {
                Err(ManifestError::Ambiguous { reason: "its content is not of the kind it says it is" })
            }
            (kind, ..) => Err(ManifestError::UnknownKind { kind: kind.chars().take(100).collect() }),
        }
    }
}

impl Manifest {
    /// Checks that it is a container image with a bearable number of layers.
    ///
    /// # Errors
    /// When it is some other artifact, has encrypted layers or too many.
    pub fn check(&self) -> Result<(), ManifestError> {
        let of =
            |what, kind: &str| ManifestError::NotAnImage { what, kind: kind.chars().take(100).collect() };
        if !CONFIGS.contains(&self.config.media_type.as_str()) {
            return Err(of("its configuration", &self.config.media_type));
        }
        if self.layers.len() > LAYERS_MAX {
            return Err(ManifestError::TooMany { what: "layers", count: self.layers.len(), max: LAYERS_MAX });
        }
        for layer in &self.layers {
            let kind = layer.media_type.as_str();
            let rest = LAYERS.iter().find_map(|base| kind.strip_prefix(base));
            if !matches!(rest, Some("" | "+gzip" | ".gzip" | "+zstd" | ".zstd")) {
                return Err(of("a layer", kind));
            }
        }
        Ok(())
    }
}

impl Index {
    /// The entry that fits `machine` best; the first of equals.
    ///
    /// # Errors
    /// When none does, or there are too many to look at.
    pub fn choose(&self, machine: &Platform) -> Result<&Descriptor, ManifestError> {
        let count = self.manifests.len();
        if count > INDEX_ENTRIES_MAX {
            return Err(ManifestError::TooMany { what: "entries", count, max: INDEX_ENTRIES_MAX });
        }
        let fits = |entry: &&Descriptor| entry.platform.as_ref().and_then(|it| it.distance_to(machine));
        let best = self.manifests.iter().filter(|entry| fits(entry).is_some()).min_by_key(fits);
        // An index of one image often does not say for which machine; its configuration will.
        let only = || self.manifests.first().filter(|entry| count == 1 && entry.platform.is_none());
        best.or_else(only).ok_or_else(|| {
            let offered: Vec<_> = self
                .manifests
                .iter()
                .flat_map(|entry| &entry.platform)
                .take(20)
                .map(Platform::to_string)
                .collect();
            ManifestError::NoPlatform { wanted: machine.to_string(), offered: offered.join(", ") }
        })
    }
}

#[cfg(test)]
mod tests;
