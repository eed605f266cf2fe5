//! Commands that are waited for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecRequest {
    /// A line for the shell.
    #[serde(default)]
    pub cmd: String,
    /// After this long it is killed, with everything it started.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// Working directory; the user's home when absent.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Variables on top of the sandbox's own.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    /// The user who runs it; root when absent.
    #[serde(default)]
    pub user: Option<String>,
    /// What it reads from standard input.
    #[serde(default)]
    pub stdin: Option<String>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecAnswer {
    /// What it wrote, with U+FFFD for bytes that are not UTF-8.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// Its exit code; 128 + n when signal n ended it.
    pub exit_code: i32,
    /// How long it ran.
    pub duration_ms: u64,
    /// Whether output beyond the server's bound was dropped.
    pub truncated: bool,
    /// Names the command in `/processes`.
    pub process_id: u32,
}
