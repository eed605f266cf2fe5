//! An image's configuration: how its programs want to be run, and which layers it has.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::Digest;
use crate::manifest::Platform;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("image configuration cannot be read")]
pub struct ConfigError(#[source] serde_json::Error);

/// An image's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// The architecture, such as `amd64`.
    #[serde(default)]
    pub architecture: String,
    /// The operating system, such as `linux`.
    #[serde(default)]
    pub os: String,
    /// A finer kind of the architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// When it was made, as it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// How to run it.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub config: RunConfig,
    /// Its layers.
    pub rootfs: RootFs,
    /// How it was made, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub history: Vec<History>,
}

/// How programs of an image want to be run. Names are Docker's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RunConfig {
    /// User, or user and group: `name`, `uid`, `name:group`, `uid:gid`.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub user: String,
    /// Ports that programs listen on, such as `80/tcp`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", with = "set")]
    pub exposed_ports: BTreeSet<String>,
    /// Variables, each `NAME=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub env: Vec<String>,
    /// What is run, before the arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub entrypoint: Vec<String>,
    /// Arguments, or the whole command when there is no entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub cmd: Vec<String>,
    /// Places meant for volumes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", with = "set")]
    pub volumes: BTreeSet<String>,
    /// Where programs start.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub working_dir: String,
    /// Notes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The signal that asks it to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// How to see whether it is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Healthcheck>,
    /// Instructions for builds that start from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub on_build: Vec<String>,
    /// What runs commands written as a text.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub shell: Vec<String>,
}

/// How to see whether a container is well. Times are nanoseconds; zero means unsaid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Healthcheck {
    /// `["NONE"]`, `["CMD", …]` or `["CMD-SHELL", text]`; empty means inherited.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub test: Vec<String>,
    /// Time between two tries.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interval: i64,
    /// How long one may take.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub timeout: i64,
    /// How long failures do not count after the start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_period: i64,
    /// Time between two tries during that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_interval: i64,
    /// How many failures in a row count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: i64,
}

/// The layers of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// Always `layers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Digests of the layers as they are when not compressed, lowest first.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub diff_ids: Vec<Digest>,
}

impl Default for RootFs {
    fn default() -> Self {
        Self { kind: "layers".into(), diff_ids: Vec::new() }
    }
}

/// One step of how an image was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// By what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// A remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether the step made no layer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty_layer: bool,
}

impl ImageConfig {
    /// Reads a configuration.
    ///
    /// # Errors
    /// When it is not one.
    pub fn decode(bytes: &[u8]) -> Result<Self, ConfigError> {
        serde_json::from_slice(bytes).map_err(ConfigError)
    }

    /// The machine it is for.
    pub fn platform(&self) -> Platform {
        Platform {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant: self.variant.clone(),
        }
    }
}

/// `null` where there could be a list: what Go writes for an empty one.
pub(crate) fn null_is_empty<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(input)?.unwrap_or_default())
}

/// A set of names, written as an object with empty objects in it.
mod set {
    use std::collections::{BTreeMap, BTreeSet};

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::IgnoredAny};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<BTreeSet<String>, D::Error> {
        let map = Option::<BTreeMap<String, IgnoredAny>>::deserialize(input)?.unwrap_or_default();
        Ok(map.into_keys().collect())
    }

    pub(super) fn serialize<S: Serializer>(set: &BTreeSet<String>, out: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Nothing {}
        out.collect_map(set.iter().map(|key| (key, Nothing {})))
    }
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_docker_writes_is_read() {
        let text = r#"{"architecture":"amd64","os":"linux","created":"2026-01-01T00:00:00Z","docker_version":"27",
            "config":{"Hostname":"","User":"app:app","ExposedPorts":{"80/tcp":{},"53/udp":{}},"Env":["PATH=/bin","A=b=c"],
            "Cmd":null,"Entrypoint":["/run","--x"],"WorkingDir":"/srv","Labels":null,"OnBuild":null,"Volumes":{"/data":{}},
            "Healthcheck":{"Test":["CMD-SHELL","true"],"Interval":30000000000,"Retries":3},"Shell":["/bin/bash","-c"]},
            "rootfs":{"type":"layers","diff_ids":["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]},
            "history":[{"created_by":"COPY . .","empty_layer":true}]}"#;
        let image = ImageConfig::decode(text.as_bytes()).unwrap();
        let run = &image.config;
        assert_eq!(run.exposed_ports.iter().collect::<Vec<_>>(), ["53/udp", "80/tcp"]);
        assert_eq!((run.user.as_str(), run.working_dir.as_str(), run.cmd.len()), ("app:app", "/srv", 0));
        assert_eq!(
            run.healthcheck.as_ref().map(|check| (check.interval, check.retries)),
            Some((30_000_000_000, 3))
        );
        assert_eq!((run.shell.len(), image.history[0].empty_layer), (2, true));
        let again = serde_json::to_vec(&image).unwrap();
        assert_eq!(ImageConfig::decode(&again).unwrap(), image);
        let bare = r#"{"architecture":"amd64","os":"linux","config":null,"rootfs":{"type":"layers","diff_ids":null}}"#;
        assert!(ImageConfig::decode(bare.as_bytes()).unwrap().rootfs.diff_ids.is_empty());
        assert!(ImageConfig::decode(b"{}").is_err());
    }
}
