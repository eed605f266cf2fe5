//! Groups in directories that stand in for the kernel's, and in the kernel's own.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use super::*;

const SHARE: Share = Share { vcpus: 2, memory_bytes: 512 << 20 };

/// A directory with the files that the kernel would have in it.
fn standing_in(path: &Path, controllers: &str) {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("cgroup.controllers"), controllers).unwrap();
    fs::write(path.join("cgroup.subtree_control"), controllers).unwrap();
}

#[test]
fn what_a_hierarchy_lacks_is_told() {
    let directory = tempfile::tempdir().unwrap();
    standing_in(directory.path(), "cpuset cpu io memory pids\n");
    standing_in(&directory.path().join(FOLDER), "cpu memory pids\n");
    let (groups, lack) = Cgroups::open_in(directory.path()).unwrap();
    assert_eq!((groups.controllers, lack.is_none()), (CONTROLLERS.to_vec(), true));

    standing_in(&directory.path().join(FOLDER), "cpu\n");
    let (groups, lack) = Cgroups::open_in(directory.path()).unwrap();
    assert_eq!(groups.controllers, ["cpu"]);
    let said = lack.unwrap().to_string();
    assert!(said.contains("no memory, pids controller"), "{said}");
}

#[test]
fn a_share_is_written_as_the_kernel_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["cpu.max", "cpu.weight", "memory.max", "pids.max"] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    let group = Group::open(directory.path().to_owned()).unwrap();
    group.limit(SHARE, &CONTROLLERS).unwrap();
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(read("cpu.max"), "250000 100000");
    assert_eq!(read("cpu.weight"), "2000");
    assert_eq!(read("memory.max"), "536870912");
    assert_eq!(read("pids.max"), "130");
    // As the kernel does, which has no beginning and end of what was there before.
    fs::write(directory.path().join("cpu.weight"), "").unwrap();
    assert!(group.deprioritize());
    assert_eq!(read("cpu.weight"), "200");
    assert!(
        !directory.path().join("memory.swap.max").exists(),
        "no file is made that the kernel does not have"
    );
}

/// A limit that the kernel should take and does not is an error.
#[test]
fn a_limit_that_is_missing_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let group = Group::open(directory.path().to_owned()).unwrap();
    assert!(group.limit(SHARE, &["pids"]).is_err());
    group.limit(SHARE, &[]).unwrap();
}

/// On the kernel's own groups, without limits: what a host with the controllers elsewhere offers too.
#[test]
fn groups_are_made_and_go_when_nothing_runs_in_them() {
    let Some(mount) = hierarchy().filter(|mount| fs::create_dir_all(mount.join(FOLDER)).is_ok()) else {
        eprintln!("SKIPPED: no cgroup v2 hierarchy that can be written");
        return;
    };
    let instance = format!("test{}", std::process::id());
    let groups = Cgroups { folder: mount.join(FOLDER), controllers: Vec::new() };
    let parent = groups.folder.join(&instance);

    let group = groups.make(&instance, "one", SHARE).unwrap();
    let mut child = Command::new("/bin/sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    fs::write(parent.join("one/cgroup.procs"), child.id().to_string()).unwrap();
    assert!(groups.make(&instance, "one", SHARE).is_err(), "somebody is in it");
    drop(groups.make(&instance, "two", SHARE).unwrap());

    clear(&instance).unwrap();
    assert!(parent.join("one").exists(), "a group in which something runs stays");
    assert!(!parent.join("two").exists(), "an empty one goes");
    assert!(find(&instance, "one").is_some() && find(&instance, "two").is_none());

    child.kill().unwrap();
    child.wait().unwrap();
    group.remove_blocking();
    assert!(!parent.join("one").exists());

    // One that was left behind is no obstacle, and whoever had the name before does not remove it.
    drop(groups.make(&instance, "one", SHARE).unwrap());
    let again = groups.make(&instance, "one", SHARE).unwrap();
    group.remove_blocking();
    assert!(rustix::fs::fstat(again.as_fd()).is_ok() && parent.join("one").exists());

    clear(&instance).unwrap();
    assert!(!parent.exists());
}
