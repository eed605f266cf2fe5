//! Where a sandbox comes from, and what comes from it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sandbox::SandboxStatus;

/// A sandbox with all its relatives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SandboxTree {
    /// The oldest sandbox that is known, where `tree` begins.
    pub root: String,
    /// Where the sandbox that was asked for comes from, the oldest first.
    pub ancestors: Vec<Ancestor>,
    /// The root and all that come from it. Deleted ones are in it where something that exists comes from them.
    pub tree: TreeNode,
    /// Snapshots of sandboxes in the tree, newest first.
    pub snapshots: Vec<TreeSnapshot>,
}

/// A sandbox that another comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ancestor {
    /// Its id.
    pub id: String,
    /// What its owner calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is doing; `deleted` when it is gone.
    pub status: SandboxStatus,
}

/// A sandbox in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TreeNode {
    /// Its id.
    pub id: String,
    /// What its owner calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is doing; `deleted` when it is gone.
    pub status: SandboxStatus,
    /// The template it was made from; absent when it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// When it was made (RFC 3339); absent when it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// Its place among the children of its fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_index: Option<u32>,
    /// Those that come from it directly, the oldest first.
    #[schema(no_recursion)]
    pub children: Vec<TreeNode>,
}

/// A snapshot of a sandbox in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TreeSnapshot {
    /// Its id.
    pub id: String,
    /// The sandbox it was taken of.
    pub sandbox_id: String,
    /// When it was taken (RFC 3339).
    pub created_at: String,
}
