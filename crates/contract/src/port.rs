//! Ports and previews.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A port of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Port {
    /// Its number.
    pub port: u16,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether something listens on it.
    pub listening: bool,
    /// `user` when it was named by hand, `detected` when something listens.
    pub source: String,
    /// Where it is reached with a key.
    pub proxy_url: String,
}

/// A port to name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddPort {
    /// Its number.
    #[serde(default)]
    pub port: i64,
    /// What to call it.
    #[serde(default)]
    pub label: Option<String>,
}

/// A preview link to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePreview {
    /// The port.
    #[serde(default)]
    pub port: i64,
    /// How long it works; an hour when absent, a week at most.
    #[serde(default)]
    pub ttl_seconds: Option<i64>,
    /// Paths it is limited to, with everything below them; all when absent.
    #[serde(default)]
    pub paths: Option<Vec<String>>,
}

/// A preview link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// Works without a key.
    pub url: String,
    /// The secret part of it.
    pub token: String,
    /// The sandbox.
    pub sandbox_id: String,
    /// The port.
    pub port: u16,
    /// Paths it is limited to.
    pub paths: Vec<String>,
    /// When it stops working (RFC 3339).
    pub expires_at: String,
}
