//! What is kept, row by row. Times are milliseconds of Unix time.

mod templates;

use std::collections::BTreeMap;

use domain::{SandboxId, SnapshotId, TenantId, VolumeId};
use serde::{Deserialize, Serialize};

pub use templates::{BuildChange, BuildRow, BuildSource, BuildStatus, Published, TemplateRow};

/// A tenant: whoever owns things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRow {
    /// Its id.
    pub id: TenantId,
    /// What people call it.
    pub name: String,
    /// What it may have; the server's own limits where absent.
    pub quota: Option<Quota>,
    /// What its sandboxes reach when their caller does not say; the server's own default where absent.
    pub network_default: Option<NetworkMode>,
    /// When it was made.
    pub created_ms: i64,
}

/// What a tenant may have at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Sandboxes, sleeping ones included.
    pub sandboxes: u64,
    /// Virtual CPUs of all sandboxes together.
    pub cpus: u64,
    /// Memory of all sandboxes together.
    pub memory_mib: u64,
    /// Volumes.
    pub volumes: u64,
    /// Sizes of all volumes together.
    pub volume_mib: u64,
    /// Snapshots kept.
    pub snapshots: u64,
    /// Templates of its own, those being built included.
    #[serde(default = "Quota::templates_default")]
    pub templates: u64,
    /// Builds that have not ended.
    #[serde(default = "Quota::builds_default")]
    pub builds: u64,
}

impl Quota {
    /// Templates of a tenant whose limits say nothing about them, because they were written down before there were any.
    pub const fn templates_default() -> u64 {
        100
    }

    /// Builds of such a tenant.
    pub const fn builds_default() -> u64 {
        20
    }
}

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Looking.
    Read,
    /// Using and changing; includes looking.
    Write,
    /// Tokens and the tenant itself; includes the others.
    Admin,
}

/// An API key. The key itself is never kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// SHA-256 of the key.
    pub hash: [u8; 32],
    /// Its first characters, by which people name it.
    pub prefix: String,
    /// Whose it is.
    pub tenant: TenantId,
    /// What people call it.
    pub label: String,
    /// What it allows.
    pub scope: Scope,
    /// When it was made.
    pub created_ms: i64,
    /// When it stops working.
    pub expires_ms: Option<i64>,
    /// When it was revoked.
    pub revoked_ms: Option<i64>,
}

/// How firmly a thing exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProvisionState {
    /// Being made; nobody was told of it. Removed when found after a crash.
    Creating,
    /// Somebody was told that it exists.
    Live,
    /// Being removed. The removal is finished when found after a crash.
    Deleting,
}

/// Whether a sandbox may send to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// It reaches nothing.
    None,
    /// It reaches whatever the operator's uplink does.
    All,
}

/// A volume as attached to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAttachment {
    /// The volume.
    pub id: VolumeId,
    /// Its name when it was attached.
    pub name: String,
    /// Whether the guest may not write to it.
    pub read_only: bool,
    /// Where the guest mounts it, if it shall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// A sandbox that somebody asked for.
#[derive(Clone, PartialEq)]
pub struct SandboxRow {
    /// Its id, the same as on its node.
    pub id: SandboxId,
    /// Whose it is.
    pub tenant: TenantId,
    /// How firmly it exists.
    pub standing: ProvisionState,
    /// The name of the template it was asked for with.
    pub template: String,
    /// The snapshot the caller named.
    pub from_snapshot: Option<SnapshotId>,
    /// What its owner calls it; unique among the tenant's.
    pub name: Option<String>,
    /// The sandbox it was forked from.
    pub parent: Option<SandboxId>,
    /// The sandboxes it comes from, the oldest first. Some may be gone.
    pub ancestors: Vec<SandboxId>,
    /// The fork tree it belongs to.
    pub tree: Option<String>,
    /// Its place among the children of that fork.
    pub fork_index: Option<u32>,
    /// What the caller wrote on it.
    pub metadata: BTreeMap<String, String>,
    /// Environment of every command. Secret: never listed or logged.
    pub env: BTreeMap<String, String>,
    /// Ports the caller named, with labels.
    pub ports: BTreeMap<u16, String>,
    /// Seconds of idleness after which it goes.
    pub ttl_seconds: u64,
    /// Sleeps rather than goes.
    pub persistent: bool,
    /// What it reaches.
    pub network: NetworkMode,
    /// Volumes, in the order of their devices.
    pub volumes: Vec<VolumeAttachment>,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory_mib: u32,
    /// When it was asked for.
    pub created_ms: i64,
    /// When it was last used, as far as written down.
    pub used_ms: i64,
    /// How long its creation took.
    pub boot_ms: Option<f64>,
    /// How it came to be, in a word.
    pub boot_mode: String,
    /// Where the time went, as JSON.
    pub timings: Option<String>,
}

