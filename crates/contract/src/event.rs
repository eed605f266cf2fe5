//! What happened, and to what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// When (RFC 3339).
    pub time: String,
    /// To which sandbox.
    pub sandbox_id: String,
    /// What, such as `sandbox.running`.
    #[serde(rename = "type")]
    pub kind: String,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<serde_json::Value>,
}

/// One event of a stream: its lines `event:` and `data:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamedEvent {
    /// Its name.
    pub event: String,
    /// Its data, JSON in ASCII.
    pub data: String,
}

/// Events of a sandbox, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// The newest ones.
    pub events: Vec<Event>,
}

/// A request that changed something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When (RFC 3339).
    pub ts: String,
    /// Whose key.
    pub workspace: String,
    /// The key's prefix.
    pub token: String,
    /// The request's id.
    pub request_id: String,
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// The answer.
    pub status: u16,
}

/// The audit log, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Audit {
    /// Its lines.
    pub entries: Vec<AuditEntry>,
    /// From when on.
    pub since: String,
}
