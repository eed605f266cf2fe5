//! The server itself: version, health, measurements.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which program answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// Always `pandastack`.
    pub service: String,
    /// Its version, which the command line and the SDKs of the same release share.
    pub version: String,
    /// The same, for clients that know this name.
    pub semver: String,
    /// The commit it was built from, with `-dirty` when files had changed since; `unknown` outside of a repository.
    pub commit: String,
    /// When it was built, as RFC 3339: `SOURCE_DATE_EPOCH`, otherwise the commit's time, so that builds can be repeated.
    pub built_at: String,
    /// The same, for clients that know this name.
    pub build_time: String,
    /// What it runs on.
    pub os: String,
    /// The same.
    pub arch: String,
}

/// Whether the server can work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok` or `unavailable`.
    pub status: String,
    /// What was looked at, and what was found.
    pub checks: BTreeMap<String, String>,
}

/// What a sandbox's machine costs its host, and what its guest sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SandboxMetrics {
    /// The machine's process on the host.
    pub pid: u32,
    /// Seconds since that started.
    pub uptime_seconds: f64,
    /// CPU it has used since, as a share of one core.
    pub host_cpu_percent: f64,
    /// Memory it holds.
    pub host_rss_bytes: u64,
    /// Addresses it has reserved.
    pub host_vsz_bytes: u64,
    /// Its threads.
    pub threads: u32,
    /// What the guest sees; absent when it sleeps or does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestMetrics>,
    /// What its devices have carried; absent when its machine does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceMetrics>,
}

/// What a machine's devices have carried since it was started or woken; a server that was restarted begins anew. What the host's engine
/// does not count is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceMetrics {
    /// What was read from the root disk and volumes.
    pub disk_read_bytes: u64,
    /// What was written to them.
    pub disk_written_bytes: u64,
    /// Requests that read.
    pub disk_reads: u64,
    /// Requests that wrote.
    pub disk_writes: u64,
    /// How often a disk waited because of the host's limit on its rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_throttled: Option<u64>,
    /// What the network card received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_received_bytes: Option<u64>,
    /// What it sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_sent_bytes: Option<u64>,
    /// How often it waited because of the host's limit on its rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_throttled: Option<u64>,
    /// Memory that the guest freed and the host was given back. What is given back twice counts twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_given_back_bytes: Option<u64>,
}

/// What a guest sees of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GuestMetrics {
    /// Virtual CPUs.
    pub cpus: u32,
    /// CPU time used since boot, in microseconds.
    pub cpu_busy_us: u64,
    /// CPU time there was since boot, in microseconds.
    pub cpu_total_us: u64,
    /// Memory.
    pub memory_total_bytes: u64,
    /// Memory that programs could still get.
    pub memory_available_bytes: u64,
    /// The root file system.
    pub disk_total_bytes: u64,
    /// What is used of it.
    pub disk_used_bytes: u64,
    /// Processes and threads.
    pub tasks: u32,
}

/// Times of recent creations, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BootStats {
    /// How many are looked at.
    pub total_samples: usize,
    /// Seconds between the oldest and now.
    pub window_seconds: u64,
    /// All of them.
    pub overall: Percentiles,
    /// By how they came to be.
    pub by_mode: BTreeMap<String, Percentiles>,
    /// By template.
    pub by_template: BTreeMap<String, Percentiles>,
    /// The newest ones.
    pub recent: Vec<BootSample>,
}

/// Percentiles of times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Percentiles {
    /// How many.
    pub count: usize,
    /// Half took at most this long.
    pub p50: f64,
    /// Nine of ten took at most this long.
    pub p90: f64,
    /// 99 of 100 took at most this long.
    pub p99: f64,
}

/// The time of one creation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BootSample {
    /// The sandbox.
    pub sandbox_id: String,
    /// Its template.
    pub template: String,
    /// How it came to be.
    pub boot_mode: String,
    /// How long it took.
    pub boot_ms: f64,
    /// When (RFC 3339).
    pub ts: String,
}
