//! Snapshots on disk: directories of files that are complete or absent.
//!
//! ```text
//! snapshots/<id>/manifest.json      what the snapshot is made of, with lengths and digests
//!               /memory, disk, …    its files
//!               /memory.sums, …     sums that cover the file of the same name
//!          /.staging/<random>/      being made; gone at the next start
//!          /.trash/<random>/        being deleted; gone at the next start
//! ```
//!
//! A snapshot is written aside and renamed into place; deleting renames it away first. So a process may be killed at any
//! instruction. What a snapshot means is the caller's `about`. [`staged`] makes them, [`manifest`] reads them back.

pub mod manifest;
pub mod staged;

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable::{Durability, sync_directory, write_file};
use crate::kill_point;
use crate::random::random_name;
pub use manifest::{Digest, FileRecord, Manifest, Persistence};
pub use staged::Staged;

const STAGING: &str = ".staging";
const TRASH: &str = ".trash";

/// Largest file that [`Snapshot::read`] brings into memory: more than the sums of the largest guest.
pub const READ_BYTES_MAX: u64 = 4 << 30;

/// The snapshots of one directory. Only the owner of the data directory may open it, and once: opening removes what
/// unfinished work left.
#[derive(Debug, Clone)]
pub struct SnapshotStore {
    directory: PathBuf,
}

/// A snapshot whose manifest was checked and whose files were there at that moment, with their lengths.
#[derive(Debug, Clone)]
pub struct Snapshot<A> {
    directory: PathBuf,
    /// What it is made of.
    pub manifest: Manifest<A>,
}

/// What is wrong with a damaged snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The manifest is missing, cut, changed or too long.
    #[error("its manifest is not the one that was written")]
    Manifest,
    /// The manifest is of another snapshot.
    #[error("its manifest is that of another snapshot")]
    OtherId,
    /// A file is gone.
    #[error("its file `{name}` is missing")]
    Missing {
        /// Which.
        name: String,
    },
    /// A file was cut or grew.
    #[error("its file `{name}` has {actual} bytes where {expected} were written")]
    Length {
        /// Which.
        name: String,
        /// Bytes when it was written.
        expected: u64,
        /// Bytes now.
        actual: u64,
    },
    /// A file holds other bytes.
    #[error("its file `{name}` does not hold the bytes that were written")]
    Content {
        /// Which.
        name: String,
    },
    /// It was never synced, and the machine has been restarted since.
    #[error("it was not yet on disk when the machine stopped")]
    NotSynced,
}

/// Why a snapshot could not be made, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The id is not one to forty of `a`–`z` and `0`–`9`.
    #[error("this is not the id of a snapshot")]
    InvalidId,
    /// The name of a file is not plain.
    #[error("a file of a snapshot cannot be named `{name}`")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// There is a snapshot of that id.
    #[error("snapshot {id} exists already")]
    AlreadyExists {
        /// Its id.
        id: String,
    },
    /// There is none of that id.
    #[error("there is no snapshot {id}")]
    NotFound {
        /// The id.
        id: String,
    },
    /// It is there and cannot be used.
    #[error("snapshot {id} is damaged: {what}")]
    Damaged {
        /// Its id.
        id: String,
        /// What is wrong.
        what: Damage,
    },
    /// It was written by a later version of this program.
    #[error("snapshot {id} has format {format}, which this version does not know")]
    Format {
        /// Its id.
        id: String,
        /// Its format.
        format: u32,
    },
    /// It is whole, but the caller's part is not what the caller expects.
    #[error("snapshot {id} describes something else than expected")]
    SnapshotMetadata {
        /// Its id.
        id: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// It has more files, or a larger description, than a snapshot may have.
    #[error("the snapshot is too large to describe")]
    TooLarge,
    /// The disk is full.
    #[error("no space left for the snapshot")]
    NoSpace,
    /// A step failed.
    #[error("could not {what}")]
    Io {
        /// The step.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl SnapshotError {
    fn at(what: &'static str) -> impl Fn(io::Error) -> SnapshotError + Copy {
        move |source| match crate::is_no_space(&source) {
            true => SnapshotError::NoSpace,
            false => SnapshotError::Io { what, source },
        }
    }
}

/// What became of a snapshot that should be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It is gone now.
    Removed,
    /// It was not there.
    Absent,
}

