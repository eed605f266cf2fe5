//! Code contexts, one-shot code, language servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A context to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateContext {
    /// Its language; Python when absent.
    #[serde(default)]
    pub language: Option<String>,
    /// Working directory.
    #[serde(default)]
    pub cwd: Option<String>,
}

/// A context: an interpreter that keeps its state from cell to cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Context {
    /// Its id.
    pub id: String,
    /// The sandbox it runs in.
    pub sandbox_id: String,
    /// Its language.
    pub language: String,
    /// When it was made (RFC 3339).
    pub created_at: String,
    /// Cells run.
    pub cells: u64,
}

/// A cell to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCell {
    /// The code.
    #[serde(default)]
    pub code: String,
    /// After this long it is interrupted; 30,000 when absent.
    #[serde(default)]
    pub timeout_ms: Option<i64>,
    /// Which of the sandbox's default contexts, where the context is `default`: Python when absent. Refused for other contexts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
}

/// What a cell did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CellAnswer {
    /// What it wrote.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// 0, or 1 when it raised.
    pub exit: i32,
    /// The same.
    pub exit_code: i32,
    /// The traceback when it raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it showed: one object of MIME types per result.
    pub results: Vec<BTreeMap<String, String>>,
    /// How long it took.
    pub duration_ms: u64,
    /// The context it ran in.
    #[serde(default)]
    pub context_id: String,
}

/// How a cell ended whose output was followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CellExit {
    /// 0, or 1 when it raised.
    pub exit: i32,
    /// The same.
    pub exit_code: i32,
    /// The traceback when it raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
    /// The context it ran in.
    pub context_id: String,
}

/// Code to run once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunOnce {
    /// Its language.
    #[serde(default)]
    pub language: String,
    /// The code.
    #[serde(default)]
    pub code: String,
    /// After this long it is killed; 30,000 when absent.
    #[serde(default)]
    pub timeout_ms: Option<i64>,
}

/// How code that was run once ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunOnceAnswer {
    /// Its language.
    pub language: String,
    /// What it wrote.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// Its exit code.
    pub exit_code: i32,
}

/// Languages that have a language server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LanguageServers {
    /// Their names.
    pub supported: Vec<String>,
    /// What to know about them.
    pub note: String,
}
