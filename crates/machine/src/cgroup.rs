//! Groups of the host's kernel (cgroup v2) that hold each machine process to its share of processor, memory and processes.
//!
//! ```text
//! <where cgroup2 is mounted>/pandastack/<instance>/<machine>
//! ```
//!
//! A process begins in its group and the group goes with it. What is limited is the machine process; what a guest does with the
//! share it has is the guest's own matter.

mod group;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use domain::MachineShape;

use crate::engine::{Place, StartError};

pub(crate) use group::Group;
use group::Share;

/// The directory of all our groups.
const FOLDER: &str = "pandastack";
/// What limits need of the kernel.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// Where the kernel lists mounts.
const MOUNTS: &str = "/proc/self/mounts";

/// Whether machine processes are limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CgroupSetting {
    /// As far as this host can.
    #[default]
    Auto,
    /// In every way, or no machine runs.
    Required,
    /// Not at all.
    Off,
}

/// Why machine processes cannot be limited.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// There is nowhere to make groups.
    #[error("cgroup v2 is not mounted")]
    NotMounted,
    /// The kernel offers only a part.
    #[error("cgroup v2 has no {missing} controller for groups of ours in {}", hierarchy.display())]
    Missing {
        /// What is not there.
        missing: String,
        /// Where it was looked for.
        hierarchy: PathBuf,
    },
    /// A group could not be made.
    #[error("could not {action}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Where groups of machines are made, and what they can limit.
#[derive(Debug, Clone)]
pub struct Cgroups {
    folder: PathBuf,
    controllers: Vec<&'static str>,
}

impl Cgroups {
    /// Finds out what this host can limit, and says what it cannot. Groups that limit nothing still count what each machine uses.
    pub fn open(setting: CgroupSetting) -> Result<Option<Self>, CgroupError> {
        if setting == CgroupSetting::Off {
            return Ok(None);
        }
        let opened = hierarchy().ok_or(CgroupError::NotMounted).and_then(|mount| Self::open_in(&mount));
        let (groups, lack) = match opened {
            Ok((groups, None)) => return Ok(Some(groups)),
            Ok((groups, Some(lack))) => (Some(groups), lack),
            Err(error) => (None, error),
        };
        if setting == CgroupSetting::Required {
            return Err(lack);
        }
        tracing::info!("machine processes are not limited in every way: {lack}");
        Ok(groups)
    }

    /// The same in one hierarchy; with what is lacking.
    fn open_in(mount: &Path) -> Result<(Self, Option<CgroupError>), CgroupError> {
        let host = |action| move |source| CgroupError::Host { action, source };
        let folder = mount.join(FOLDER);
        for controller in CONTROLLERS {
            // What cannot be switched on is missed below.
            drop(switch_on(mount, controller));
        }
        make_directory(&folder).map_err(host("make a group for machines"))?;
        let offered =
            words(&folder.join("cgroup.controllers")).map_err(host("read what groups can limit"))?;
        let (controllers, missing): (Vec<_>, Vec<_>) =
            CONTROLLERS.into_iter().partition(|wanted| offered.iter().any(|name| name == wanted));
        for controller in &controllers {
            switch_on(&folder, controller).map_err(host("limit groups of machines"))?;
        }
        let lack = (!missing.is_empty())
            .then(|| CgroupError::Missing { missing: missing.join(", "), hierarchy: mount.to_owned() });
        Ok((Self { folder, controllers }, lack))
    }

    /// Makes the group of a machine, which is empty.
    fn make(&self, instance: &str, machine: &str, share: Share) -> io::Result<Group> {
        /// Whoever clears up may remove the directory between two of our steps.
        const TRIES: usize = 10;
        let parent = self.folder.join(instance);
        let mut tries = 0;
        let path = loop {
            tries += 1;
            let made = self.make_parent(&parent).and_then(|()| make_anew(&parent.join(machine)));
            match made {
                Ok(path) => break path,
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => {}
                Err(error) => return Err(error),
            }
        };
        let group = Group::open(path)?;
        match group.limit(share, &self.controllers) {
            Ok(()) => Ok(group),
            Err(error) => {
                group.remove_blocking();
                Err(error)
            }
        }
    }

