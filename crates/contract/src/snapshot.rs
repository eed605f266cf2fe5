//! Snapshots, forks, and choosing among children.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sandbox::Sandbox;

/// An instant of a sandbox: memory and disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// The same.
    pub snapshot_id: String,
    /// The sandbox it was taken of.
    pub sandbox_id: String,
    /// Where that sandbox came from, the oldest first, and the sandbox itself at the end.
    #[serde(default)]
    pub ancestors: Vec<String>,
    /// That sandbox's template.
    pub template: String,
    /// The snapshot that sandbox was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_snapshot_id: Option<String>,
    /// Bytes on disk of its memory and its disk, those shared with other snapshots and sandboxes included. For one that is only in
    /// the archive: bytes of memory that had changed when it was taken.
    pub size_bytes: u64,
    /// Bytes on disk that nothing else uses; never more than `size_bytes`.
    pub unique_bytes: u64,
    /// When it was taken (RFC 3339).
    pub created_at: String,
    /// Whose it is.
    pub workspace: String,
}

/// Snapshots, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshots {
    /// All of them.
    pub snapshots: Vec<Snapshot>,
}

/// A fork to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// How many children; 1 when absent.
    #[serde(default)]
    pub count: Option<i64>,
    /// For the children, on top of the parent's own.
    #[serde(default)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// The child's name, as at creation; only of a single child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Has no effect: every fork goes on from memory. Accepted from clients that send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Has no effect, like `mode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<bool>,
}

/// Children of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ForkAnswer {
    /// Names the children together.
    pub tree_id: String,
    /// Their parent.
    pub parent_id: String,
    /// The instant they go on from.
    pub snapshot_id: String,
    /// When that was (RFC 3339).
    pub at: String,
    /// The first child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// All children that were created.
    pub children: Vec<Sandbox>,
    /// Those that did not.
    pub errors: Vec<ForkFailure>,
}

/// A child that could not be created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForkFailure {
    /// Which one.
    pub index: u32,
    /// Why.
    pub err: String,
}

/// A child to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromoteRequest {
    /// Whether the others are deleted.
    #[serde(default)]
    pub cleanup_siblings: Option<bool>,
    /// The fork; found from the child when absent.
    #[serde(default)]
    pub tree_id: Option<String>,
}

/// What became of the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromoteAnswer {
    /// The child that stays.
    pub winner: String,
    /// The fork.
    pub tree_id: String,
    /// Children deleted.
    pub deleted: Vec<String>,
    /// Children that could not be deleted, and why.
    pub failures: BTreeMap<String, String>,
}
