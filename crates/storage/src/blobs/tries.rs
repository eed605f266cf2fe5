//! Tries, pauses between them, and deadlines.

use std::future::Future;
use std::time::Duration;

use super::error::Failure;
use super::{BlobError, Blobs, Trouble};

/// What is done to what, for errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deed<'a> {
    pub(super) action: &'static str,
    pub(super) key: &'a str,
}

impl Blobs {
    /// Does something until it works, cannot work, or was tried often enough. Each try waits its turn among all requests. `Ok(None)` when the
    /// store says that there is no such thing.
    pub(super) async fn trying<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        deed: Deed<'_>,
        attempt: impl Fn() -> F,
    ) -> Result<Option<T>, BlobError> {
        let Deed { action, key } = deed;
        let tries = self.patience.tries.max(1);
        let mut number = 1;
        loop {
            let permit = self.requests.acquire().await.expect("the semaphore is never closed");
            let outcome = attempt().await;
            drop(permit);
            let trouble = match outcome {
                Ok(value) => return Ok(Some(value)),
                Err(Failure::Absent) => return Ok(None),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Never(source)) => {
                    return Err(BlobError::Refused { action, key: key.to_owned(), source });
                }
                Err(Failure::Again(trouble)) => trouble,
            };
            if number == tries {
                return Err(BlobError::Failed { action, key: key.to_owned(), tries, source: trouble });
            }
            tracing::debug!(key, attempt = number, "could not {action} a blob, will try again: {trouble}");
            tokio::time::sleep(self.patience.pause_after(number)).await;
            number += 1;
        }
    }
}

/// Waits for something until a deadline of its own.
pub(super) async fn within<T, E: Into<Failure>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome.map_err(Into::into),
        Err(_) => Err(Failure::Again(Trouble::Slow(limit))),
    }
}
