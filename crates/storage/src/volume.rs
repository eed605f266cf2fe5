//! Volumes on disk: ext4 file systems that outlive the sandboxes they are attached to.
//!
//! ```text
//! volumes/<id>/disk             its bytes; the file's length is its size, holes take no space
//!        /<id>/volume.json      what else there is to know
//!        /.staging/<random>/    being made; gone at the next start
//!        /.trash/<random>/      being deleted; gone at the next start
//! ```
//!
//! Written aside and renamed into place, like snapshots. Who may use a volume when is not decided here.

mod format;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::durable::{Durability, sync_directory, write_file};
use crate::kill_point;
use crate::program::ProgramError;
use crate::random::random_name;

const DISK: &str = "disk";
const ABOUT: &str = "volume.json";
const STAGING: &str = ".staging";
const TRASH: &str = ".trash";
/// A description is less than a hundred bytes; a larger file is not one.
const ABOUT_BYTES_MAX: u64 = 4096;
const FORMAT: u32 = 1;
const ID_LENGTH_MAX: usize = 40;

/// Why a volume could not be had.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The id is not one to forty of `a`–`z` and `0`–`9`.
    #[error("this is not the id of a volume")]
    InvalidId,
    /// There is a volume of that id.
    #[error("volume {id} exists already")]
    AlreadyExists {
        /// Its id.
        id: String,
    },
    /// There is none of that id.
    #[error("there is no volume {id}")]
    NotFound {
        /// The id.
        id: String,
    },
    /// Its description cannot be read; its bytes are left alone.
    #[error("the description of volume {id} cannot be read")]
    Damaged {
        /// Its id.
        id: String,
    },
    /// It has this size or more already.
    #[error("volume {id} has {bytes} bytes and volumes only grow")]
    WouldShrink {
        /// Its id.
        id: String,
        /// Its size.
        bytes: u64,
    },
    /// The file system could not be made.
    #[error("could not make the volume's file system")]
    Format(#[source] ProgramError),
    /// The disk is full.
    #[error("no space left for the volume")]
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

impl VolumeError {
    fn at(what: &'static str) -> impl Fn(io::Error) -> VolumeError + Copy {
        move |source| match crate::is_no_space(&source) {
            true => VolumeError::NoSpace,
            false => VolumeError::Io { what, source },
        }
    }
}

/// What is written down about a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SnapshotMetadata {
    format: u32,
    writers: u64,
    created_unix_ms: u64,
}

/// A volume as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its size.
    pub bytes: u64,
    /// What of it takes space.
    pub used_bytes: u64,
    /// How often it was given away for writing. While this has not changed, neither has what is in it.
    pub writers: u64,
    /// Milliseconds of Unix time when it was made.
    pub created_unix_ms: u64,
}

/// The volumes of one directory. Only the owner of the data directory may open it, and once: opening removes what unfinished
/// work left.
#[derive(Debug)]
pub struct VolumeStore {
    directory: PathBuf,
}

