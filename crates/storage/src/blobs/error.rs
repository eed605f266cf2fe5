//! What can go wrong with a store.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::BlobKey;

/// What is kept of what a store said: enough to know, not a page of HTML.
const SAID_MAX: usize = 400;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is not there and could not be made, or is none.
    #[error("could not use `{path}` for blobs")]
    Directory {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The settings of an S3 server contradict each other or are incomplete.
    #[error("the settings of the store are not usable: {0}")]
    Settings(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// Why something about a blob could not be done. Tries are used up by then where trying again could have helped.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// It is not in the store. Not tried again.
    #[error("there is no blob `{key}`")]
    NotFound {
        /// Its name.
        key: BlobKey,
    },
    /// It ends before the range that was asked for does. Not tried again.
    #[error("blob `{key}` has {actual} bytes where {wanted} were expected")]
    TooShort {
        /// Its name.
        key: BlobKey,
        /// Bytes it has.
        actual: u64,
        /// Bytes it should have at least.
        wanted: u64,
    },
    /// It has more bytes than the caller would take. Not tried again.
    #[error("blob `{key}` has {actual} bytes, which is more than {max}")]
    TooLong {
        /// Its name.
        key: BlobKey,
        /// Bytes it has.
        actual: u64,
        /// Bytes the caller would take.
        max: u64,
    },
    /// The store does not allow it. Not tried again.
    #[error("the store refused to {action} `{key}`")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// The name, or the prefix.
        key: String,
        /// What the store said.
        #[source]
        source: Trouble,
    },
    /// The store failed at each try.
    #[error("could not {action} `{key}` in {tries} tries")]
    Failed {
        /// What was tried.
        action: &'static str,
        /// The name, or the prefix.
        key: String,
        /// How often.
        tries: u32,
        /// How the last try ended.
        #[source]
        source: Trouble,
    },
    /// The store answered, and the caller found the bytes to be wrong, at each try.
    #[error("the store gave wrong bytes for `{key}` in each of {tries} tries")]
    WrongBytes {
        /// Its name.
        key: BlobKey,
        /// How often.
        tries: u32,
    },
    /// There are more names below a prefix than are listed at once.
    #[error("there are more than {max} blobs below `{prefix}`")]
    TooMany {
        /// The prefix.
        prefix: BlobKey,
        /// How many are listed.
        max: usize,
    },
    /// That an upload has begun could not be noted.
    #[error("could not note the upload of `{key}`")]
    Note {
        /// The blob's name.
        key: BlobKey,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file to upload could not be read, or changed meanwhile.
    #[error("could not read the file to keep as `{key}`")]
    File {
        /// The blob's name.
        key: BlobKey,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// How a single try ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Trouble {
    /// Nothing happened for too long, or too little all in all.
    #[error("nothing, or too little, came for {:.1} s", .0.as_secs_f64())]
    Slow(Duration),
    /// The answer ended before its time.
    #[error("the answer ended after {actual} of {expected} bytes")]
    Short {
        /// Bytes that came.
        actual: u64,
        /// Bytes that were promised.
        expected: u64,
    },
    /// The bytes were all there, and wrong.
    #[error("the bytes are not the expected ones")]
    WrongBytes,
    /// What the store, or the way to it, said.
    #[error("{0}")]
    Store(String),
}

/// A try that failed, and whether another could go better.
#[derive(Debug)]
pub(super) enum Failure {
    Again(Trouble),
    Never(Trouble),
    Absent,
    /// The caller's own error.
    Final(BlobError),
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error as E;
        let mut said = error.to_string();
        if let Some((end, _)) = said.char_indices().nth(SAID_MAX) {
            said.truncate(end);
            said.push('…');
        }
        match error {
            E::NotFound { .. } => Failure::Absent,
            E::PermissionDenied { .. }
            | E::Unauthenticated { .. }
            | E::InvalidPath { .. }
            | E::NotSupported { .. }
            | E::NotImplemented { .. } => Failure::Never(Trouble::Store(said)),
            _ => Failure::Again(Trouble::Store(said)),
        }
    }
}
