//! Sandboxes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A machine of one's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sandbox {
    /// Its id: lowercase letters and digits.
    pub id: String,
    /// What its owner calls it: names it wherever an id does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The template it was made from.
    pub template: String,
    /// Virtual CPUs.
    pub cpu: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Size of its root disk in GiB.
    #[serde(default)]
    pub disk_gb: u64,
    /// What it is doing.
    pub status: SandboxStatus,
    /// Its address, while it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_ip: Option<String>,
    /// Its hardware address, while it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// What the caller wrote on it, and for children of a fork where they come from. Values of keys that begin with `secret.` are hidden.
    pub metadata: BTreeMap<String, String>,
    /// The snapshot it was made from, when one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_snapshot: Option<String>,
    /// The sandbox it was forked from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
    /// The sandboxes it comes from, deleted ones included: the oldest first, the nearest last. Of a longer line only the nearest 50.
    #[serde(default)]
    pub ancestors: Vec<String>,
    /// How long its creation took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_ms: Option<u64>,
    /// How it came to be: `snapshot`, `fork`.
    pub boot_mode: String,
    /// Where the time of its creation went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<CreateTimings>,
    /// When it was made (RFC 3339).
    pub created_at: String,
    /// Sleeps when idle instead of being deleted.
    pub persistent: bool,
    /// Seconds of idleness after which it is deleted, or put to sleep if it is persistent.
    pub ttl_seconds: u64,
    /// Seconds until it has idled for `ttl_seconds`; absent when it sleeps or the limit does not apply to it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds_left: Option<u64>,
    /// What it reaches: `none` or `all`.
    pub network: NetworkMode,
    /// Volumes, in the order of their devices.
    pub volumes: Vec<AttachedVolume>,
    /// Names of the variables that every command gets. Values are never shown.
    pub env_names: Vec<String>,
    /// Why its machine ended, when it ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Bytes on disk that only this sandbox uses; present when one sandbox is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_bytes: Option<u64>,
    /// What the caller should know about what was asked for; in answers to create and change and where one sandbox is asked for, as long as it holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What a sandbox is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxStatus {
    /// Being made.
    Creating,
    /// Running, or being woken.
    Running,
    /// Its CPUs are stopped.
    Paused,
    /// Being deleted.
    Stopping,
    /// Gone.
    Deleted,
    /// Its machine ended by itself.
    Failed,
    /// Asleep: only files.
    Hibernated,
}

/// Where the time of a creation went, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreateTimings {
    /// Writing down what was asked for.
    pub record_ms: f64,
    /// Starting the machine's process; near nothing when one was waiting.
    pub prepare_ms: f64,
    /// Loading the saved devices.
    pub load_ms: f64,
    /// From letting the guest run to its confirmation.
    pub confirm_ms: f64,
    /// Whether a machine process had been started ahead of the request.
    pub prestarted: bool,
}

/// Whether a sandbox may send to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// It reaches nothing.
    None,
    /// It reaches whatever the operator lets guests reach.
    All,
}

/// A volume of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachedVolume {
    /// The volume's name.
    pub name: String,
    /// Whether the guest may not write to it.
    pub read_only: bool,
    /// Its device in the guest.
    pub device: String,
    /// Where it is mounted, if the server mounts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// A sandbox to make.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSandbox {
    /// A name of your own, which stands wherever an id does: lowercase letters, digits and `-`, at most 40, unique among your sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The template; implied by `from_snapshot`.
    #[serde(default)]
    pub template: Option<String>,
    /// Metadata, such as `{"task": "42"}`.
    #[serde(default)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Seconds of idleness after which it goes; 0 or absent: the server's default.
    #[serde(default)]
    pub ttl_seconds: Option<i64>,
    /// Sleeps when idle instead of being deleted.
    #[serde(default)]
    pub persistent: Option<bool>,
    /// A snapshot to start from.
    #[serde(default)]
    pub from_snapshot: Option<String>,
    /// Volumes to attach, as `/dev/vdb`, `/dev/vdc`, … in this order, and to mount where a path is given.
    #[serde(default)]
    pub volumes: Option<Vec<VolumeRequest>>,
    /// Variables of every command. Never shown again.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    /// What it reaches; the workspace's default when absent, or the operator's.
    #[serde(default)]
    pub network: Option<NetworkMode>,
    /// Size of its root disk in GiB, at least that of what it starts from; 0 or absent: the same.
    #[serde(default)]
    pub disk_gb: Option<i64>,
    /// Virtual CPUs; 0 or absent: those of the template. The first use of a size prepares the template for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<i64>,
    /// Memory in MiB, rounded up to a multiple of 64; 0 or absent: that of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<i64>,
}

/// A volume to attach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeRequest {
    /// The volume's name.
    pub name: String,
    /// Whether the guest may not write to it.
    #[serde(default)]
    pub read_only: Option<bool>,
    /// Where to mount it, such as `/mnt`; made if missing. Absent: it is not mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// A change of a sandbox. What is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchSandbox {
    /// A new name, or `null` to remove it. Its guest keeps the host name it was made with.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<Option<String>>,
    /// Keys to set, or to remove with `null`.
    #[serde(default)]
    pub metadata: Option<BTreeMap<String, Option<String>>>,
    /// Variables to set, or to remove with `null`. They apply to commands started from now on.
    #[serde(default)]
    pub env: Option<BTreeMap<String, Option<String>>>,
    /// What it reaches from now on.
    #[serde(default)]
    pub network: Option<NetworkMode>,
}

/// Tells a field that is `null` from one that is absent.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Which sandboxes. What is empty does not limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxFilter {
    /// Any of these.
    pub status: Vec<SandboxStatus>,
    /// Made from this template.
    pub template: Option<String>,
    /// Of this name.
    pub name: Option<String>,
    /// With all of these keys; of this value where there is one.
    pub metadata: Vec<(String, Option<String>)>,
    /// Forked from this sandbox, or made from a snapshot of it.
    pub parent: Option<String>,
    /// Descended from this sandbox, over however many generations.
    pub root: Option<String>,
}

impl SandboxFilter {
    /// Whether it limits nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// As a query: names and values, not encoded.
    #[must_use]
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let mut query: Vec<_> =
            self.status.iter().map(|status| ("status", status.word().to_owned())).collect();
        for (key, value) in &self.metadata {
            query.push((
                "metadata",
                value.as_ref().map_or_else(|| key.clone(), |value| format!("{key}={value}")),
            ));
        }
        let single = [
            ("template", &self.template),
            ("name", &self.name),
            ("parent", &self.parent),
            ("root", &self.root),
        ];
        query.extend(single.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))));
        query
    }
}

impl SandboxStatus {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Creating,
        Self::Running,
        Self::Paused,
        Self::Stopping,
        Self::Deleted,
        Self::Failed,
        Self::Hibernated,
    ];

    /// The word for it on the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Deleted => "deleted",
            Self::Failed => "failed",
            Self::Hibernated => "hibernated",
        }
    }

    /// The status that a word on the wire stands for.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }
}

/// What became of the sandboxes that were to be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedSandboxes {
    /// Ids of those that are gone.
    pub deleted: Vec<String>,
    /// Ids of those that could not be deleted, and why.
    pub failures: BTreeMap<String, String>,
}
