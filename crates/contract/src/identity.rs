//! Who is calling, and with which keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sandbox::NetworkMode;

/// Who is calling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// The caller.
    pub id: String,
    /// The same.
    pub user_id: String,
    /// What people call the workspace.
    pub name: String,
    /// Never known here; present because clients print it.
    pub email: String,
    /// The workspace everything belongs to.
    pub workspace: String,
    /// The same, as an organisation.
    pub current_org: Organisation,
    /// The same.
    pub current_org_id: String,
    /// Organisations the caller belongs to: this one.
    pub orgs: Vec<Organisation>,
    /// Always `api_key`.
    pub auth_method: String,
    /// What the key allows: `read`, `write` or `admin`.
    pub scope: String,
    /// What the workspace's sandboxes reach when their caller does not say; the operator's default when `null`.
    #[serde(default)]
    pub network_default: Option<NetworkMode>,
}

/// A change of the workspace. What is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PatchMe {
    /// What new sandboxes reach when their caller does not say: `none`, `all`, or `null` for the operator's default.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NetworkMode>)]
    pub network_default: Option<Option<NetworkMode>>,
}

/// Tells `null` from absent.
fn present<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

/// An organisation. Each workspace is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Organisation {
    /// Its id.
    pub id: String,
    /// Its id again: names are no identity.
    pub slug: String,
    /// What people call it.
    pub name: String,
    /// The caller's role in it.
    pub role: String,
    /// When it was made (RFC 3339).
    pub created_at: String,
}

/// An API key, without the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its first characters, by which it is named.
    pub prefix: String,
    /// What people call it.
    pub label: String,
    /// The same.
    pub name: String,
    /// What it allows: `read`, `write` or `admin`.
    pub scope: String,
    /// When it was made (RFC 3339).
    pub created_at: String,
    /// When it stops working.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A key to make.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// What people call it.
    #[serde(default)]
    pub label: Option<String>,
    /// The same.
    #[serde(default)]
    pub name: Option<String>,
    /// What it allows: `read`, `write` or `admin`; the caller's own when absent, never more than that.
    #[serde(default)]
    pub scope: Option<String>,
    /// Days until it stops working; never when absent.
    #[serde(default)]
    pub expires_in_days: Option<f64>,
}

/// A new key. The only time it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// The key.
    pub token: String,
    /// About it.
    #[serde(flatten)]
    pub about: Token,
}
