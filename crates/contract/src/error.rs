//! What every failed request answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A failed request. `error` is a sentence the caller can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong, and what to do about it.
    pub error: String,
    /// A stable word for programs, such as `not_found`.
    pub code: String,
    /// What may help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Names this request in the server's log.
    pub request_id: String,
    /// What was written until the time was up; on `timeout` of commands and code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
    /// How far a template is that has to be prepared first (`template_preparing`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// What a command or code wrote before its time was up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Partial {
    /// Standard output until then, with U+FFFD for bytes that are not UTF-8.
    pub stdout: String,
    /// Standard error until then.
    pub stderr: String,
    /// Whether output was dropped: more than the server keeps for an error, or than it collects at all.
    pub truncated: bool,
    /// Values that code had shown until then: one MIME bundle each. Absent for commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<BTreeMap<String, String>>>,
}

/// How far work is that a request waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// What is being done, such as `installing packages: 41 of 130`.
    pub step: String,
    /// When the work began (RFC 3339).
    pub started_at: String,
    /// When `step` last changed (RFC 3339). While it moves, waiting helps.
    pub changed_at: String,
}
