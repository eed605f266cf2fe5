//! Commands that are waited for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What to run: a line for the shell, or a program and its arguments, which no shell looks at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a command must be a string (a shell line) or a list of strings")]
pub enum CommandLine {
    /// A line for the shell, such as `ls -l | wc -l`.
    Shell(String),
    /// A program and its arguments, such as `["ls", "-l"]`.
    Argv(Vec<String>),
}

impl Default for CommandLine {
    fn default() -> Self {
        Self::Shell(String::new())
    }
}

impl From<String> for CommandLine {
    fn from(line: String) -> Self {
        Self::Shell(line)
    }
}

impl From<&str> for CommandLine {
    fn from(line: &str) -> Self {
        Self::Shell(line.to_owned())
    }
}

impl From<Vec<String>> for CommandLine {
    fn from(arguments: Vec<String>) -> Self {
        Self::Argv(arguments)
    }
}

/// A command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// A line for the shell, or a program and its arguments.
    #[serde(default)]
    pub cmd: CommandLine,
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
    /// What may help, where a command failed for want of a network that the sandbox does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