impl SnapshotStore {
    /// Opens the store, making it at first use, and removes what was being made or deleted when the process ended.
    pub fn open(directory: &Path) -> Result<SnapshotStore, SnapshotError> {
        let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        make(directory).map_err(SnapshotError::at("make the directory of snapshots"))?;
        for name in [STAGING, TRASH] {
            let path = directory.join(name);
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(SnapshotError::at("remove unfinished snapshots")(error));
                }
                _ => {}
            }
            make(&path).map_err(SnapshotError::at("make the directory of snapshots"))?;
        }
        Ok(SnapshotStore { directory: directory.to_owned() })
    }

    /// Begins a snapshot. Nobody sees it until [`Staged::commit`]; dropping it removes it.
    pub fn stage(&self) -> Result<Staged, SnapshotError> {
        Staged::new(&self.directory)
    }

    /// The snapshot of this id, after checking its manifest and the lengths of its files.
    pub fn get<A: DeserializeOwned>(&self, id: &str) -> Result<Snapshot<A>, SnapshotError> {
        let directory = self.place(id)?;
        let manifest = manifest::read(&directory, id)?;
        for (name, record) in &manifest.files {
            let damaged = |what| SnapshotError::Damaged { id: id.to_owned(), what };
            let metadata = match std::fs::symlink_metadata(directory.join(name)) {
                Ok(metadata) if metadata.is_file() => metadata,
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(SnapshotError::at("look at a file of the snapshot")(error));
                }
                _ => return Err(damaged(Damage::Missing { name: name.clone() })),
            };
            if metadata.len() != record.length {
                let (name, expected, actual) = (name.clone(), record.length, metadata.len());
                return Err(damaged(Damage::Length { name, expected, actual }));
            }
        }
        Ok(Snapshot { directory, manifest })
    }

    /// The ids of all snapshots, in order, whether they can be used or not.
    pub fn list(&self) -> Result<Vec<String>, SnapshotError> {
        let failed = SnapshotError::at("list the snapshots");
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            match name.into_string() {
                Ok(name) if is_id(&name) => ids.push(name),
                _ => {}
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Removes a snapshot. Files of it that are open or mapped live on until they are closed.
    pub fn remove(&self, id: &str) -> Result<Removal, SnapshotError> {
        let place = self.place(id)?;
        let failed = SnapshotError::at("remove the snapshot");
        let trash = self.directory.join(TRASH).join(random_name().map_err(failed)?);
        match std::fs::rename(&place, &trash) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Removal::Absent),
            renamed => renamed.map_err(failed)?,
        }
        kill_point::reached();
        std::fs::remove_dir_all(&trash).map_err(failed)?;
        Ok(Removal::Removed)
    }

    /// Makes a snapshot that was committed [`Durability::Unsynced`] survive a crash of the machine.
    pub fn sync(&self, id: &str) -> Result<(), SnapshotError> {
        let mut snapshot = self.get::<serde_json::Value>(id)?;
        if snapshot.manifest.persistence == Persistence::Synced {
            return Ok(());
        }
        let failed = SnapshotError::at("sync the snapshot");
        for name in snapshot.manifest.files.keys() {
            File::open(snapshot.directory.join(name)).and_then(|file| file.sync_all()).map_err(failed)?;
        }
        kill_point::reached();
        snapshot.manifest.persistence = Persistence::Synced;
        let bytes = snapshot.manifest.encode()?;
        write_file(&snapshot.directory.join(manifest::FILE), &bytes, Durability::Synced).map_err(failed)?;
        sync_directory(&self.directory).map_err(failed)
    }

    fn place(&self, id: &str) -> Result<PathBuf, SnapshotError> {
        if is_id(id) { Ok(self.directory.join(id)) } else { Err(SnapshotError::InvalidId) }
    }
}

impl<A> Snapshot<A> {
    /// Where a file of the snapshot is. It must not be written.
    pub fn path(&self, name: &str) -> Result<PathBuf, SnapshotError> {
        match self.manifest.files.contains_key(name) {
            true => Ok(self.directory.join(name)),
            false => Err(SnapshotError::InvalidName { name: name.to_owned() }),
        }
    }

    /// Reads a file that has a digest, such as the devices or the sums of another, and checks it.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, SnapshotError> {
        let invalid = || SnapshotError::InvalidName { name: name.to_owned() };
        let record = self.manifest.files.get(name).ok_or_else(invalid)?;
        let expected = record.digest.ok_or_else(invalid)?;
        if record.length > READ_BYTES_MAX {
            return Err(SnapshotError::TooLarge);
        }
        let failed = SnapshotError::at("read a file of the snapshot");
        let mut bytes = Vec::new();
        let file = File::open(self.directory.join(name)).map_err(failed)?;
        file.take(record.length + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 == record.length && Digest::of(&bytes) == expected {
            return Ok(bytes);
        }
        let what = Damage::Content { name: name.to_owned() };
        Err(SnapshotError::Damaged { id: self.manifest.id.clone(), what })
    }
}

impl<A: Serialize> Snapshot<A> {
    fn new(directory: PathBuf, manifest: Manifest<A>) -> Snapshot<A> {
        Snapshot { directory, manifest }
    }
}

fn is_id(id: &str) -> bool {
    (1..=40).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
