//! What a data directory was before a start, so that one that fails leaves nothing that it made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::instance;

/// How a data directory was.
#[derive(Debug)]
pub struct Fresh {
    data_dir: PathBuf,
    /// The first of its parents that was not there.
    first_made: Option<PathBuf>,
    was_empty: bool,
    was_mounted: bool,
}

impl Fresh {
    /// Looks at it.
    pub fn before(data_dir: &Path) -> Self {
        let missing = data_dir.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let mut entries = fs::read_dir(data_dir).into_iter().flatten();
        Self {
            data_dir: data_dir.to_owned(),
            first_made: missing.last().map(Path::to_owned),
            was_empty: entries.next().is_none(),
            was_mounted: storage::pool::mounts_below(data_dir).is_ok_and(|mounts| !mounts.is_empty()),
        }
    }

    /// Takes back what was made since. Only for a start that failed, whose node and locks are gone. What was there is not touched.
    pub fn undo(&self) {
        if let Err(error) = self.try_undo() {
            tracing::warn!(%error, "a start that failed left something in {}", self.data_dir.display());
        }
    }

    fn try_undo(&self) -> io::Result<()> {
        if !self.was_mounted {
            storage::pool::release(&self.data_dir)?;
        }
        if !self.was_empty {
            return Ok(());
        }
        if let Some(tag) = instance::known_tag(&self.data_dir) {
            instance::forget(&tag)?;
        }
        if let Some(first) = &self.first_made {
            return crate::paths::remove_directory(first);
        }
        for entry in fs::read_dir(&self.data_dir)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_goes_and_what_was_there_stays() {
        let root = tempfile::tempdir().unwrap();
        let fill = |path: &Path| {
            fs::create_dir_all(path.join("pool/sandboxes")).unwrap();
            fs::write(path.join("lock"), "1").unwrap();
        };
        let absent = root.path().join("a/b");
        let fresh = Fresh::before(&absent);
        fill(&absent);
        fresh.undo();
        assert!(!root.path().join("a").exists());

        let empty = root.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let fresh = Fresh::before(&empty);
        fill(&empty);
        fresh.undo();
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);

        let full = root.path().join("full");
        fill(&full);
        let fresh = Fresh::before(&full);
        fs::write(full.join("more"), "").unwrap();
        fresh.undo();
        assert!(full.join("more").exists() && full.join("lock").exists());
    }
}
