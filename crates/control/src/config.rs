//! Settings of the services.

use std::time::Duration;

use builder::BuilderSettings;
use oci::{Allowed, Naming};
use store::{NetworkMode, Quota};

use crate::templates::SizeBounds;

/// Settings of the services. `default()` gives the usual ones.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// Idle seconds of a sandbox whose caller did not say.
    pub ttl_seconds_default: u64,
    /// Most idle seconds a caller may ask for.
    pub ttl_seconds_max: u64,
    /// Largest root disk a caller may ask for, in GiB.
    pub disk_gib_max: u64,
    /// Most virtual CPUs a caller may ask for.
    pub cpus_max: u32,
    /// Most memory a caller may ask for, in MiB.
    pub memory_mib_max: u32,
    /// What a sandbox reaches when its caller did not say.
    pub network_default: NetworkMode,
    /// What a tenant may have, unless its own limits say otherwise.
    pub quota: Quota,
    /// Requests a tenant may make at once before it has to slow down.
    pub rate_burst: f64,
    /// Requests a tenant may make per second in the long run.
    pub rate_per_second: f64,
    /// How long a create waits for a template that is being prepared. Clients give up after 30 s.
    pub template_patience: Duration,
    /// Where the API is reached from outside, such as `https://sandboxes.example.org`; for links.
    pub public_url: Option<String>,
    /// How often idle sandboxes are looked for.
    pub reap_every: Duration,
    /// Templates of tenants' own.
    pub builds: BuildConfig,
}

/// Settings of builds of templates. `default()` gives the usual ones, with which images come from no registry.
#[derive(Debug, Clone)]
pub struct BuildConfig {
    /// Builds that run at once; others wait.
    pub at_once: usize,
    /// Bytes of one request for a build.
    pub upload_bytes_max: u64,
    /// Bytes of one context, as sent and as unpacked.
    pub context_bytes_max: u64,
    /// Largest disk of a template, in MiB.
    pub disk_mib_max: u32,
    /// How disks are built.
    pub builder: BuilderSettings,
}

impl Default for BuildConfig {
    fn default() -> Self {
        // The host asks registries on behalf of tenants: which it may ask is the operator's to say.
        let naming = Naming { allowed: Allowed::Only(Vec::new()), ..Naming::default() };
        Self {
            at_once: 1,
            upload_bytes_max: 16 << 30,
            context_bytes_max: 50 << 20,
            disk_mib_max: 16_384,
            builder: BuilderSettings { naming, ..BuilderSettings::default() },
        }
    }
}

impl ControlConfig {
    /// The largest sizes that callers may ask for.
    pub(crate) fn size_bounds(&self) -> SizeBounds {
        SizeBounds { vcpus_max: self.cpus_max, memory_mib_max: self.memory_mib_max }
    }
}

/// Memory of this host in MiB; a little where it does not tell.
fn host_memory_mib() -> u32 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    u32::try_from(kib.unwrap_or(2 << 20) >> 10).unwrap_or(u32::MAX)
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            ttl_seconds_default: 3600,
            ttl_seconds_max: 30 * 24 * 3600,
            disk_gib_max: 64,
            cpus_max: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            memory_mib_max: host_memory_mib() / 2,
            network_default: NetworkMode::None,
            quota: Quota {
                sandboxes: 1000,
                cpus: 4000,
                memory_mib: 4 << 20,
                volumes: 100,
                volume_mib: 1 << 20,
                snapshots: 1000,
                templates: Quota::templates_default(),
                builds: Quota::builds_default(),
            },
            rate_burst: 400.0,
            rate_per_second: 200.0,
            template_patience: Duration::from_secs(20),
            public_url: None,
            reap_every: Duration::from_secs(1),
            builds: BuildConfig::default(),
        }
    }
}
