//! Where builds keep their files: below one directory of the node's pool.
//!
//! ```text
//! staging/upload-<id>/   being received; the node empties `staging` when it opens
//! uploads/<id>/          received whole; goes when its build ends
//! logs/<id>              what the build said; goes with its row
//! templates/<id>/        the disk that came of it; goes with its template
//! ```

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use domain::BuildId;

/// The directories.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    root: PathBuf,
}

impl Places {
    /// Makes those that are missing.
    pub(crate) fn new(root: PathBuf) -> io::Result<Self> {
        let places = Self { root };
        for folder in ["staging", "uploads", "logs", "templates"] {
            fs::create_dir_all(places.root.join(folder))?;
        }
        Ok(places)
    }

    pub(crate) fn receiving(&self, id: &BuildId) -> PathBuf {
        self.root.join("staging").join(format!("upload-{id}"))
    }

    pub(crate) fn upload(&self, id: &BuildId) -> PathBuf {
        self.root.join("uploads").join(id.as_str())
    }

    pub(crate) fn log(&self, id: &BuildId) -> PathBuf {
        self.root.join("logs").join(id.as_str())
    }

    pub(crate) fn template(&self, id: &BuildId) -> PathBuf {
        self.root.join("templates").join(id.as_str())
    }

    /// Removes uploads that no build needs any more. Only before any is received.
    pub(crate) fn sweep_uploads(&self, needed: &HashSet<BuildId>) {
        sweep(&self.root.join("uploads"), needed);
    }

    /// Removes logs of builds that are forgotten.
    pub(crate) fn sweep_logs(&self, known: &HashSet<BuildId>) {
        sweep(&self.root.join("logs"), known);
    }

    /// Removes disks that no template has. Only while none is being built.
    pub(crate) fn sweep_templates(&self, kept: &HashSet<BuildId>) {
        sweep(&self.root.join("templates"), kept);
    }
}

fn sweep(folder: &Path, kept: &HashSet<BuildId>) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(%error, "a directory of builds could not be looked through");
            return;
        }
    };
    for entry in entries.flatten() {
        let id = entry.file_name().to_str().and_then(|name| BuildId::parse(name).ok());
        if !id.is_some_and(|id| kept.contains(&id)) {
            remove(&entry.path());
        }
    }
}

/// Removes a file or a directory with all that is in it. What cannot be removed is left to the next start, and the operator told.
pub(crate) fn remove(path: &Path) {
    let removed = match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %path.display(), "files of a build could not be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_needs_goes() {
        let directory = std::env::temp_dir().join(format!("pandastack-places-{}", std::process::id()));
        let places = Places::new(directory.clone()).unwrap();
        let (kept, gone) = (BuildId::parse("kept").unwrap(), BuildId::parse("gone").unwrap());
        for id in [&kept, &gone] {
            fs::create_dir(places.upload(id)).unwrap();
            fs::write(places.upload(id).join("rootfs"), "").unwrap();
            fs::write(places.log(id), "").unwrap();
        }
        fs::create_dir(directory.join("uploads/Not-An-Id")).unwrap();
        let known = HashSet::from([kept.clone()]);
        places.sweep_uploads(&known);
        places.sweep_logs(&known);
        assert!(places.upload(&kept).exists() && places.log(&kept).exists());
        assert_eq!(fs::read_dir(directory.join("uploads")).unwrap().count(), 1);
        assert!(!places.log(&gone).exists());
        remove(&directory);
    }
}
