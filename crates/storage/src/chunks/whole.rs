//! A packed file brought back as a whole.

use std::fs::File;
use std::io;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use memory::stream::{CHUNK_BYTES, ChunkSource, FetchError, unpack};

/// Why a file could not be brought back.
#[derive(Debug, thiserror::Error)]
pub enum FetchFileError {
    /// A chunk of it cannot be had.
    #[error("a part of the file cannot be had")]
    Fetch(#[from] FetchError),
    /// It could not be written.
    #[error("could not write the fetched file")]
    Write(#[source] io::Error),
}

/// Makes an empty file the one that was packed, with up to `at_once` chunks under way at a time. Zeros stay holes. After an error part of it may
/// have been written. It is not synced.
pub async fn fetch_file(source: &dyn ChunkSource, file: File, at_once: usize) -> Result<(), FetchFileError> {
    file.set_len(source.length()).map_err(FetchFileError::Write)?;
    let file = Arc::new(file);
    let count = source.length().div_ceil(CHUNK_BYTES) as u32;
    let stored = (0..count).filter(|number| source.pages(*number).count() > 0);
    futures::stream::iter(stored)
        .map(|number| {
            let file = Arc::clone(&file);
            async move {
                let chunk = source.chunk(number).await?;
                let written = tokio::task::spawn_blocking(move || unpack(&chunk, number, &file)).await;
                written.map_err(io::Error::other).flatten().map_err(FetchFileError::Write)
            }
        })
        .buffer_unordered(at_once.max(1))
        .try_collect()
        .await
}