    fn make_parent(&self, parent: &Path) -> io::Result<()> {
        if make_directory(parent)? == Made::Anew {
            for controller in &self.controllers {
                switch_on(parent, controller)?;
            }
        }
        Ok(())
    }
}

/// The group that a machine's process begins in, where there are groups. `own_bytes` is what the process takes besides its guest.
pub(crate) fn make(
    cgroups: Option<&Cgroups>,
    place: &Place,
    shape: MachineShape,
    own_bytes: u64,
) -> Result<Option<Group>, StartError> {
    let Some(cgroups) = cgroups else { return Ok(None) };
    let share = Share { vcpus: shape.vcpus().into(), memory_bytes: shape.memory_bytes() + own_bytes };
    let made = cgroups.make(&place.instance, &place.name, share);
    made.map(Some)
        .map_err(|source| StartError::Host { action: "hold the machine process to its share", source })
}

/// Removes groups of an instance in which nothing runs.
pub fn clear(instance: &str) -> io::Result<()> {
    for mount in hierarchies() {
        clear_in(&mount.join(FOLDER).join(instance))?;
    }
    Ok(())
}

fn clear_in(parent: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    remove(parent).map(drop)
}

/// The group that a machine has, whatever is set now.
pub(crate) fn find(instance: &str, machine: &str) -> Option<Group> {
    let path = |mount: PathBuf| mount.join(FOLDER).join(instance).join(machine);
    hierarchies().into_iter().map(path).find_map(|path| Group::open(path).ok())
}

/// Where cgroup2 is mounted: one that offers what we need, if there are several.
fn hierarchy() -> Option<PathBuf> {
    let offers = |mount: &PathBuf| {
        let offered = words(&mount.join("cgroup.controllers")).unwrap_or_default();
        offered.iter().filter(|name| CONTROLLERS.contains(&name.as_str())).count()
    };
    // Of equals the first.
    hierarchies().into_iter().rev().max_by_key(offers)
}

fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string(MOUNTS).unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields
        .filter_map(|fields| match fields[..] {
            [_, place, "cgroup2", ..] => Some(PathBuf::from(place)),
            _ => None,
        })
        .collect()
}

fn words(path: &Path) -> io::Result<Vec<String>> {
    Ok(fs::read_to_string(path)?.split_whitespace().map(str::to_owned).collect())
}

/// Lets groups in a directory limit something.
fn switch_on(directory: &Path, controller: &str) -> io::Result<()> {
    let control = directory.join("cgroup.subtree_control");
    if words(&control)?.iter().any(|name| name == controller) {
        return Ok(());
    }
    fs::write(control, format!("+{controller}"))
}

#[derive(Debug, PartialEq, Eq)]
enum Made {
    Anew,
    Before,
}

fn make_directory(path: &Path) -> io::Result<Made> {
    match fs::create_dir(path) {
        Ok(()) => Ok(Made::Anew),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Made::Before),
        Err(error) => Err(error),
    }
}

/// A new group, in place of one that could not be removed when its process ended.
fn make_anew(path: &Path) -> io::Result<PathBuf> {
    if make_directory(path)? == Made::Before {
        if remove(path)? == Removed::InUse {
            return Err(io::Error::other("there is a process in the group already"));
        }
        fs::create_dir(path)?;
    }
    Ok(path.to_owned())
}

#[derive(Debug, PartialEq, Eq)]
enum Removed {
    Gone,
    InUse,
}

fn remove(path: &Path) -> io::Result<Removed> {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound, ResourceBusy};
    match fs::remove_dir(path) {
        Ok(()) => Ok(Removed::Gone),
        Err(error) if error.kind() == NotFound => Ok(Removed::Gone),
        Err(error) if matches!(error.kind(), ResourceBusy | DirectoryNotEmpty) => Ok(Removed::InUse),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
