//! Volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A disk that outlives sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its size in MiB.
    pub size_mb: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes it takes on the host.
    pub used_bytes: u64,
    /// Sandboxes it is attached to.
    pub attached_to: Vec<String>,
    /// When it was made (RFC 3339).
    pub created_at: String,
}

/// A volume to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its size in MiB; 256 when absent.
    #[serde(default)]
    pub size_mb: Option<i64>,
}

/// A change of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchVolume {
    /// Its new size in MiB. Volumes only grow.
    #[serde(default)]
    pub size_mb: Option<i64>,
}
