//! What a machine process may take of its host.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use machine::cgroup::{CgroupSetting, Cgroups};

use super::{Fixture, Machine};
use crate::{census, guest, wait};

/// How much of a processor a guest is to burn before it is looked at.
const BURNT: Duration = Duration::from_millis(1500);
/// How long that may take.
const BURN_TIMEOUT: Duration = Duration::from_secs(60);

/// It is in a group of its own from the beginning, with limits where this host has them, and the group goes with it however it ends.
pub async fn a_machine_process_is_held_to_its_share(fixture: &Fixture) -> Result<()> {
    if Cgroups::open(CgroupSetting::Auto)?.is_none() {
        eprintln!("SKIPPED: this host has no groups (cgroup v2) that can be used");
        return Ok(());
    }
    let machine = fixture.restore(fixture.booted_state().await?).await?;
    let group = group(fixture, &machine)?;
    let link = machine.resume().await?;
    let limited = |file: &str| {
        let there = group.join(file).exists();
        if !there {
            eprintln!("SKIPPED: this host does not limit {file}");
        }
        there
    };
    if limited("memory.max") {
        let memory: u64 = read(&group, "memory.max")?.parse().context("memory.max is no number")?;
        ensure!(memory > fixture.shape.memory_bytes(), "{memory} bytes are not even the guest's");
        ensure!(read(&group, "memory.events")?.contains("oom_kill 0"));
    }
    if limited("pids.max") {
        let most: u64 = read(&group, "pids.max")?.parse().context("pids.max is no number")?;
        let now: u64 = read(&group, "pids.current")?.parse()?;
        ensure!(now < most && most < 1000, "{now} threads of {most}");
    }
    if limited("cpu.max") {
        let vcpus = u32::from(fixture.shape.vcpus());
        for _ in 0..=vcpus {
            guest::shell(&link, "(while :; do :; done) </dev/null >/dev/null 2>&1 &").await?;
        }
        let (begun, before) = (Instant::now(), used(&group)?);
        wait::until_async("the guest is busy", BURN_TIMEOUT, async || Ok(used(&group)? - before >= BURNT))
            .await?;
        let (took, used) = (begun.elapsed(), used(&group)? - before);
        let share = (took + Duration::from_millis(100)) * (vcpus * 100 + 50) / 100;
        // What was saved up before may be used as well.
        let saved_up = Duration::from_millis(100) * (vcpus * 100 + 50) / 100;
        ensure!(used <= share + saved_up, "it used {used:?} of processors in {took:?}");
        eprintln!("{used:?} of processors in {took:?}; {}", read(&group, "cpu.stat")?.replace('\n', ", "));
    }
    if limited("memory.peak") {
        eprintln!("memory.peak {} of {}", read(&group, "memory.peak")?, read(&group, "memory.max")?);
    }
    machine.vm.kill().await;
    ensure!(!group.exists(), "its group is left");

    // The same for one that had no guest yet, and for one that ends by itself.
    let (prepared, place, _) = fixture.prepare(fixture.booted_state().await?).await?;
    let waiting = group.with_file_name(&place.name);
    ensure!(waiting.exists());
    drop(prepared);
    ensure!(!waiting.exists(), "the group of a machine that was never used is left");
    let machine = fixture.restore(fixture.booted_state().await?).await?;
    let group = self::group(fixture, &machine)?;
    crate::leftovers::os::kill_process(machine.vm.record().process)?;
    machine.vm.exited().await;
    ensure!(!group.exists(), "the group of a machine that ended is left");
    Ok(())
}

/// One whose guest has answered comes after those that somebody waits for, with all of its threads.
pub async fn a_machine_process_steps_back(fixture: &Fixture) -> Result<()> {
    let machine = fixture.restore(fixture.booted_state().await?).await?;
    let pid = machine.vm.record().process.pid;
    let _link = machine.resume().await?;
    let weight = || group(fixture, &machine).and_then(|group| read(&group, "cpu.weight")).ok();
    let (before, weight_before) = (nice(pid)?, weight());
    machine.vm.deprioritize();
    machine.vm.deprioritize();
    match (weight_before, weight()) {
        (Some(before), Some(after)) => {
            let (before, after): (u32, u32) = (before.parse()?, after.parse()?);
            ensure!(
                before == 10 * after,
                "it weighs {after}, and weighed {before} when somebody waited for it"
            );
        }
        _ => {
            let after = nice(pid)?;
            ensure!(before.iter().all(|nice| *nice < 10), "{before:?}");
            ensure!(after.len() >= before.len() && after.iter().all(|nice| *nice == 10), "{after:?}");
            if let Ok(session) = fs::read_to_string(format!("/proc/{pid}/autogroup")) {
                ensure!(session.trim_end().ends_with(" nice 10"), "{session}");
            }
        }
    }
    machine.vm.kill().await;
    machine.vm.deprioritize();
    Ok(())
}

/// How far each thread of a process steps back.
fn nice(pid: u32) -> Result<Vec<i32>> {
    let mut all = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("stat"))?;
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
        all.push(fields.split_ascii_whitespace().nth(16).context("an unreadable status")?.parse()?);
    }
    Ok(all)
}

/// The one group that a machine's process is in.
fn group(fixture: &Fixture, machine: &Machine) -> Result<PathBuf> {
    let groups = census::groups(&fixture.instance)?;
    let named = |group: &&PathBuf| group.file_name().is_some_and(|name| name == machine.place.name.as_str());
    let group = groups.iter().find(named).context("it has no group")?;
    let pid = machine.vm.record().process.pid.to_string();
    let members = read(group, "cgroup.procs")?;
    ensure!(members.lines().any(|member| member == pid), "its group has {members:?} in it, not {pid}");
    // KVM has a thread of the kernel beside each machine on some hosts, which counts for it too.
    let is_program = |member: &str| {
        let line = fs::read(format!("/proc/{member}/cmdline"));
        line.is_ok_and(|line| !line.is_empty())
    };
    ensure!(members.lines().filter(|member| is_program(member)).count() == 1, "others are in its group");
    Ok(group.clone())
}

fn read(group: &Path, file: &str) -> Result<String> {
    let text = fs::read_to_string(group.join(file)).with_context(|| format!("read {file}"))?;
    Ok(text.trim_end().to_owned())
}

/// Time of processors that a group has used.
fn used(group: &Path) -> Result<Duration> {
    let text = read(group, "cpu.stat")?;
    let used = text.lines().find_map(|line| line.strip_prefix("usage_usec ")).context("no usage")?;
    Ok(Duration::from_micros(used.parse()?))
}
