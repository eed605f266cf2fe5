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

/// What a signed URL allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileOperation {
    /// Downloading the file.
    Read,
    /// Writing the file.
    Write,
}

/// A URL to make that needs no key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignFile {
    /// An absolute path in the sandbox. The file need not be there yet.
    #[serde(default)]
    pub path: String,
    /// What the URL allows.
    pub operation: FileOperation,
    /// How long it works; 3,600 when absent, at most 604,800.
    #[serde(default)]
    pub expires_in_seconds: Option<i64>,
}

/// A URL that works without a key for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignedFile {
    /// The URL. It works for everyone who has it.
    pub url: String,
    /// How to use it: `GET` or `PUT`.
    pub method: String,
    /// The file.
    pub path: String,
    /// Until when it works (RFC 3339).
    pub expires_at: String,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileEventKind {
    /// It appeared.
    Created,
    /// Its contents or its metadata changed.
    Changed,
    /// It is gone.
    Removed,
    /// It has another path now.
    Moved,
}

/// A change that a watch tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEvent {
    /// The file's absolute path. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// What happened.
    pub kind: FileEventKind,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Where it moved to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}
