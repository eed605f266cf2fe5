//! Processes that outlive the request that started them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::exec::CommandLine;

/// A process to start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartProcess {
    /// A line for the shell, or a program and its arguments; this or `argv`.
    #[serde(default)]
    pub cmd: Option<CommandLine>,
    /// A program and its arguments, as `cmd` takes them too.
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// Working directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Variables on top of the sandbox's own.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    /// The user who runs it; root when absent.
    #[serde(default)]
    pub user: Option<String>,
    /// Whether it can be written to.
    #[serde(default)]
    pub stdin: Option<bool>,
    /// After this long it is killed, with everything it started.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// A name of the caller's own.
    #[serde(default)]
    pub tag: Option<String>,
}

/// A process of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Process {
    /// Names it as long as the sandbox lives.
    pub id: u32,
    /// Its pid in the guest.
    pub pid: u32,
    /// What runs.
    pub command: String,
    /// The caller's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Whether it still runs.
    pub running: bool,
    /// Its exit code, when it has ended; 128 + n when signal n ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// Input for a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessInput {
    /// What it reads.
    #[serde(default)]
    pub data: String,
    /// Whether standard input ends after that.
    #[serde(default)]
    pub close: Option<bool>,
}

/// A signal for a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessSignal {
    /// Its number, such as 15, or name, such as `SIGTERM`; SIGTERM when absent.
    #[serde(default)]
    pub signal: Option<SignalName>,
}

/// A signal by number or name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum SignalName {
    /// Such as 15.
    Number(i32),
    /// Such as `SIGTERM` or `TERM`.
    Name(String),
}
