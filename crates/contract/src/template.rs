//! Templates.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Always empty: where it lies on the host is nobody's business.
    pub rootfs_path: String,
    /// Size of its disk.
    pub size_bytes: u64,
    /// Virtual CPUs of its machines.
    pub cpu: u32,
    /// Memory of its machines in MiB.
    pub memory_mb: u32,
    /// Whether everybody may use it.
    pub is_global: bool,
    /// Other names it answers to.
    pub aliases: Vec<String>,
    /// Packages in it.
    pub tools: Vec<String>,
    /// `ready`, `preparing` or `not_prepared`.
    pub status: String,
    /// What is being done, while it is being prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}
