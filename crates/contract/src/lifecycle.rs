//! Sleeping, waking, and how long a sandbox may idle.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sandbox::SandboxStatus;

/// What a sandbox is doing now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusAnswer {
    /// What it is doing.
    pub status: SandboxStatus,
}

/// How long a sandbox may idle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lifecycle {
    /// Seconds of idleness after which it is deleted, or put to sleep if it is persistent.
    pub ttl_seconds: u64,
    /// Sleeps when idle instead of being deleted.
    pub persistent: bool,
    /// Seconds since it was last used.
    pub idle_seconds: u64,
}

/// A change of how long a sandbox may idle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchLifecycle {
    /// Seconds of idleness.
    #[serde(default)]
    pub ttl_seconds: Option<i64>,
    /// Sleeps when idle instead of being deleted.
    #[serde(default)]
    pub persistent: Option<bool>,
}

/// How to start a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// From its disk: what was in its memory is lost.
    #[serde(default)]
    pub cold: Option<bool>,
}
