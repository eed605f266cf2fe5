//! Names of the kinds of content that images are made of.

/// An OCI manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// An OCI index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// An OCI image configuration.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// An OCI layer, not compressed.
pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// An OCI layer, gzip.
pub const OCI_LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// An OCI layer, Zstandard.
pub const OCI_LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// Docker's manifest.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's index.
pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's image configuration.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
