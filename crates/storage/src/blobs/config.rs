//! What a store is opened with.

use std::fmt;
use std::time::Duration;

use super::BlobAddress;

/// Where blobs are, and how patient to be.
#[derive(Clone)]
pub struct BlobsConfig {
    /// Where the store is.
    pub address: BlobAddress,
    /// The `AWS_…` variables that say how to reach an S3 server, with the names and meanings they have for other programs: endpoint, region,
    /// keys or where to get them. An endpoint that says `http://` is asked without TLS.
    pub environment: Vec<(String, String)>,
    /// How long and how often a store is tried.
    pub patience: Patience,
}

/// How long and how often a store is tried before an error is final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patience {
    /// Tries, the first one included. 0 counts as 1.
    pub tries: u32,
    /// How long a try may go without anything happening: a connection, an answer, the next bytes of one.
    pub idle_timeout: Duration,
    /// The pause before the second try. Each further one is twice as long.
    pub pause: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// What a store has to manage on average. A try that moves fewer bytes than this in each second, after [`Patience::idle_timeout`],
    /// has failed: a trickle is no progress.
    pub bytes_per_second_min: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            tries: 4,
            idle_timeout: Duration::from_secs(10),
            pause: Duration::from_millis(250),
            pause_max: Duration::from_secs(4),
            bytes_per_second_min: 128 << 10,
        }
    }
}

impl Patience {
    /// How long a try that moves this many bytes may take.
    pub(super) fn deadline(&self, bytes: u64) -> Duration {
        self.idle_timeout
            + Duration::from_millis(bytes.saturating_mul(1000) / self.bytes_per_second_min.max(1))
    }

    /// The pause after a try, counted from 1.
    pub(super) fn pause_after(&self, attempt: u32) -> Duration {
        self.pause.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(self.pause_max)
    }
}

impl BlobsConfig {
    /// A store that needs nothing more: a directory, or one whose variables are set in [`BlobsConfig::environment`] later.
    pub fn new(address: BlobAddress) -> Self {
        BlobsConfig { address, environment: Vec::new(), patience: Patience::default() }
    }
}

/// Without the values of variables, some of which are secret.
impl fmt::Debug for BlobsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.environment.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("BlobsConfig")
            .field("address", &self.address)
            .field("environment", &names)
            .field("patience", &self.patience)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit() {
        let patience = Patience::default();
        let pauses: Vec<u128> = (1..8).map(|attempt| patience.pause_after(attempt).as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 4000, 4000]);
        assert_eq!(patience.pause_after(u32::MAX), patience.pause_max);
    }

    #[test]
    fn more_bytes_may_take_longer() {
        let patience = Patience::default();
        assert_eq!(patience.deadline(0), patience.idle_timeout);
        assert_eq!(patience.deadline(4 << 20), Duration::from_secs(10 + 32));
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = BlobsConfig::new(BlobAddress::Directory("/b".into()));
        config.environment.push(("AWS_SECRET_ACCESS_KEY".to_owned(), "hush".to_owned()));
        let shown = format!("{config:?}");
        assert!(shown.contains("AWS_SECRET_ACCESS_KEY") && !shown.contains("hush"));
    }
}
