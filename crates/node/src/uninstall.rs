//! Removes a data directory with everything that it owns on the host, whatever became of parts of it.
//!
//! Everything is found by the directory's own tag, and processes are ended by number and start time: other instances of this host are
//! not touched. In the directory only what a data directory has is removed; what an operator put there stays.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use network::InstanceTag;
use serde::Serialize;
use storage::{DataDir, LockError};

use crate::instance::{self, Note, RESTORING};
use crate::machine_resources::Names;
use crate::paths::remove_directory;
use crate::sweep;

/// What a data directory has, by name or, where it ends with `*`, by the beginning of names.
const OURS: [&str; 15] = [
    "instance",
    "addresses",
    RESTORING,
    "lock",
    "pool",
    "pool.img*",
    "control.db*",
    "jails",
    "bin",
    "host-probe.json",
    "admin.sock",
    // Key and log of the server that scripts/demo leaves running.
    "demo",
    ".probe-*",
    ".instance.*",
    ".addresses.*",
];

/// What becomes of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// They are removed.
    Remove,
    /// They stay: a later start goes on with them, except for machines that ran.
    Keep,
}

/// Why it was not removed, or not whole.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// A server or another command works in it.
    #[error(transparent)]
    InUse(LockError),
    /// It is not a data directory.
    #[error("{} is not a data directory of PandaStack", path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// Its networks would not go.
    #[error("could not remove its networks")]
    Network(#[from] network::NeighboursError),
    /// A step failed.
    #[error("could not {action}")]
    Host {
        /// The step.
        action: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// Tags of the instances that were removed.
    pub instances: Vec<String>,
    /// Machine processes that were ended.
    pub machines: usize,
    /// Network namespaces with their interfaces.
    pub networks: usize,
    /// Firewall tables.
    pub tables: usize,
    /// Mounts.
    pub mounts: usize,
    /// Loop devices.
    pub loop_devices: usize,
    /// Directories with their files.
    pub directories: Vec<PathBuf>,
    /// What lies in the directory and is not PandaStack's; it was left there.
    pub left: Vec<PathBuf>,
}

impl Removal {
    /// Whether there was nothing to remove.
    pub fn is_empty(&self) -> bool {
        *self == Self { instances: self.instances.clone(), left: self.left.clone(), ..Self::default() }
    }
}

fn host(action: &'static str) -> impl Fn(io::Error) -> UninstallError {
    move |source| UninstallError::Host { action, source }
}

/// Removes a data directory and all that it owns. Refused while a process works in it. Safe to repeat.
pub async fn uninstall(data_dir: &Path, files: Files) -> Result<Removal, UninstallError> {
    let data_dir = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    let tags = tags(&data_dir).map_err(host("find out what belongs to the data directory"))?;
    let exists = data_dir.exists();
    if exists && tags.is_empty() && !looks_ours(&data_dir) {
        let is_empty = fs::read_dir(&data_dir).is_ok_and(|mut entries| entries.next().is_none());
        return if is_empty {
            Ok(Removal::default())
        } else {
            Err(UninstallError::NotOurs { path: data_dir })
        };
    }
    let lock = match exists {
        true => Some(DataDir::lock(&data_dir).map_err(UninstallError::InUse)?),
        false => None,
    };
    let mut removal = Removal::default();
    for tag in &tags {
        remove_instance(tag, &mut removal).await?;
    }
    let released = tokio::task::block_in_place(|| storage::pool::release(&data_dir));
    let released = released.map_err(host("unmount the pool"))?;
    removal.mounts += released.mounts;
    removal.loop_devices += released.loop_devices;
    if files == Files::Remove && exists {
        let left = tokio::task::block_in_place(|| remove_files(&data_dir));
        removal.left = left.map_err(host("remove the data directory"))?;
        removal.directories.push(data_dir);
    }
    for tag in &tags {
        instance::forget(tag).map_err(host("forget the instance"))?;
    }
    drop(lock);
    Ok(removal)
}

/// Ends the machines of an instance and removes what it has on the host besides files.
pub(crate) async fn remove_instance(tag: &InstanceTag, removal: &mut Removal) -> Result<(), UninstallError> {
    let prefix = Names::new(tag.as_str()).prefix();
    removal.machines += sweep::processes_named(&prefix).map_err(host("look for machines"))?.len();
    sweep::end_unclaimed(&prefix, &[]).await.map_err(host("end its machines"))?;
    machine::cgroup::clear(tag.as_str()).map_err(host("remove groups of its machines"))?;
    let removed = network::remove_remains(tag).await?;
    removal.networks += removed.networks;
    removal.tables += usize::from(removed.table);
    removal.instances.push(tag.to_string());
    Ok(())
}

/// The tag in the directory, and those of notes that name the directory.
fn tags(data_dir: &Path) -> io::Result<BTreeSet<InstanceTag>> {
    let mut tags = BTreeSet::new();
    tags.extend(instance::known_tag(data_dir));
    tags.extend(Note::all()?.into_iter().filter(|note| note.data_dir == data_dir).map(|note| note.tag));
    Ok(tags)
}

fn is_ours(name: &str) -> bool {
    OURS.iter()
        .any(|ours| ours.strip_suffix('*').map_or(name == *ours, |beginning| name.starts_with(beginning)))
}

/// Whether a directory without a tag is what is left of a data directory: all that is in it is ours.
fn looks_ours(path: &Path) -> bool {
    let names: Vec<_> =
        fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    instance::is_data_directory(path)
        || (!names.is_empty() && names.iter().all(|name| is_ours(&name.to_string_lossy())))
}

/// Removes what is ours, and the directory if nothing else is in it; what else is in it.
fn remove_files(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(data_dir)? {
        let entry = entry?;
        let path = entry.path();
        match entry.file_type()?.is_dir() {
            _ if !is_ours(&entry.file_name().to_string_lossy()) => left.push(path),
            true => remove_directory(&path)?,
            false => fs::remove_file(&path)?,
        }
    }
    if left.is_empty() {
        fs::remove_dir(data_dir)?;
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_goes() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("data");
        fs::create_dir_all(directory.join("pool/sandboxes/one")).unwrap();
        for name in ["instance", "lock", "control.db", "control.db-wal", "pool.img.x.new"] {
            fs::write(directory.join(name), "").unwrap();
        }
        fs::write(directory.join("notes.txt"), "the operator's").unwrap();
        assert_eq!(remove_files(&directory).unwrap(), [directory.join("notes.txt")]);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_file(directory.join("notes.txt")).unwrap();
        fs::write(directory.join("lock"), "").unwrap();
        assert!(looks_ours(&directory));
        assert_eq!(remove_files(&directory).unwrap(), Vec::<PathBuf>::new());
        assert!(!directory.exists());
    }

    #[test]
    fn a_directory_of_others_is_not_ours() {
        let root = tempfile::tempdir().unwrap();
        assert!(!looks_ours(root.path()));
        fs::write(root.path().join("lock"), "").unwrap();
        assert!(looks_ours(root.path()));
        fs::write(root.path().join("thesis.tex"), "").unwrap();
        assert!(!looks_ours(root.path()));
    }
}
