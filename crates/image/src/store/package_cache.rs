//! Downloaded packages, so that an interrupted build, or the build of another template, does not download them again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// At this size the packages that were downloaded longest ago are removed.
const LENGTH_MAX: u64 = 2 << 30;

/// A folder of `.deb` files.
#[derive(Debug, Clone)]
pub(crate) struct PackageCache {
    dir: PathBuf,
}

impl PackageCache {
    /// Where apt keeps packages of the root file system that is being made in a staging folder.
    pub(crate) const IN_STAGING: &str = "root/var/cache/apt/archives";

    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Copies all packages into `archives`. On a pool with reflinks this copies no data.
    pub(crate) fn seed(&self, archives: &Path) -> io::Result<()> {
        for package in packages_in(&self.dir)? {
            if let Some(name) = package.path.file_name() {
                match fs::copy(&package.path, archives.join(name)) {
                    // Somebody else has pruned it in the meantime.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    copied => drop(copied?),
                }
            }
        }
        Ok(())
    }

    /// Moves the packages in `archives` here. apt puts a package there only when it is complete.
    pub(crate) fn harvest(&self, archives: &Path) -> io::Result<()> {
        let found = match packages_in(archives) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        for package in found {
            let Some(name) = package.path.file_name() else { continue };
            let kept = self.dir.join(name);
            if kept.exists() {
                fs::remove_file(&package.path)?;
            } else {
                fs::rename(&package.path, kept)?;
            }
        }
        self.prune(LENGTH_MAX)
    }

    /// Forgets everything, for when a package here may be damaged.
    pub(crate) fn clear(&self) -> io::Result<()> {
        self.prune(0)
    }

    fn prune(&self, length_max: u64) -> io::Result<()> {
        let mut packages = packages_in(&self.dir)?;
        packages.sort_by_key(|package| package.modified);
        let mut total: u64 = packages.iter().map(|package| package.length).sum();
        for package in packages {
            if total <= length_max {
                break;
            }
            match fs::remove_file(&package.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => total -= package.length,
            }
        }
        Ok(())
    }
}

struct PackageFile {
    path: PathBuf,
    length: u64,
    modified: SystemTime,
}

fn packages_in(folder: &Path) -> io::Result<Vec<PackageFile>> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_package = path.extension().is_some_and(|extension| extension == "deb");
        // Somebody else may have pruned it a moment ago.
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if is_package && metadata.is_file() && metadata.len() > 0 {
            packages.push(PackageFile { path, length: metadata.len(), modified: metadata.modified()? });
        }
    }
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_kept_given_out_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let (kept, archives) = (dir.path().join("kept"), dir.path().join("archives"));
        fs::create_dir_all(&kept).unwrap();
        fs::create_dir_all(archives.join("partial")).unwrap();
        let cache = PackageCache::new(kept.clone());
        fs::write(archives.join("a_1_amd64.deb"), [1; 100]).unwrap();
        fs::write(archives.join("empty_1_amd64.deb"), []).unwrap();
        fs::write(archives.join("lock"), [1]).unwrap();
        cache.harvest(&archives).unwrap();
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
        cache.seed(&archives).unwrap();
        assert_eq!(fs::read(archives.join("a_1_amd64.deb")).unwrap(), [1; 100]);
        cache.harvest(&archives).unwrap();
        assert!(!archives.join("a_1_amd64.deb").exists());
        cache.harvest(&dir.path().join("absent")).unwrap();

        fs::write(kept.join("b_1_amd64.deb"), [2; 100]).unwrap();
        let old = SystemTime::UNIX_EPOCH;
        fs::File::open(kept.join("a_1_amd64.deb")).unwrap().set_modified(old).unwrap();
        cache.prune(150).unwrap();
        assert!(!kept.join("a_1_amd64.deb").exists() && kept.join("b_1_amd64.deb").exists());
        cache.clear().unwrap();
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);
    }
}
