//! Saved things outside of this host: an object store, in a directory or behind the S3 protocol.
//!
//! A blob has a name and bytes, is there as a whole or not at all, and is never changed. The store may be slow, wrong or away: every
//! request has a deadline and is tried a bounded number of times ([`Patience`]), and what cannot be had ends in a [`BlobError`] that says
//! what was tried. What the bytes mean is the caller's business, as is noticing wrong ones ([`Blobs::read_checked`]).

mod address;
mod config;
mod error;
mod http;
mod key;
mod read;
mod remove;
mod tries;
mod upload;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, RetryConfig};
use tokio::sync::Semaphore;

pub use address::{AddressError, BlobAddress};
pub use config::{BlobsConfig, Patience};
pub use error::{BlobError, OpenError, Trouble};
pub use key::{BlobKey, KeyError};
pub use remove::{LISTED_MAX, Listed};
pub use upload::PART_BYTES;

/// Requests under way at a time, of all machines together. More wait their turn.
const REQUESTS_MAX: usize = 64;

/// A store of blobs.
#[derive(Debug)]
pub struct Blobs {
    store: Store,
    /// Where ours lie in the store.
    prefix: Path,
    patience: Patience,
    requests: Semaphore,
}

#[derive(Debug)]
enum Store {
    Directory { store: LocalFileSystem, root: PathBuf },
    S3(AmazonS3),
}

impl Blobs {
    /// Gets ready to use a store. A directory is made where it is missing, for its owner alone; a store elsewhere is not asked yet.
    pub fn open(config: &BlobsConfig) -> Result<Blobs, OpenError> {
        let (store, prefix) = match &config.address {
            BlobAddress::Directory(root) => {
                let directory = |source: std::io::Error| OpenError::Directory { path: root.clone(), source };
                DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(directory)?;
                let store = LocalFileSystem::new_with_prefix(root)
                    .map_err(|error| directory(std::io::Error::other(error.to_string())))?;
                let store = store.with_fsync(true).with_automatic_cleanup(true);
                (Store::Directory { store, root: root.clone() }, Path::default())
            }
            BlobAddress::S3 { bucket, prefix } => {
                let prefix = Path::parse(prefix).map_err(|error| OpenError::Settings(error.to_string()))?;
                (Store::S3(s3(bucket, config)?), prefix)
            }
        };
        let requests = Semaphore::new(REQUESTS_MAX);
        Ok(Blobs { store, prefix, patience: config.patience.clone(), requests })
    }

    fn store(&self) -> &dyn ObjectStore {
        match &self.store {
            Store::Directory { store, .. } => store,
            Store::S3(store) => store,
        }
    }

    /// Where a blob lies in the store.
    fn path(&self, key: &BlobKey) -> Path {
        self.prefix.parts().chain(Path::from(key.as_str()).parts()).collect()
    }

    /// How long and how often this store is tried.
    pub fn patience(&self) -> &Patience {
        &self.patience
    }
}

fn s3(bucket: &str, config: &BlobsConfig) -> Result<AmazonS3, OpenError> {
    let mut builder = AmazonS3Builder::new();
    for (name, value) in &config.environment {
        // As other programs do: what is not known is not for us.
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    builder
        .with_bucket_name(bucket)
        .with_http_connector(http::Connector::new(config.patience.idle_timeout)?)
        // Tries are counted in one place, which is ours.
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .build()
        .map_err(|error| OpenError::Settings(error.to_string()))
}

#[cfg(test)]
mod tests;
