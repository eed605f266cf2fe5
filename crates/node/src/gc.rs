//! Finds what instances that are over left on this host, and removes what has neither a server nor a data directory any more.
//!
//! What belongs to a data directory that is there is never removed: its next start, or `uninstall`, does that.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use network::{InstanceTag, Neighbours};
use serde::Serialize;
use storage::{DataDir, LockError};

use crate::instance::{self, Note};
use crate::sweep;
use crate::uninstall::{Removal, UninstallError, remove_instance};

/// What is done with an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A server uses it: it is left alone.
    InUse,
    /// Its data directory is there: left alone, and named.
    Kept,
    /// Machines of it run, and which data directory they belong to is not known here: left alone.
    Unknown,
    /// Neither server nor data directory: removed.
    Remove,
}

/// An instance that has something on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remains {
    /// Its tag.
    pub tag: InstanceTag,
    /// What is done with it.
    pub verdict: Verdict,
    /// Its data directory, there or gone, where that is known.
    pub data_dir: Option<PathBuf>,
    /// Its machine processes.
    pub machines: usize,
    /// Its network namespaces.
    pub networks: usize,
    /// Whether it has a firewall table.
    pub table: bool,
    /// Its range.
    pub addresses: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Instances.
    pub instances: Vec<Remains>,
    /// Loop devices and mounts of pool images that were deleted, by the data directories that had them.
    pub pools: Vec<PathBuf>,
}

impl Found {
    /// Whether there is something to remove.
    pub fn has_garbage(&self) -> bool {
        !self.pools.is_empty() || self.instances.iter().any(|found| found.verdict == Verdict::Remove)
    }
}

fn host(action: &'static str) -> impl Fn(std::io::Error) -> UninstallError {
    move |source| UninstallError::Host { action, source }
}

/// Looks through the host. Removes nothing.
pub async fn find() -> Result<Found, UninstallError> {
    let neighbours = Neighbours::look().await?;
    let notes = Note::all().map_err(host("read what instances told of themselves"))?;
    let mut machines = BTreeMap::<InstanceTag, usize>::new();
    for tag in sweep::machines().map_err(host("look for machines"))? {
        *machines.entry(tag).or_default() += 1;
    }
    let mut tags: Vec<InstanceTag> =
        neighbours.instances().iter().map(|instance| instance.tag.clone()).collect();
    tags.extend(notes.iter().map(|note| note.tag.clone()));
    tags.extend(machines.keys().cloned());
    tags.sort();
    tags.dedup();
    let mut found = Found::default();
    for tag in tags {
        let instance = neighbours.instances().iter().find(|instance| instance.tag == tag);
        let machines = machines.remove(&tag).unwrap_or_default();
        let data_dir = notes.iter().find(|note| note.tag == tag).map(|note| note.data_dir.clone());
        let facts = Facts {
            is_open: instance.is_some_and(|instance| instance.is_open),
            is_locked: data_dir.as_deref().is_some_and(is_locked),
            directory: match &data_dir {
                None => Directory::Unknown,
                // Another instance may have the place now.
                Some(path) => match instance::known_tag(path) {
                    Some(there) if there != tag => Directory::Gone,
                    None if !instance::is_data_directory(path) => Directory::Gone,
                    _ => Directory::There,
                },
            },
            machines,
        };
        found.instances.push(Remains {
            verdict: judge(facts),
            data_dir,
            machines,
            networks: instance.map_or(0, |instance| instance.namespaces),
            table: instance.is_some_and(|instance| instance.has_table),
            addresses: instance.and_then(|instance| instance.pool).map(|pool| pool.to_string()),
            tag,
        });
    }
    let orphans = storage::pool::orphans().map_err(host("look at loop devices"))?;
    let is_over = |path: &PathBuf| {
        let of = |found: &&Remains| found.data_dir.as_ref() == Some(path);
        let is_removed = |found: &Remains| found.verdict == Verdict::Remove;
        // One that tells nobody where its data directory is may have this one.
        let may_be_used = found.instances.iter().any(|found| found.data_dir.is_none() && !is_removed(found));
        match found.instances.iter().find(of) {
            _ if is_locked(path) => false,
            Some(owner) => is_removed(owner),
            None => !may_be_used,
        }
    };
    found.pools = orphans.into_iter().map(|orphan| orphan.data_dir).filter(is_over).collect();
    found.pools.sort();
    found.pools.dedup();
    Ok(found)
}

/// What is known of an instance.
#[derive(Debug, Clone, Copy)]
struct Facts {
    is_open: bool,
    is_locked: bool,
    directory: Directory,
    machines: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directory {
    There,
    Gone,
    Unknown,
}

const fn judge(facts: Facts) -> Verdict {
    match facts {
        Facts { is_open: true, .. } | Facts { is_locked: true, .. } => Verdict::InUse,
        Facts { directory: Directory::There, .. } => Verdict::Kept,
        Facts { directory: Directory::Gone, .. } => Verdict::Remove,
        // Namespaces and tables alone hold nothing: a start makes them anew.
        Facts { directory: Directory::Unknown, machines: 0, .. } => Verdict::Remove,
        Facts { directory: Directory::Unknown, .. } => Verdict::Unknown,
    }
}

/// Whether a process works in a data directory. Makes nothing.
fn is_locked(path: &std::path::Path) -> bool {
    path.join("lock").exists() && matches!(DataDir::lock(path), Err(LockError::DataDirInUse { .. }))
}

/// Removes what [`find`] found to be over. What became of each is judged anew just before.
pub async fn remove(found: &Found) -> Result<Removal, UninstallError> {
    let mut removal = Removal::default();
    for remains in found.instances.iter().filter(|found| found.verdict == Verdict::Remove) {
        let now = find().await?;
        if now.instances.iter().any(|now| now.tag == remains.tag && now.verdict == Verdict::Remove) {
            remove_instance(&remains.tag, &mut removal).await?;
            instance::forget(&remains.tag).map_err(host("forget the instance"))?;
        }
    }
    for path in &found.pools {
        let released = tokio::task::block_in_place(|| storage::pool::release(path));
        let released = released.map_err(host("unmount a pool"))?;
        removal.mounts += released.mounts;
        removal.loop_devices += released.loop_devices;
        // Empty ones only: the place where the pool was mounted, and what held it.
        let emptied = fs::remove_dir(path.join("pool")).and_then(|()| fs::remove_dir(path));
        removal.directories.extend(emptied.is_ok().then(|| path.clone()));
    }
    Ok(removal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_neither_server_nor_directory_goes() {
        use Directory::*;
        let check = |is_open, is_locked, directory, machines, expected| {
            assert_eq!(judge(Facts { is_open, is_locked, directory, machines }), expected);
        };
        for directory in [There, Gone, Unknown] {
            for machines in [0, 3] {
                check(true, false, directory, machines, Verdict::InUse);
                check(false, true, directory, machines, Verdict::InUse);
            }
        }
        for machines in [0, 3] {
            check(false, false, There, machines, Verdict::Kept);
            check(false, false, Gone, machines, Verdict::Remove);
        }
        check(false, false, Unknown, 0, Verdict::Remove);
        check(false, false, Unknown, 1, Verdict::Unknown);
    }
}
