//! Where chunks come from, as those who need them see it.

use std::error::Error;
use std::sync::Arc;

use super::{Chunk, Index};

/// The chunks of one packed file. Whoever implements it does the waiting, the retrying and the verifying; an error is final.
#[async_trait::async_trait]
pub trait ChunkSource: Send + Sync {
    /// What is where in the file.
    fn index(&self) -> &Index;

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
