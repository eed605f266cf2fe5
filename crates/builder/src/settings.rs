//! Settings of a builder.

use std::time::Duration;

use network::Policy;
use oci::{Credentials, Naming, PullSettings};

/// Settings of a builder. The default asks no registry by a short name, reaches no network from build machines, and is otherwise usual.
#[derive(Debug, Clone)]
pub struct BuilderSettings {
    /// What names of images mean and which registries may be asked.
    pub naming: Naming,
    /// Who asks.
    pub credentials: Credentials,
    /// How to ask, how long and for how much.
    pub pull: PullSettings,
    /// What `RUN` steps may reach.
    pub network: Policy,
    /// How long one `RUN` step may take; it is ended then and the build fails.
    pub step_timeout: Duration,
    /// Bytes of layers that are kept for later builds. Beyond it those unused for longest go.
    pub layers_bytes_max: u64,
    /// Bytes of caches that steps keep for later builds of the same owner. Beyond it those unused for longest go.
    pub caches_bytes_max: u64,
    /// Processors of build machines.
    pub vcpus: u8,
    /// Memory of build machines.
    pub memory_mib: u32,
}

impl Default for BuilderSettings {
    fn default() -> Self {
        Self {
            naming: Naming::default(),
            credentials: Credentials::none(),
            pull: PullSettings::default(),
            network: Policy::Closed,
            step_timeout: Duration::from_secs(30 * 60),
            layers_bytes_max: 20 << 30,
            caches_bytes_max: 10 << 30,
            vcpus: 2,
            memory_mib: 2048,
        }
    }
}
