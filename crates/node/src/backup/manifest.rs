//! What a backup holds, in `manifest.json`.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::copy::{Sum, read_small};
use super::{BackupError, DATABASE, POOL};
use crate::record::unix_ms;

pub(super) const FILE: &str = "manifest.json";
const FORMAT: u32 = 1;
/// A line takes some hundred bytes; a sandbox has less than ten.
const BYTES_MAX: u64 = 1 << 30;

/// The list of everything in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: u32,
    created_unix_ms: u64,
    /// Directories come before what is in them.
    pub(super) entries: Vec<Entry>,
}

/// A file or a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Where it is, from the backup's directory.
    pub(super) path: PathBuf,
    #[serde(flatten)]
    pub(super) what: What,
}

/// What it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(super) enum What {
    /// A directory.
    Directory {
        /// Who may use it.
        mode: u32,
    },
    /// A file.
    File {
        /// Who may use it.
        mode: u32,
        /// What it holds.
        sum: Sum,
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        target: PathBuf,
    },
}

impl Manifest {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        Self { format: FORMAT, created_unix_ms: unix_ms(), entries }
    }

    /// Reads the manifest of a backup, and makes sure that no path in it leads elsewhere.
    pub(super) fn read(backup: &Path) -> Result<Self, BackupError> {
        let refused = |reason: String| BackupError::NoBackup { path: backup.to_owned(), reason };
        let bytes =
            read_small(&backup.join(FILE), BYTES_MAX).map_err(|error| refused(format!("{FILE}: {error}")))?;
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version =
            serde_json::from_slice(&bytes).map_err(|error| refused(format!("{FILE}: {error}")))?;
        if version.format != FORMAT {
            return Err(refused(format!("its format is {}, this version knows {FORMAT}", version.format)));
        }
        let manifest: Self =
            serde_json::from_slice(&bytes).map_err(|error| refused(format!("{FILE}: {error}")))?;
        match manifest.entries.iter().find(|entry| !is_inside(&entry.path)) {
            Some(entry) => Err(refused(format!("{FILE} names {}", entry.path.display()))),
            None => Ok(manifest),
        }
    }
}

/// Whether a path is of the database, or in the pool.
fn is_inside(path: &Path) -> bool {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    plain && (path == Path::new(DATABASE) || path.starts_with(POOL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        for good in ["control.db", "pool", "pool/sandboxes/a/disk"] {
            assert!(is_inside(Path::new(good)), "{good}");
        }
        for bad in ["", "/etc/passwd", "pool/../../etc", "../pool", "lock", "instance", "poolx/a"] {
            assert!(!is_inside(Path::new(bad)), "{bad}");
        }
    }
}
