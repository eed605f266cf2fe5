//! Templates of tenants' own, and the builds they come of.

use domain::{BuildId, TenantId};
use serde::{Deserialize, Serialize};

/// How far a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BuildStatus {
    /// Waiting for its turn.
    Queued,
    /// Its disk is being made.
    Running,
    /// Its disk is made; the template is booted and saved.
    Baking,
    /// There is a template of it.
    Done,
    /// It came to nothing.
    Failed,
}

impl BuildStatus {
    /// Whether nothing more will happen to it.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

/// What a build starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildSource {
    /// A Dockerfile and its context.
    Dockerfile,
    /// An image of a registry.
    Image,
    /// An image as a file.
    Archive,
    /// The files of a root file system.
    Tarball,
}

/// A template that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildRow {
    /// Its id.
    pub id: BuildId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The template's name.
    pub name: String,
    /// How far it is.
    pub status: BuildStatus,
    /// Why it came to nothing.
    pub error: Option<String>,
    /// Whether it may take the place of a template of that name.
    pub replace: bool,
    /// What it starts from.
    pub source: BuildSource,
    /// The image it was asked to take.
    pub image_ref: Option<String>,
    /// Size of the root disk.
    pub disk_mib: u32,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory_mib: u32,
    /// How often it was begun.
    pub attempts: u32,
    /// Bytes of the files on its disk, when it is made.
    pub bytes: Option<u64>,
    /// When it was asked for.
    pub created_ms: i64,
    /// When it was first begun.
    pub started_ms: Option<i64>,
    /// When it ended.
    pub ended_ms: Option<i64>,
}

/// What becomes of a build that goes on. What is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildChange {
    /// How far it is now. It does not end this way.
    pub status: Option<BuildStatus>,
    /// How often it was begun.
    pub attempts: Option<u32>,
    /// When it was begun; kept when it was before.
    pub started_ms: Option<i64>,
}

/// A template of a tenant's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRow {
    /// The build it came of, by which its disk is found.
    pub build: BuildId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name, unique for the tenant.
    pub name: String,
    /// Size of the root disk.
    pub disk_mib: u32,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory_mib: u32,
    /// How to run it, as JSON.
    pub config: String,
    /// Digest of its disk.
    pub digest: String,
    /// Bytes of the files on its disk.
    pub bytes: u64,
    /// The image it was made from, when it was made from one.
    pub image_ref: Option<String>,
    /// When it was made.
    pub created_ms: i64,
}

/// What came of making a template known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// It is there; this one had its name before.
    Yes(Option<TemplateRow>),
    /// Its build had ended meanwhile, and nothing has changed.
    Ended,
}
