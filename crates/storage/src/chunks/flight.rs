//! Bringing a chunk: once for all who wait for it.
//!
//! A flight belongs to those who wait: it goes on while one of them does, and is dropped with the last. Nothing runs in the background.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use memory::stream::{Digest, FetchError};

use super::ChunkCache;
use crate::blobs::{BlobError, BlobKey, Blobs};

pub(super) type Brought = Result<Arc<Vec<u8>>, FetchError>;
type Flight = BoxFuture<'static, Brought>;

/// A chunk that is wanted, and where it is.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) blobs: Arc<Blobs>,
    pub(super) key: BlobKey,
    pub(super) number: u32,
    pub(super) range: Range<u64>,
    pub(super) digest: Digest,
}

/// By blob too, so that nobody waits for, or is told of, somebody else's store.
type Name = (Digest, BlobKey);

/// Chunks that are being brought.
#[derive(Default)]
pub(super) struct Flights {
    under_way: HashMap<Name, (u64, WeakShared<Flight>)>,
    last: u64,
}

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.under_way.keys()).finish()
    }
}

/// Takes a flight off the list when it ends or is dropped.
struct Listed {
    cache: Arc<ChunkCache>,
    name: Name,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut state = self.cache.state();
        let under_way = &mut state.flights.under_way;
        if under_way.get(&self.name).is_some_and(|(number, _)| *number == self.number) {
            under_way.remove(&self.name);
        }
    }
}

impl ChunkCache {
    /// The bytes of a chunk, known to be right.
    pub(super) async fn bring(self: &Arc<Self>, wanted: Wanted) -> Brought {
        let flight = {
            let mut state = self.state();
            if let Some(bytes) = state.recall(wanted.digest, wanted.range.end - wanted.range.start) {
                return Ok(bytes);
            }
            let name = (wanted.digest, wanted.key.clone());
            let joined = state.flights.under_way.get(&name).and_then(|(_, flight)| flight.upgrade());
            match joined {
                Some(flight) => flight,
                None => {
                    state.flights.last += 1;
                    let number = state.flights.last;
                    let listed = Listed { cache: Arc::clone(self), name: name.clone(), number };
                    let flight: Shared<Flight> = fly(listed, wanted).boxed().shared();
                    if let Some(weak) = flight.downgrade() {
                        state.flights.under_way.insert(name, (number, weak));
                    }
                    flight
                }
            }
        };
        flight.await
    }
}

async fn fly(listed: Listed, wanted: Wanted) -> Brought {
    let cache = Arc::clone(&listed.cache);
    let Wanted { blobs, key, number, range, digest } = wanted;
    let failed = |error| fetch_error(error, &key, number);
    let on_disk = {
        let (cache, length) = (Arc::clone(&cache), range.end - range.start);
        blocking(move || cache.read(digest, length)).await.flatten()
    };
    if let Some(bytes) = on_disk {
        cache.state().remember(digest, &bytes);
        return Ok(bytes);
    }
    let check = move |bytes: Vec<u8>| (Digest::of(&bytes) == digest).then_some(bytes);
    let bytes = Arc::new(blobs.read_checked(&key, range, check).await.map_err(failed)?);
    {
        let mut state = cache.state();
        state.counts.fetched += 1;
        state.remember(digest, &bytes);
    }
    let kept = Arc::clone(&bytes);
    blocking(move || cache.keep(digest, &kept)).await;
    Ok(bytes)
}

/// Runs what hashes or touches the disk; `None` when the runtime ends meanwhile.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

fn fetch_error(error: BlobError, key: &BlobKey, number: u32) -> FetchError {
    let blob = key.to_string();
    match error {
        BlobError::WrongBytes { tries, .. } => FetchError::WrongBytes { blob, number, tries },
        BlobError::NotFound { .. } | BlobError::TooShort { .. } => {
            FetchError::Missing { blob, number, source: Arc::new(error) }
        }
        BlobError::Failed { tries, source, .. } => {
            FetchError::Failed { blob, number, tries, source: Arc::new(source) }
        }
        error => FetchError::Failed { blob, number, tries: 1, source: Arc::new(error) },
    }
}