impl VolumeStore {
    /// Opens the store, making it at first use, and removes what was being made or deleted when the process ended.
    pub fn open(directory: &Path) -> Result<VolumeStore, VolumeError> {
        let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        make(directory).map_err(VolumeError::at("make the directory of volumes"))?;
        for name in [STAGING, TRASH] {
            let path = directory.join(name);
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(VolumeError::at("remove unfinished volumes")(error));
                }
                _ => {}
            }
            make(&path).map_err(VolumeError::at("make the directory of volumes"))?;
        }
        Ok(VolumeStore { directory: directory.to_owned() })
    }

    /// Makes a volume with an empty ext4 file system that is labelled after `name`. It survives a power cut from here on; after
    /// `Err` nothing is left. Blocks.
    pub fn create(
        &self,
        id: &str,
        name: &str,
        bytes: u64,
        created_unix_ms: u64,
    ) -> Result<Volume, VolumeError> {
        let place = self.place(id)?;
        if place.exists() {
            return Err(VolumeError::AlreadyExists { id: id.to_owned() });
        }
        let io = VolumeError::at("make the volume");
        let staged = Staged { path: self.directory.join(STAGING).join(random_name().map_err(io)?) };
        DirBuilder::new().mode(0o700).create(&staged.path).map_err(io)?;
        kill_point::reached();
        let disk = staged.path.join(DISK);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&disk).map_err(io)?;
        file.set_len(bytes).map_err(io)?;
        format::format(&disk, name).map_err(VolumeError::Format)?;
        kill_point::reached();
        file.sync_all().map_err(io)?;
        write_about(&staged.path, &SnapshotMetadata { format: FORMAT, writers: 0, created_unix_ms })
            .map_err(io)?;
        kill_point::reached();
        match fs::rename(&staged.path, &place) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                return Err(VolumeError::AlreadyExists { id: id.to_owned() });
            }
            renamed => renamed.map_err(io)?,
        }
        std::mem::forget(staged);
        kill_point::reached();
        sync_directory(&self.directory).map_err(io)?;
        self.get(id)
    }

    /// Ids of all volumes, readable or not.
    pub fn list(&self) -> Result<Vec<String>, VolumeError> {
        let io = VolumeError::at("list volumes");
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            ids.extend(name.to_str().filter(|name| is_id(name)).map(str::to_owned));
        }
        ids.sort();
        Ok(ids)
    }

    /// The volume of this id.
    pub fn get(&self, id: &str) -> Result<Volume, VolumeError> {
        let place = self.place(id)?;
        let metadata = match fs::metadata(place.join(DISK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(VolumeError::NotFound { id: id.to_owned() });
            }
            metadata => metadata.map_err(VolumeError::at("look at the volume"))?,
        };
        let about = read_about(&place).ok_or_else(|| VolumeError::Damaged { id: id.to_owned() })?;
        Ok(Volume {
            bytes: metadata.len(),
            used_bytes: metadata.blocks() * 512,
            writers: about.writers,
            created_unix_ms: about.created_unix_ms,
        })
    }

    /// Makes a volume larger. The file system in it is its user's to grow. Blocks.
    pub fn grow(&self, id: &str, bytes: u64) -> Result<Volume, VolumeError> {
        let volume = self.get(id)?;
        if bytes < volume.bytes {
            return Err(VolumeError::WouldShrink { id: id.to_owned(), bytes: volume.bytes });
        }
        let io = VolumeError::at("grow the volume");
        let file = self.open_writable(id)?;
        file.set_len(bytes).map_err(io)?;
        file.sync_all().map_err(io)?;
        self.get(id)
    }

    /// Notes durably that somebody may write the volume from now on. Blocks.
    pub fn note_writer(&self, id: &str) -> Result<(), VolumeError> {
        let place = self.place(id)?;
        let mut about = read_about(&place).ok_or_else(|| VolumeError::Damaged { id: id.to_owned() })?;
        about.writers += 1;
        write_about(&place, &about).map_err(VolumeError::at("note the volume's writer"))
    }

    /// The bytes of a volume, for reading.
    pub fn open_readable(&self, id: &str) -> Result<File, VolumeError> {
        self.open_disk(id, File::options().read(true))
    }

    /// The bytes of a volume, for reading and writing.
    pub fn open_writable(&self, id: &str) -> Result<File, VolumeError> {
        self.open_disk(id, File::options().read(true).write(true))
    }

    fn open_disk(&self, id: &str, options: &fs::OpenOptions) -> Result<File, VolumeError> {
        match options.open(self.place(id)?.join(DISK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(VolumeError::NotFound { id: id.to_owned() })
            }
            opened => opened.map_err(VolumeError::at("open the volume")),
        }
    }

    /// Removes a volume and everything in it. Blocks.
    pub fn delete(&self, id: &str) -> Result<(), VolumeError> {
        let io = VolumeError::at("delete the volume");
        let place = self.place(id)?;
        let trash = self.directory.join(TRASH).join(random_name().map_err(io)?);
        match fs::rename(&place, &trash) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(VolumeError::NotFound { id: id.to_owned() });
            }
            renamed => renamed.map_err(io)?,
        }
        kill_point::reached();
        sync_directory(&self.directory).map_err(io)?;
        fs::remove_dir_all(trash).map_err(io)
    }

    fn place(&self, id: &str) -> Result<PathBuf, VolumeError> {
        if is_id(id) { Ok(self.directory.join(id)) } else { Err(VolumeError::InvalidId) }
    }
}

fn is_id(text: &str) -> bool {
    (1..=ID_LENGTH_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn write_about(place: &Path, about: &SnapshotMetadata) -> io::Result<()> {
    write_file(&place.join(ABOUT), &serde_json::to_vec(about)?, Durability::Synced)
}

fn read_about(place: &Path) -> Option<SnapshotMetadata> {
    let path = place.join(ABOUT);
    fs::metadata(&path).ok().filter(|metadata| metadata.len() <= ABOUT_BYTES_MAX)?;
    let about: SnapshotMetadata = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (about.format == FORMAT).then_some(about)
}

/// A volume being made; removed unless it was renamed.
struct Staged {
    path: PathBuf,
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests;
