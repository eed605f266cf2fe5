//! A snapshot in the making.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use serde::Serialize;

use super::manifest::{self, Digest, FILE, FORMAT, FileRecord, Manifest, Persistence, is_file_name};
use super::{STAGING, Snapshot, SnapshotError, is_id};
use crate::durable::{Durability, sync_directory};
use crate::kill_point;
use crate::random::random_name;

/// Files with this at the end of their name hold the sums of the file named before it.
const SUMS: &str = ".sums";

/// A directory on the file system of the snapshots that becomes one of them, or is removed when it is dropped.
#[derive(Debug)]
pub struct Staged {
    directory: PathBuf,
    store: PathBuf,
}

impl Staged {
    pub(super) fn new(store: &Path) -> Result<Staged, SnapshotError> {
        let failed = SnapshotError::at("begin a snapshot");
        let directory = store.join(STAGING).join(random_name().map_err(failed)?);
        DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        Ok(Staged { directory, store: store.to_owned() })
    }

    /// Where a file of the snapshot belongs. The caller makes it, and must be done with it before the commit.
    pub fn path(&self, name: &str) -> Result<PathBuf, SnapshotError> {
        match is_file_name(name) {
            true => Ok(self.directory.join(name)),
            false => Err(SnapshotError::InvalidName { name: name.to_owned() }),
        }
    }

    /// Makes all files in the directory the snapshot `id`, at once. A file with sums beside it (`disk` with `disk.sums`)
    /// is recorded by its length, any other also by a digest of its bytes. After an error there is no such snapshot and
    /// the files are gone.
    pub fn commit<A: Serialize>(
        self,
        id: &str,
        about: A,
        durability: Durability,
    ) -> Result<Snapshot<A>, SnapshotError> {
        if !is_id(id) {
            return Err(SnapshotError::InvalidId);
        }
        let files = self.record_files(durability)?;
        let persistence = match durability {
            Durability::Synced => Persistence::Synced,
            Durability::Unsynced => Persistence::ThisBoot { boot_id: manifest::this_boot()? },
        };
        let manifest = Manifest { format: FORMAT, id: id.to_owned(), persistence, files, about };
        let failed = SnapshotError::at("write the manifest");
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.directory.join(FILE))
            .map_err(failed)?;
        kill_point::reached();
        file.write_all(&manifest.encode()?).map_err(failed)?;
        kill_point::reached();
        if durability == Durability::Synced {
            file.sync_all().map_err(failed)?;
            sync_directory(&self.directory).map_err(failed)?;
            kill_point::reached();
        }
        let place = self.store.join(id);
        match rustix::fs::renameat_with(CWD, &self.directory, CWD, &place, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST | rustix::io::Errno::NOTEMPTY) => {
                return Err(SnapshotError::AlreadyExists { id: id.to_owned() });
            }
            renamed => renamed.map_err(|errno| SnapshotError::at("commit the snapshot")(errno.into()))?,
        }
        kill_point::reached();
        if durability == Durability::Synced
            && let Err(error) = sync_directory(&self.store)
        {
            // It may or may not be there after a crash of the machine, so it must not be there now.
            let _ = std::fs::rename(&place, &self.directory);
            return Err(SnapshotError::at("commit the snapshot")(error));
        }
        kill_point::reached();
        Ok(Snapshot::new(place, manifest))
    }

    fn record_files(&self, durability: Durability) -> Result<BTreeMap<String, FileRecord>, SnapshotError> {
        let failed = SnapshotError::at("look at the files of the snapshot");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !is_file_name(&name) || !entry.file_type().map_err(failed)?.is_file() {
                return Err(SnapshotError::InvalidName { name });
            }
            names.push(name);
        }
        if names.len() > manifest::FILES_MAX {
            return Err(SnapshotError::TooLarge);
        }
        let mut files = BTreeMap::new();
        for name in &names {
            let file = File::open(self.directory.join(name)).map_err(failed)?;
            if durability == Durability::Synced {
                file.sync_all().map_err(SnapshotError::at("sync a file of the snapshot"))?;
            }
            kill_point::reached();
            let summed = names.contains(&format!("{name}{SUMS}"));
            let digest = if summed { None } else { Some(Digest::of_file(&file).map_err(failed)?) };
            files.insert(name.clone(), FileRecord { length: file.metadata().map_err(failed)?.len(), digest });
        }
        Ok(files)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        match std::fs::remove_dir_all(&self.directory) {
            // After a commit it is not there.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "an unfinished snapshot stays until the next start");
            }
            _ => {}
        }
    }
}
