//! Counts what a data directory owns on the host.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use machine::ProcessIdentity;

/// The tag by which everything of a data directory is named, once it has one.
pub fn tag(data_dir: &Path) -> Option<String> {
    let text = fs::read_to_string(data_dir.join("instance")).ok()?;
    let tag = text.trim();
    (!tag.is_empty()).then(|| tag.to_owned())
}

/// The options after which QEMU and Firecracker have a machine's name.
const NAME_OPTIONS: [&[u8]; 2] = [b"-name", b"--id"];

/// Machine processes of a tag.
pub fn machines(tag: &str) -> Result<Vec<ProcessIdentity>> {
    let prefix = format!("pandastack-{tag}-");
    processes(&NAME_OPTIONS, |name| name.starts_with(prefix.as_bytes()))
}

/// Servers and other programs of ours that were told to work in a data directory.
pub fn servers(data_dir: &Path) -> Result<Vec<ProcessIdentity>> {
    processes(&[b"--data-dir"], |given| given == data_dir.as_os_str().as_bytes())
}

/// Processes one of whose arguments is such an option, followed by such a value.
fn processes(options: &[&[u8]], is_meant: impl Fn(&[u8]) -> bool) -> Result<Vec<ProcessIdentity>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("list processes")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process that ends while we look is not there.
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let mut arguments = line.split(|&byte| byte == 0);
        let meant =
            arguments.any(|argument| options.contains(&argument)) && arguments.next().is_some_and(&is_meant);
        if meant && let Ok(identity) = ProcessIdentity::of(pid) {
            found.push(identity);
        }
    }
    Ok(found)
}

/// Network namespaces of a tag.
pub fn namespaces(tag: &str) -> Result<Vec<String>> {
    names("/run/netns", &format!("ps-{tag}-"))
}

/// Host interfaces of a tag.
pub fn interfaces(tag: &str) -> Result<Vec<String>> {
    names("/sys/class/net", &format!("p{tag}v"))
}

/// Directories of the groups of a tag's machines: where the kernel's groups are mounted, if machines are in groups at all.
pub fn groups(tag: &str) -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("list mounts")?;
    let mut found = Vec::new();
    for line in mounts.lines() {
        let [_, place, "cgroup2", ..] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        let parent = Path::new(place).join("pandastack").join(tag);
        let Ok(entries) = fs::read_dir(&parent) else { continue };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

fn names(directory: &str, prefix: &str) -> Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(prefix) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Mount points below a directory.
pub fn mounts(directory: &Path) -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("list mounts")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    Ok(points.filter(|point| point.starts_with(directory)).collect())
}

/// Loop devices backed by files of a directory.
pub fn loop_devices(directory: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir("/sys/block").context("list block devices")? {
        let backing = fs::read_to_string(entry?.path().join("loop/backing_file")).unwrap_or_default();
        count += usize::from(Path::new(backing.trim()).starts_with(directory));
    }
    Ok(count)
}

/// Names of a directory's entries; none when it is not there.
pub fn entries(directory: &Path) -> Result<BTreeSet<String>> {
    let Ok(listed) = fs::read_dir(directory) else { return Ok(BTreeSet::new()) };
    listed.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Snapshots in a directory of them, with what lies in its hidden directories.
pub fn snapshots(directory: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for name in entries(directory)? {
        match name.starts_with('.') {
            false => found.insert(name),
            true => {
                let inside = entries(&directory.join(&name))?;
                found.extend(inside.into_iter().map(|entry| format!("{name}/{entry}")));
                false
            }
        };
    }
    Ok(found)
}

/// A group that goes while we look is not there.
fn is_empty(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|processes| processes.is_empty())
}

/// Everything of a data directory that could be left over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// Machine processes.
    pub machines: usize,
    /// Groups that have no machine process in them.
    pub empty_groups: usize,
    /// Network namespaces.
    pub namespaces: usize,
    /// Mounts.
    pub mounts: usize,
    /// Loop devices.
    pub loop_devices: usize,
    /// Directories of sandboxes.
    pub sandboxes: BTreeSet<String>,
    /// Directories of machines without a sandbox.
    pub waiting: BTreeSet<String>,
    /// Snapshots, and those half made or half removed.
    pub snapshots: BTreeSet<String>,
}

impl Census {
    /// Counts.
    pub fn take(data_dir: &Path) -> Result<Self> {
        let tag = tag(data_dir).context("the data directory has no tag yet")?;
        let pool = data_dir.join("pool");
        Ok(Self {
            machines: machines(&tag)?.len(),
            empty_groups: groups(&tag)?.iter().filter(|group| is_empty(group)).count(),
            namespaces: namespaces(&tag)?.len(),
            mounts: mounts(data_dir)?.len(),
            loop_devices: loop_devices(data_dir)?,
            sandboxes: entries(&pool.join("sandboxes"))?,
            waiting: entries(&pool.join("waiting"))?,
            snapshots: snapshots(&pool.join("snapshots"))?,
        })
    }
}
