//! Which instance a data directory is: its tag, the range it had last, and where others of this host find that out.
//!
//! ```text
//! <data directory>/instance             the tag by which everything of it on the host is named
//!                 /addresses            the range its guests had last
//!                 /restoring            while a restore fills it: not to be used
//! /run/pandastack/<tag>.json            which data directory a tag belongs to; gone after a reboot, as what it names is
//!                /lock                  held while an instance looks for a range and takes it
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use network::{AddressPool, InstanceTag};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use storage::{Durability, write_file};

use crate::identity::random;
use crate::paths::make_directory;

const TAG: &str = "instance";
const ADDRESSES: &str = "addresses";
pub(crate) const RESTORING: &str = "restoring";
const NOTES: &str = "/run/pandastack";
const LOCK: &str = "lock";
/// A note is a few hundred bytes; a larger file is not one.
const NOTE_BYTES_MAX: u64 = 64 * 1024;

/// The tag of a data directory that has one.
pub fn known_tag(data_dir: &Path) -> Option<InstanceTag> {
    let text = fs::read_to_string(data_dir.join(TAG)).ok()?;
    InstanceTag::parse(text.trim()).ok()
}

/// A name for everything this data directory owns on the host; made at first use.
pub(crate) fn tag(data_dir: &Path) -> io::Result<InstanceTag> {
    if let Some(tag) = known_tag(data_dir) {
        return Ok(tag);
    }
    let bytes: [u8; 3] = random()?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    write_file(&data_dir.join(TAG), text.as_bytes(), Durability::Synced)?;
    InstanceTag::parse(&text).map_err(io::Error::other)
}

/// The range that guests of this data directory had last.
pub(crate) fn last_addresses(data_dir: &Path) -> Option<AddressPool> {
    fs::read_to_string(data_dir.join(ADDRESSES)).ok()?.trim().parse().ok()
}

/// Writes the range down, for the next start.
pub(crate) fn keep_addresses(data_dir: &Path, pool: AddressPool) -> io::Result<()> {
    if last_addresses(data_dir) == Some(pool) {
        return Ok(());
    }
    write_file(&data_dir.join(ADDRESSES), format!("{pool}\n").as_bytes(), Durability::Synced)
}

/// Whether there is an instance in a data directory, whatever became of parts of it.
pub fn is_data_directory(path: &Path) -> bool {
    [TAG, "pool.img", "control.db", RESTORING].iter().any(|name| path.join(name).exists())
}

/// What others of this host can know of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Its tag.
    pub tag: InstanceTag,
    /// Its data directory, without symlinks.
    pub data_dir: PathBuf,
    /// The network and the mounts it sees: those of another container are not ours to judge.
    world: [u64; 2],
}

impl Note {
    /// The note of an instance.
    pub(crate) fn new(tag: InstanceTag, data_dir: &Path) -> io::Result<Self> {
        Ok(Self { tag, data_dir: data_dir.canonicalize()?, world: world()? })
    }

    /// Writes it where others look.
    pub(crate) fn write(&self) -> io::Result<()> {
        make_directory(Path::new(NOTES))?;
        write_file(&path(&self.tag), &serde_json::to_vec(self)?, Durability::Unsynced)
    }

    /// Every note that was written in this network and among these mounts.
    pub fn all() -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(NOTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let world = world()?;
        let mut notes = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if fs::metadata(&path).is_ok_and(|about| about.is_file() && about.len() <= NOTE_BYTES_MAX) {
                let note = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
                notes.extend(note.filter(|note| note.world == world));
            }
        }
        notes.sort_by(|a, b| a.tag.as_str().cmp(b.tag.as_str()));
        Ok(notes)
    }

    /// The note of a tag.
    pub fn of(tag: &InstanceTag) -> Option<Self> {
        Self::all().ok()?.into_iter().find(|note| note.tag == *tag)
    }
}

/// Removes the note of a tag. Absent is fine.
pub(crate) fn forget(tag: &InstanceTag) -> io::Result<()> {
    match fs::remove_file(path(tag)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn path(tag: &InstanceTag) -> PathBuf {
    Path::new(NOTES).join(format!("{tag}.json"))
}

/// Names the network and the mounts that this process sees.
fn world() -> io::Result<[u64; 2]> {
    let of = |name| Ok::<_, io::Error>(fs::metadata(format!("/proc/self/ns/{name}"))?.ino());
    Ok([of("net")?, of("mnt")?])
}

/// Held while an instance looks for a range and takes it, so that two that start together do not take the same. Blocks.
pub(crate) fn turn() -> io::Result<File> {
    make_directory(Path::new(NOTES))?;
    let path = Path::new(NOTES).join(LOCK);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_and_range_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!((known_tag(directory.path()), last_addresses(directory.path())), (None, None));
        assert!(!is_data_directory(directory.path()));
        let made = tag(directory.path()).unwrap();
        assert_eq!((tag(directory.path()).unwrap(), known_tag(directory.path())), (made.clone(), Some(made)));
        assert!(is_data_directory(directory.path()));
        keep_addresses(directory.path(), AddressPool::DEFAULT).unwrap();
        assert_eq!(last_addresses(directory.path()), Some(AddressPool::DEFAULT));
        fs::write(directory.path().join(ADDRESSES), "nonsense").unwrap();
        assert_eq!(last_addresses(directory.path()), None);
    }
}
