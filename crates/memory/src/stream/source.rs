//! Where chunks come from, as those who need them see it.

use std::error::Error;
use std::io;
use std::sync::Arc;

use super::{Chunk, PageMap};

/// The chunks of one file. Whoever implements it does the waiting, the retrying and the verifying; an error is final.
#[async_trait::async_trait]
pub trait ChunkSource: Send + Sync {
    /// Bytes of the file.
    fn length(&self) -> u64;

    /// Which pages of a chunk are stored; the others are zeros. None for a chunk that is not there.
    fn pages(&self, number: u32) -> PageMap;

    /// A chunk, within a bounded time. One of zeros is given without being fetched. Asking for the same chunk from several tasks at once is
    /// fine, and so is giving up: whoever else waits for it still gets it.
    async fn chunk(&self, number: u32) -> Result<Arc<Chunk>, FetchError>;
}

/// Why a chunk cannot be had. Retries are used up by then. Can be cloned, because all who waited for a chunk are told.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FetchError {
    /// The file has no such chunk.
    #[error("there is no chunk {number} in `{blob}`")]
    NoSuchChunk {
        /// The blob that was asked.
        blob: String,
        /// The number asked for.
        number: u32,
    },
    /// The blob is gone from the store, or too short. Not tried again.
    #[error("chunk {number} of `{blob}` is not in the store")]
    Missing {
        /// The blob that was asked.
        blob: String,
        /// The chunk that was wanted.
        number: u32,
        /// What the store said.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The store answered with errors, too little, or not at all.
    #[error("could not fetch chunk {number} of `{blob}` in {tries} tries")]
    Failed {
        /// The blob that was asked.
        blob: String,
        /// The chunk that was wanted.
        number: u32,
        /// How often it was tried.
        tries: u32,
        /// What the last try ended with.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// A file of this host could not be read.
    #[error("could not read chunk {number} of a file of this host")]
    Read {
        /// The chunk that was wanted.
        number: u32,
        /// Why.
        #[source]
        source: Arc<io::Error>,
    },
    /// The store answered, but never with the bytes that were packed.
    #[error("the store gave wrong bytes for chunk {number} of `{blob}` in each of {tries} tries")]
    WrongBytes {
        /// The blob that was asked.
        blob: String,
        /// The chunk that was wanted.
        number: u32,
        /// How often it was tried.
        tries: u32,
    },
}
