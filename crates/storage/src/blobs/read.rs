//! Bytes of blobs, whole or a range.

use std::ops::Range;
use std::time::Duration;

use futures::StreamExt;
use object_store::{GetOptions, GetRange};
use tokio::time::Instant;

use super::error::Failure;
use super::tries::{Deed, within};
use super::{BlobError, BlobKey, Blobs, Trouble};

/// Room that is made before a byte has come.
const CAPACITY_MAX: u64 = 8 << 20;

impl Blobs {
    /// A whole blob, if it has no more than `max` bytes.
    pub async fn read(&self, key: &BlobKey, max: u64) -> Result<Vec<u8>, BlobError> {
        let deed = Deed { action: "read", key: key.as_str() };
        let bytes = self.trying(deed, || self.read_once(key, Wanted::Whole { max })).await?;
        bytes.ok_or_else(|| BlobError::NotFound { key: key.clone() })
    }

    /// The bytes of a range, all of them.
    pub async fn read_range(&self, key: &BlobKey, range: Range<u64>) -> Result<Vec<u8>, BlobError> {
        self.read_checked(key, range, Some).await
    }

    /// What `check` makes of the bytes of a range. When it makes nothing of them they are wrong, which counts as a failed try like any other.
    /// It may take its time: it runs where that holds nobody up.
    pub async fn read_checked<T: Send + 'static>(
        &self,
        key: &BlobKey,
        range: Range<u64>,
        check: impl Fn(Vec<u8>) -> Option<T> + Clone + Send + 'static,
    ) -> Result<T, BlobError> {
        if range.is_empty() {
            return check(Vec::new()).ok_or_else(|| BlobError::WrongBytes { key: key.clone(), tries: 1 });
        }
        let deed = Deed { action: "read", key: key.as_str() };
        let attempt = || {
            let (range, check) = (range.clone(), check.clone());
            async move {
                let bytes = self.read_once(key, Wanted::Range(range)).await?;
                let checked = tokio::task::spawn_blocking(move || check(bytes)).await;
                checked.ok().flatten().ok_or(Failure::Again(Trouble::WrongBytes))
            }
        };
        let found = self.trying(deed, attempt).await;
        match found {
            Ok(found) => found.ok_or_else(|| BlobError::NotFound { key: key.clone() }),
            Err(BlobError::Failed { tries, source: Trouble::WrongBytes, .. }) => {
                Err(BlobError::WrongBytes { key: key.clone(), tries })
            }
            Err(error) => Err(error),
        }
    }

    async fn read_once(&self, key: &BlobKey, wanted: Wanted) -> Result<Vec<u8>, Failure> {
        let idle = self.patience.idle_timeout;
        let began = Instant::now();
        let range = match &wanted {
            Wanted::Whole { .. } => None,
            Wanted::Range(range) => Some(GetRange::Bounded(range.clone())),
        };
        let options = GetOptions { range, ..GetOptions::default() };
        let answer = within(idle, self.store().get_opts(&self.path(key), options)).await?;
        match &wanted {
            Wanted::Whole { max } if answer.meta.size > *max => {
                let actual = answer.meta.size;
                return Err(Failure::Final(BlobError::TooLong { key: key.clone(), actual, max: *max }));
            }
            Wanted::Range(range) if answer.meta.size < range.end => {
                let (actual, wanted) = (answer.meta.size, range.end);
                return Err(Failure::Final(BlobError::TooShort { key: key.clone(), actual, wanted }));
            }
            _ => {}
        }
        let expected = answer.range.end.saturating_sub(answer.range.start);
        if let Wanted::Range(range) = &wanted
            && answer.range != *range
        {
            return Err(Failure::Again(Trouble::Short {
                actual: expected,
                expected: range.end - range.start,
            }));
        }
        let deadline = began + self.patience.deadline(expected);
        let mut bytes = Vec::with_capacity(expected.min(CAPACITY_MAX) as usize);
        let mut stream = answer.into_stream();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Err(Failure::Again(Trouble::Slow(began.elapsed())));
            }
            let piece = within(idle.min(left), async { stream.next().await.transpose() }).await?;
            let Some(piece) = piece else { break };
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > expected {
                break;
            }
        }
        let actual = bytes.len() as u64;
        if actual == expected { Ok(bytes) } else { Err(Failure::Again(Trouble::Short { actual, expected })) }
    }
}

enum Wanted {
    Whole { max: u64 },
    Range(Range<u64>),
}
