//! What the workspace's tools are called with.

use std::collections::BTreeMap;

use contract::sandbox::NetworkMode;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Update {
    pub(super) sandbox_id: String,
    pub(super) name: Option<String>,
    pub(super) ttl_seconds: Option<i64>,
    pub(super) persistent: Option<bool>,
    pub(super) metadata: Option<BTreeMap<String, Option<String>>>,
    pub(super) env: Option<BTreeMap<String, Option<String>>>,
    pub(super) network: Option<NetworkMode>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Wake {
    pub(super) sandbox_id: String,
    pub(super) cold: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct One {
    pub(super) sandbox_id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Fork {
    pub(super) sandbox_id: String,
    pub(super) count: Option<i64>,
    pub(super) name: Option<String>,
    pub(super) metadata: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Command {
    pub(super) sandbox_id: String,
    pub(super) command: String,
    pub(super) cwd: Option<String>,
    pub(super) env: Option<BTreeMap<String, String>>,
    pub(super) timeout_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct At {
    pub(super) sandbox_id: String,
    pub(super) path: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Write {
    pub(super) sandbox_id: String,
    pub(super) path: String,
    pub(super) content: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct List {
    pub(super) sandbox_id: String,
    pub(super) path: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Expose {
    pub(super) sandbox_id: String,
    pub(super) port: i64,
    pub(super) ttl_seconds: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Snapshots {
    pub(super) sandbox_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OneSnapshot {
    pub(super) snapshot_id: String,
}
