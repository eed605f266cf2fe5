//! Can machines be held to their share of processor, memory and processes? A group is made and removed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::check::{Check, Subject};
use crate::facts::kernel_text;

const CGROUP: Subject = Subject { name: "cgroup", title: "Limits on machines (cgroup v2)" };
const WANTED: [&str; 3] = ["cpu", "memory", "pids"];
const USE_V2: &str = "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&cgroup_no_v1=all systemd.unified_cgroup_hierarchy=1 /' \
                      /etc/default/grub && update-grub && reboot";

pub(super) fn check() -> Check {
    let mounts = kernel_text("/proc/self/mounts");
    let Some(root) = mount_point(&mounts, "cgroup2") else {
        let detail = "cgroup v2 is not mounted: machines will run without limits of the host's";
        return CGROUP.warning(detail, "mount -t cgroup2 none /sys/fs/cgroup");
    };
    let group = match TrialGroup::make(&root) {
        Ok(group) => group,
        Err(error) => {
            let detail = format!("no group could be made in {}: {error}", root.display());
            return CGROUP.warning(detail, format!("mount -o remount,rw {}", root.display()));
        }
    };
    let available = kernel_text(root.join("cgroup.controllers"));
    let enabled = kernel_text(group.path.join("cgroup.controllers"));
    let lacks = |list: &str| {
        let missing = WANTED.iter().filter(|wanted| !list.split_whitespace().any(|name| name == **wanted));
        missing.copied().collect::<Vec<_>>()
    };
    let unavailable = lacks(&available);
    let disabled = lacks(&enabled);
    if !unavailable.is_empty() {
        let v1 = unavailable.iter().any(|name| has_v1(&mounts, name));
        let place = if v1 { "they sit in cgroup v1" } else { "the kernel does not offer them" };
        let detail = format!(
            "a group was made, but v2 has no {} controller ({place}): those limits will not be enforced by the host",
            unavailable.join(", ")
        );
        CGROUP.warning(detail, USE_V2)
    } else if !disabled.is_empty() {
        let fix = format!("echo '+cpu +memory +pids' > {}", root.join("cgroup.subtree_control").display());
        CGROUP
            .warning(format!("a group was made, but {} is not enabled for groups", disabled.join(", ")), fix)
    } else {
        match std::fs::write(group.path.join("memory.max"), "max") {
            Ok(()) => {
                CGROUP.ok("a group was made and a memory limit written; cpu, memory and pids are there")
            }
            Err(error) => CGROUP.warning(format!("a group was made, but refused a limit: {error}"), USE_V2),
        }
    }
}

fn mount_point(mounts: &str, kind: &str) -> Option<PathBuf> {
    mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find_map(|fields| match fields[..] {
        [_, place, found, ..] if found == kind => Some(PathBuf::from(place)),
        _ => None,
    })
}

fn has_v1(mounts: &str, controller: &str) -> bool {
    mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).any(|fields| match fields[..] {
        [_, _, "cgroup", options, ..] => options.split(',').any(|option| option == controller),
        _ => false,
    })
}

/// An empty group, removed again when dropped.
struct TrialGroup {
    path: PathBuf,
}

impl TrialGroup {
    fn make(root: &Path) -> std::io::Result<TrialGroup> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("pandastack-trial-{}-{count}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(TrialGroup { path })
    }
}

impl Drop for TrialGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_understood() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\nshort\n";
        assert_eq!(mount_point(mounts, "cgroup2"), Some("/sys/fs/cgroup/unified".into()));
        assert!(has_v1(mounts, "cpu") && !has_v1(mounts, "memory"));
        assert_eq!(mount_point("", "cgroup2"), None);
    }

    #[test]
    fn the_trial_group_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        drop(TrialGroup::make(directory.path()).unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
