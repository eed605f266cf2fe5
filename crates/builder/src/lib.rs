//! Custom templates: from a Dockerfile, an image or a tarball to a disk that a node can bake.
//!
//! ```text
//! Dockerfile + context ─► plan ─► layers, each a disk: RUN and COPY in a machine ─┐
//! image reference, layout, archive ─► oci ─► unpacked tree ─► ext4 ───────────────┼─► BuiltDisk
//! root file system tarball ────────► oci ─► unpacked tree ─► ext4 ────────────────┘
//! ```
//!
//! Nothing of a build runs on the host and no disk that a guest wrote is mounted there. Everything is kept below one directory of the
//! node's pool, so that layers are clones that share their blocks.

mod builder;
mod caches;
mod config;
mod context;
mod error;
mod guest_tree;
mod layers;
mod log;
mod recipe;
mod request;
mod settings;
mod staging;
mod stock;
mod template;

pub use builder::Builder;
pub use dockerfile::ImageConfig;
pub use error::{BuildError, reference_hint};
pub use log::BuildLog;
pub use request::{BuildRequest, BuiltDisk, Collected, Source};
pub use settings::BuilderSettings;
