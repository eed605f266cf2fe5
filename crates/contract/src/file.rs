//! Files of a sandbox.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEntry {
    /// Its last component.
    pub name: String,
    /// Its absolute path.
    pub path: String,
    /// Whether it is a directory, or a link to one.
    pub is_dir: bool,
    /// Bytes.
    pub size: u64,
    /// As `ls -l` shows it, such as `-rw-r--r--`.
    pub mode: String,
    /// Last change, in seconds of Unix time.
    pub mtime: i64,
    /// Where it leads, for a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_target: Option<String>,
}

/// A directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectoryListing {
    /// Its path.
    pub path: String,
    /// What is in it, by name.
    pub entries: Vec<FileEntry>,
    /// Whether there is more than the server lists.
    pub truncated: bool,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileWritten {
    /// Its path.
    pub path: String,
    /// How many bytes.
    pub bytes: u64,
}

/// Something to do with a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileChange {
    /// The path.
    #[serde(default)]
    pub path: String,
    /// For `move`: where to.
    #[serde(default)]
    pub to: Option<String>,
    /// For `mkdir` and `chmod`: permission bits in octal, such as `0755`.
    #[serde(default)]
    pub mode: Option<String>,
}
