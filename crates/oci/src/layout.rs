//! Content by digest in a directory, which is a valid OCI image layout at any time.
//!
//! ```text
//! oci-layout, index.json     as the specification has them; names of images are annotations in the index
//! blobs/sha256/<hex>         written aside, synced, renamed: what is there is whole
//! .staging/                  what is being written, and blobs of which a part has come
//! .in-use                    locked shared by who brings content, exclusively by who sweeps
//! .index-lock                locked while the index is rewritten
//! ```
//!
//! Any number of processes may use one layout. Blocking code.

mod index;
mod staged;
mod sweep;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::digest::{Digest, Digester};
use crate::manifest::Descriptor;

pub use index::NAME_ANNOTATION;
pub(crate) use staged::Staged;

const MARKER: &str = "oci-layout";
const MARKER_TEXT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
const STAGING: &str = ".staging";
const IN_USE: &str = ".in-use";

/// Why content could not be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The host refused something.
    #[error("could not {doing} `{path}`")]
    Host {
        /// What.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The directory is not an image layout, or of a version nobody here knows.
    #[error("`{path}` is not an image layout of version 1.0.0")]
    NotALayout {
        /// Where.
        path: PathBuf,
    },
    /// The index cannot be read.
    #[error("index of images `{path}` cannot be read")]
    Index {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A blob that is not there.
    #[error("there is no content {digest}")]
    NoBlob {
        /// Which.
        digest: Digest,
    },
    /// Content that is not what its digest says.
    #[error("content is {found} with {found_bytes} bytes instead of {expected} with {expected_bytes}")]
    Different {
        /// What it should be.
        expected: Digest,
        /// How long it should be.
        expected_bytes: u64,
        /// What it is.
        found: Digest,
        /// How long it is.
        found_bytes: u64,
    },
    /// Larger than anybody expects.
    #[error("content {digest} has {bytes} bytes, {max} is the limit")]
    TooLarge {
        /// Which.
        digest: Digest,
        /// How long.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// Somebody brings content just now.
    #[error("content is being brought to `{path}`")]
    InUse {
        /// Where.
        path: PathBuf,
    },
}

/// For `map_err`: the host refused to do something at a place.
pub(crate) fn host(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LayoutError {
    let path = path.to_owned();
    move |source| LayoutError::Host { doing, path, source }
}

/// An image layout.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

/// While it lives, nothing is swept away.
#[derive(Debug)]
pub struct InUse {
    _lock: File,
}

impl Layout {
    /// Opens the layout at `root`, and makes one where there is none.
    ///
    /// # Errors
    /// When the directory is something else, or cannot be used.
    pub fn open(root: &Path) -> Result<Self, LayoutError> {
        let layout = Self { root: root.to_owned() };
        for folder in [layout.blobs(), layout.staging()] {
            fs::create_dir_all(&folder).map_err(host("make", &folder))?;
        }
        let marker = root.join(MARKER);
        if !marker.exists() {
            layout.replace(&marker, MARKER_TEXT.as_bytes())?;
        }
        layout.check_marker()?;
        layout.ensure_index()?;
        Ok(layout)
    }

    /// Somebody else's layout, to be read only.
    pub(crate) fn foreign(root: &Path) -> Result<Self, LayoutError> {
        let layout = Self { root: root.to_owned() };
        layout.check_marker()?;
        Ok(layout)
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Keeps everything in it until the answer is dropped. Held by whoever brings content that no name leads to yet, or reads content
    /// whose name may be taken away.
    ///
    /// # Errors
    /// When the lock cannot be had: for as long as somebody sweeps.
    pub fn in_use(&self) -> Result<InUse, LayoutError> {
        let lock = self.lock_file()?;
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(InUse { _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(LayoutError::InUse { path: self.root.clone() }),
            Err(errno) => Err(host("lock", &self.root.join(IN_USE))(errno.into())),
        }
    }

    /// Whether content is there, going by its length.
    pub fn has(&self, blob: &Descriptor) -> bool {
        fs::symlink_metadata(self.blob_path(&blob.digest))
            .is_ok_and(|found| found.is_file() && found.len() == blob.size)
    }

    /// Opens content for reading. Its bytes are as sound as the disk; who must know sums them.
    ///
    /// # Errors
    /// When it is not there or has another length.
    pub fn open_blob(&self, blob: &Descriptor) -> Result<File, LayoutError> {
        let path = self.blob_path(&blob.digest);
        let nofollow = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = match File::options().read(true).custom_flags(nofollow).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(LayoutError::NoBlob { digest: blob.digest });
            }
            opened => opened.map_err(host("open", &path))?,
        };
        let found = file.metadata().map_err(host("look at", &path))?;
        if !found.is_file() || found.len() != blob.size {
            return Err(LayoutError::Different {
                expected: blob.digest,
                expected_bytes: blob.size,
                found: Digest::of(b""),
                found_bytes: found.len(),
            });
        }
        Ok(file)
    }

    /// Reads small content and checks it.
    ///
    /// # Errors
    /// When it is not there, damaged, or larger than `bytes_max`.
    pub fn read_blob(&self, blob: &Descriptor, bytes_max: u64) -> Result<Vec<u8>, LayoutError> {
        let (digest, bytes) = (blob.digest, blob.size);
        if bytes > bytes_max {
            return Err(LayoutError::TooLarge { digest, bytes, max: bytes_max });
        }
        let mut content = Vec::new();
        let file = self.open_blob(blob)?;
        file.take(bytes + 1).read_to_end(&mut content).map_err(host("read", &self.blob_path(&digest)))?;
        let mut digester = Digester::default();
        digester.update(&content);
        check(blob, &digester)?;
        Ok(content)
    }

    /// Keeps some content.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, media_type: &str, content: &[u8]) -> Result<Descriptor, LayoutError> {
        let mut staged = self.stage()?;
        io::Write::write_all(&mut staged, content).map_err(host("write below", &self.root))?;
        staged.keep(media_type)
    }

    pub(crate) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    /// Where the part of a blob that has come is kept until the rest does.
    pub(crate) fn partial_path(&self, digest: &Digest) -> PathBuf {
        self.staging().join(format!("{}.partial", digest.hex()))
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs/sha256")
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.root.join(STAGING)
    }

    pub(crate) fn check_marker(&self) -> Result<(), LayoutError> {
        let not = || LayoutError::NotALayout { path: self.root.clone() };
        let text = fs::read(self.root.join(MARKER)).map_err(|_| not())?;
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(|_| not())?;
        if value["imageLayoutVersion"] == "1.0.0" { Ok(()) } else { Err(not()) }
    }

    fn lock_file(&self) -> Result<File, LayoutError> {
        let path = self.root.join(IN_USE);
        File::options().create(true).truncate(false).write(true).open(&path).map_err(host("open", &path))
    }
}

/// Compares content with what it should be.
pub(crate) fn check(expected: &Descriptor, found: &Digester) -> Result<(), LayoutError> {
    let digest = found.finish();
    if digest == expected.digest && found.bytes() == expected.size {
        return Ok(());
    }
    Err(LayoutError::Different {
        expected: expected.digest,
        expected_bytes: expected.size,
        found: digest,
        found_bytes: found.bytes(),
    })
}
