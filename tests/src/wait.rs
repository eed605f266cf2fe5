//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const POLL: Duration = Duration::from_millis(10);

/// Waits until `condition` holds; an error that names it when it does not within `patience`.
pub async fn until(what: &str, patience: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    until_async(what, patience, async || Ok(condition())).await
}

/// As [`until`], with a condition that itself waits.
pub async fn until_async(
    what: &str,
    patience: Duration,
    mut condition: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    while !condition().await? {
        if Instant::now() > deadline {
            bail!("{what}: not within {patience:?}");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
