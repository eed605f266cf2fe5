//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// By how much this host is slower than suites expect: a host in a box, whose processor is emulated, sets it.
const SLOWNESS: &str = "PANDASTACK_TEST_SLOWNESS";

const POLL: Duration = Duration::from_millis(10);

/// A time that suits this host.
pub fn scaled(patience: Duration) -> Duration {
    let slowness = std::env::var(SLOWNESS).ok().and_then(|text| text.parse().ok());
    patience * slowness.unwrap_or(1)
}

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
    let patience = scaled(patience);
    let deadline = Instant::now() + patience;
    while !condition().await? {
        if Instant::now() > deadline {
            bail!("{what}: not within {patience:?}");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
