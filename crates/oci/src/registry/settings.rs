//! How to pull: from where, for which machine, how long and how much.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::manifest::Platform;
use crate::reference::{RegistryHost, RegistryPattern};

/// Which registries are spoken to without TLS.
#[derive(Debug, Clone, Default)]
pub enum PlainHttp {
    /// None.
    Never,
    /// Those on this machine.
    #[default]
    Loopback,
    /// Those on this machine, and these.
    Also(Vec<RegistryPattern>),
}

impl PlainHttp {
    pub(super) fn allows(&self, host: &RegistryHost) -> bool {
        match self {
            Self::Never => false,
            Self::Loopback => host.is_loopback(),
            Self::Also(patterns) => {
                host.is_loopback() || patterns.iter().any(|pattern| pattern.matches(host))
            }
        }
    }
}

/// How to pull.
#[derive(Debug, Clone)]
pub struct PullSettings {
    /// The machine that images are for.
    pub platform: Platform,
    /// Where registries are that live elsewhere than their name says.
    pub endpoints: BTreeMap<RegistryHost, RegistryHost>,
    /// Which registries are spoken to without TLS.
    pub plain_http: PlainHttp,
    /// Certificates to trust besides the host's, DER.
    pub certificates: Vec<Vec<u8>>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a server may take to begin an answer, and to go on with it.
    pub idle_timeout: Duration,
    /// How long the whole of a pull may take.
    pub pull_timeout: Duration,
    /// How often a request is tried that fails for a reason that may pass. A blob that advances by a MiB starts counting anew.
    pub attempts_max: u32,
    /// The pause after the first failure; it doubles each time, up to ten seconds.
    pub retry_delay: Duration,
    /// Largest image, all layers together as they are sent. More is refused before any is fetched.
    pub image_bytes_max: u64,
    /// Blobs fetched at once.
    pub blobs_at_once: usize,
}

impl Default for PullSettings {
    fn default() -> Self {
        Self {
            platform: Platform::linux_amd64(),
            endpoints: BTreeMap::new(),
            plain_http: PlainHttp::default(),
            certificates: Vec::new(),
            connect_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(30),
            pull_timeout: Duration::from_secs(3600),
            attempts_max: 5,
            retry_delay: Duration::from_millis(500),
            image_bytes_max: 32 << 30,
            blobs_at_once: 3,
        }
    }
}
