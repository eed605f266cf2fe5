//! Templates, and builds of one's own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::Progress;

/// A template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Always empty: where it lies on the host is not told.
    pub rootfs_path: String,
    /// Size of its disk.
    pub size_bytes: u64,
    /// Virtual CPUs of its machines.
    pub cpu: u32,
    /// Memory of its machines in MiB.
    pub memory_mb: u32,
    /// Whether everybody may use it.
    pub is_global: bool,
    /// Whose it is, unless it is everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Other names it answers to.
    pub aliases: Vec<String>,
    /// Packages in it.
    pub tools: Vec<String>,
    /// `ready`, `preparing` or `not_prepared`.
    pub status: String,
    /// What is being done, while it is being prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The same with when it began and when it last moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_detail: Option<Progress>,
    /// Digest of its disk, of a template that was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Bytes it takes on the host, once prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_on_disk: Option<TemplateSize>,
    /// More about a template that was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<TemplateMeta>,
}

/// Bytes a template takes on the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TemplateSize {
    /// Disk and saved memory, bytes that are shared with others included.
    pub bytes: u64,
    /// Those that no other file shares.
    pub unique_bytes: u64,
}

/// How a template came to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TemplateMeta {
    /// When it was built (RFC 3339).
    pub built_at: String,
    /// The build it came of.
    pub build_id: String,
    /// The image it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_ref: Option<String>,
}

/// A build of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TemplateBuild {
    /// Its id.
    pub id: String,
    /// The template's name.
    pub name: String,
    /// `queued`, `running`, `baking`, `done` or `failed`.
    pub status: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it was begun, or asked for while it waits (RFC 3339).
    pub started_at: String,
    /// When it ended (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Size of the template's disk in MiB.
    pub size_mb: u32,
    /// Virtual CPUs of the template's machines.
    pub cpu: u32,
    /// Memory of the template's machines in MiB.
    pub memory_mb: u32,
    /// Bytes on the template's disk, when it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The image it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_ref: Option<String>,
    /// What it starts from: `dockerfile`, `image`, `archive` or `tarball`.
    pub source: String,
    /// Whose it is.
    pub owner_workspace: String,
}

/// What a build is asked for with, as a form (multipart or urlencoded). Exactly one of `dockerfile` (or a `context` that holds one),
/// `image_ref`, `image` and `rootfs` is given. In a multipart form with a `dockerfile`, every other part with a file name is a file of
/// the context, and its field name is the file's path in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BuildForm {
    /// The template's name: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Size of its disk in MiB; 1024 when absent.
    pub size_mb: Option<u32>,
    /// Virtual CPUs of its machines; 1 when absent.
    pub cpu: Option<u32>,
    /// Memory of its machines in MiB; 512 when absent.
    pub memory_mb: Option<u32>,
    /// Taken and ignored: every machine has the host's kernel.
    pub kernel: Option<String>,
    /// Whether it may take the place of a template of that name.
    pub replace: Option<bool>,
    /// The text of a Dockerfile.
    pub dockerfile: Option<String>,
    /// Where the Dockerfile is in `context`; `Dockerfile` when absent.
    pub dockerfile_path: Option<String>,
    /// Values for the Dockerfile's `ARG`s, as a JSON object of strings.
    #[schema(value_type = Option<String>)]
    pub build_args: Option<BTreeMap<String, String>>,
    /// The stage of the Dockerfile that becomes the template; the last when absent.
    pub target: Option<String>,
    /// An image of a registry.
    pub image_ref: Option<String>,
    /// File: the context as a tar archive, compressed or not, with the content type `application/x-tar`.
    #[schema(value_type = Option<String>, format = Binary)]
    pub context: Option<Vec<u8>>,
    /// File: a root file system as a tar archive, compressed or not.
    #[schema(value_type = Option<String>, format = Binary)]
    pub rootfs: Option<Vec<u8>>,
    /// File: an image as an OCI archive, or as `docker save` writes it.
    #[schema(value_type = Option<String>, format = Binary)]
    pub image: Option<Vec<u8>>,
}
