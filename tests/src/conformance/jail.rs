//! What a machine process can see and do, looked at from outside.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};

use super::Fixture;

/// Namespaces that a machine process must not share with the host.
const NAMESPACES: [&str; 5] = ["mnt", "pid", "ipc", "net", "uts"];

/// Device nodes that an engine which cannot be handed descriptors opens by name.
const DEVICE_NODES: [&str; 2] = ["kvm", "net"];

/// Not root, no capabilities, no new privileges, filtered system calls, namespaces of its own, an almost empty root.
pub async fn a_machine_process_is_jailed(fixture: &Fixture) -> Result<()> {
    let machine = fixture.restore(fixture.booted_state().await?).await?;
    let process = machine.process_directory();
    let status = fs::read_to_string(process.join("status")).context("read its status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "))
            .with_context(|| format!("its status has no {name}"))
    };
    let uid = machine.place.uid.to_string();
    let four = [uid.as_str(); 4].join(" ");
    ensure!(field("Uid")? == four && field("Gid")? == four, "it runs as {} {}", field("Uid")?, field("Gid")?);
    ensure!(field("Groups")?.is_empty(), "it is in groups {}", field("Groups")?);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        ensure!(field(set)?.bytes().all(|digit| digit == b'0'), "{set} is {}", field(set)?);
    }
    ensure!(field("NoNewPrivs")? == "1");
    ensure!(field("Seccomp")? == "2", "its system calls are not filtered");
    for namespace in NAMESPACES {
        let its = fs::read_link(process.join("ns").join(namespace))?;
        let ours = fs::read_link(format!("/proc/self/ns/{namespace}"))?;
        ensure!(its != ours, "it shares our {namespace} namespace");
    }
    let root: BTreeSet<String> = fs::read_dir(process.join("root"))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    if root.contains("dev") {
        for entry in fs::read_dir(process.join("root/dev"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            ensure!(DEVICE_NODES.contains(&name.as_str()), "its /dev holds {name}");
        }
    }
    for name in ["proc", "sys", "etc", "home", "root", "usr", "bin", "run", "tmp", "var"] {
        ensure!(!root.contains(name), "its root holds {name}: {root:?}");
    }
    ensure!(root.len() <= 12, "its root holds {root:?}");
    let environment = fs::read(process.join("environ"))?;
    ensure!(environment.is_empty(), "it has an environment: {}", String::from_utf8_lossy(&environment));
    // No directory or file of the host by descriptor, beyond what it was given.
    for entry in fs::read_dir(process.join("fd"))? {
        let target = fs::read_link(entry?.path())?;
        ensure!(!target.is_dir(), "it holds the directory {}", target.display());
    }
    Ok(())
}

/// The memory many machines map can be written by none of them.
pub async fn the_base_memory_cannot_be_written(fixture: &Fixture) -> Result<()> {
    let state = fixture.booted_state().await?;
    let machine = fixture.restore(state).await?;
    let mounts = fs::read_to_string(machine.process_directory().join("mountinfo"))?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/memory"));
    let options = mount.and_then(|line| line.split(' ').nth(5)).context("its memory is not mounted")?;
    ensure!(options.split(',').any(|option| option == "ro"), "its memory is mounted {options}");
    let maps = fs::read_to_string(machine.process_directory().join("maps"))?;
    let mapped = maps.lines().filter(|line| line.ends_with("/memory"));
    for line in mapped {
        let flags = line.split_whitespace().nth(1).unwrap_or_default();
        ensure!(flags.ends_with('p'), "its memory is mapped {flags}");
    }
    for line in mounts.lines().filter(|line| line.split(' ').nth(4) == Some("/")) {
        let options = line.split(' ').nth(5).unwrap_or_default();
        ensure!(options.split(',').any(|option| option == "ro"), "its root is mounted {options}");
    }
    Ok(())
}
