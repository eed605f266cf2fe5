//! What is to be built, and what came of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dockerfile::ImageConfig;
use serde::{Deserialize, Serialize};

/// A template's disk to make.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// From what.
    pub source: Source,
    /// Whose it is: what `RUN --mount=type=cache` leaves is there for later builds of the same owner, and for nobody else.
    pub owner: String,
    /// Size of the disk. What starts from a template of the catalogue is at least as large as that.
    pub disk_mib: u32,
    /// A directory that is not there yet, below [`node::Node::builds_directory`]: complete or absent when the build is over.
    pub destination: PathBuf,
}

/// What a template is made from. Files and directories are the caller's and must not change during the build.
#[derive(Debug, Clone)]
pub enum Source {
    /// Instructions and the files they copy.
    Dockerfile {
        /// The text.
        text: String,
        /// The directory with the files; links in it are never followed out of it.
        context: PathBuf,
        /// Values for `ARG`s.
        args: BTreeMap<String, String>,
        /// The stage to build; the last when not said.
        target: Option<String>,
    },
    /// An image of a registry.
    Image {
        /// Its name as people write it.
        reference: String,
    },
    /// An image in a file: a layout directory, an archive of one, or what `docker save` writes.
    Archive {
        /// The file or directory.
        path: PathBuf,
    },
    /// A root file system as a tar archive, compressed or not.
    Tarball {
        /// The file.
        path: PathBuf,
    },
}

/// A disk that was built. Can be kept as text: [`BuiltDisk::disk`] stays where the request said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltDisk {
    /// The ext4 image, sparse, in the request's destination.
    pub disk: PathBuf,
    /// Digest of its content.
    pub digest: String,
    /// Bytes that its content takes, shared ones included.
    pub bytes: u64,
    /// How the image wants to be run.
    pub config: ImageConfig,
    /// Whether sandboxes start with the image's command running: the Dockerfile itself, not what it starts from, has an `ENTRYPOINT`
    /// or a `CMD`.
    pub starts: bool,
}

/// What was removed to stay within bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Layers that are gone.
    pub layers: usize,
    /// Bytes of layers and of image content that are free again. Blocks that layers shared with others are counted too.
    pub bytes: u64,
    /// Bytes of layers that are still kept.
    pub kept_bytes: u64,
}