/// A change of a sandbox. What is absent stays.
#[derive(Clone, Default, PartialEq)]
pub struct SandboxChange {
    /// New standing.
    pub standing: Option<ProvisionState>,
    /// New name, or none.
    pub name: Option<Option<String>>,
    /// New metadata.
    pub metadata: Option<BTreeMap<String, String>>,
    /// New environment.
    pub env: Option<BTreeMap<String, String>>,
    /// New port labels.
    pub ports: Option<BTreeMap<u16, String>>,
    /// New idle limit.
    pub ttl_seconds: Option<u64>,
    /// New persistence.
    pub persistent: Option<bool>,
    /// New network mode.
    pub network: Option<NetworkMode>,
    /// The tree it now belongs to.
    pub tree: Option<String>,
    /// How long its creation took.
    pub boot_ms: Option<f64>,
    /// Where the time went, as JSON.
    pub timings: Option<String>,
}

/// A snapshot that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRow {
    /// Its id, the same as on its node.
    pub id: SnapshotId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The sandbox it was taken of, which may be gone.
    pub sandbox: SandboxId,
    /// Where that sandbox came from, the oldest first, and the sandbox itself at the end.
    pub ancestors: Vec<SandboxId>,
    /// The name of that sandbox's template.
    pub template: String,
    /// The snapshot that sandbox was made from, if any.
    pub parent: Option<SnapshotId>,
    /// Bytes it added when it was taken.
    pub size_bytes: u64,
    /// CPUs of machines made from it.
    pub cpus: u32,
    /// Memory of machines made from it.
    pub memory_mib: u32,
    /// When it was taken.
    pub created_ms: i64,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRow {
    /// Its id, the same as on its node.
    pub id: VolumeId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name, unique for the tenant.
    pub name: String,
    /// How firmly it exists.
    pub standing: ProvisionState,
    /// Its size.
    pub size_mib: u64,
    /// When it was made.
    pub created_ms: i64,
}

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Whose sandbox.
    pub tenant: TenantId,
    /// Which.
    pub sandbox: SandboxId,
    /// When.
    pub at_ms: i64,
    /// What, such as `sandbox.running`.
    pub kind: String,
    /// More about it, as JSON.
    pub payload: Option<String>,
}

/// A request that changed something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// When.
    pub at_ms: i64,
    /// Whose key.
    pub tenant: TenantId,
    /// The key's prefix.
    pub token: String,
    /// The request's id.
    pub request_id: String,
    /// Its method.
    pub method: String,
    /// Its path, without the query.
    pub path: String,
    /// The answer.
    pub status: u16,
}

/// A REPL context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplRow {
    /// Its id.
    pub id: String,
    /// The sandbox it runs in.
    pub sandbox: SandboxId,
    /// Its language.
    pub language: String,
    /// What the interpreter needs to find it again, as JSON.
    pub handle: String,
    /// Cells run.
    pub cells: u64,
    /// When it was made.
    pub created_ms: i64,
}

/// The key that signs preview links.
#[derive(Clone, PartialEq, Eq)]
pub struct PreviewKey(pub [u8; 32]);

impl std::fmt::Debug for PreviewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PreviewKey(secret)")
    }
}
