//! The chunks of one blob, by way of the cache.

use std::sync::Arc;

use memory::stream::{Chunk, ChunkSource, FetchError, Index, PageMap};

use super::ChunkCache;
use super::flight::Wanted;
use crate::blobs::{BlobKey, Blobs};

pub(super) struct CachedSource {
    pub(super) cache: Arc<ChunkCache>,
    pub(super) blobs: Arc<Blobs>,
    pub(super) key: BlobKey,
    pub(super) index: Index,
}

#[async_trait::async_trait]
impl ChunkSource for CachedSource {
    fn length(&self) -> u64 {
        self.index.length()
    }

    fn pages(&self, number: u32) -> PageMap {
        self.index.pages(number)
    }

    async fn chunk(&self, number: u32) -> Result<Arc<Chunk>, FetchError> {
        let (blobs, key) = (Arc::clone(&self.blobs), self.key.clone());
        let bytes = match (self.index.blob_range(number), self.index.digest(number)) {
            (Some(range), Some(digest)) => {
                self.cache.bring(Wanted { blobs, key, number, range, digest }).await?
            }
            // Zeros alone have no bytes.
            _ => Arc::default(),
        };
        let blob = || self.key.to_string();
        self.index
            .trusted(number, bytes)
            .map(Arc::new)
            .map_err(|_| FetchError::NoSuchChunk { blob: blob(), number })
    }
}
