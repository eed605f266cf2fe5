//! Fork and snapshot: memory and disk of one instant, to any depth, deleted in any order.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use domain::lifecycle::Phase;
use guest_link::message::ProcessSpec;
use node::{NodeError, SnapshotKind};
use tests::huge_pages::{Aside, used_by};
use tests::lab::bake_anew;
use tests::{Guest, Lab, LabSettings, engine, in_lab, run, wait};

/// Writes a word to memory (a file system in memory) and to disk, unsynced.
async fn mark(guest: &Guest, word: &str) -> Result<()> {
    guest.shell(&format!("echo {word} > /run/in-memory; echo {word} > /on-disk")).await.map(drop)
}

async fn expect_mark(guest: &Guest, word: &str) -> Result<()> {
    let found = guest.shell("cat /run/in-memory /on-disk").await?;
    ensure!(found == format!("{word}\n{word}"), "expected {word} twice, found {found:?}");
    Ok(())
}

/// Device and inode of the memory file a machine maps, and how.
fn memory_mapping(guest: &Guest) -> Result<(String, String, String)> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", guest.machine()?.pid)).context("read mappings")?;
    let line = maps.lines().find(|line| line.ends_with("/memory")).context("no memory is mapped")?;
    let fields: Vec<_> = line.split_whitespace().collect();
    Ok((fields[1].to_owned(), fields[3].to_owned(), fields[4].to_owned()))
}

#[test]
fn children_and_grandchildren_go_on_from_one_instant() -> Result<()> {
    in_lab(async |lab| {
        let parent = lab.create().await?;
        mark(&parent, "parent").await?;
        parent.start_counter().await?;
        let before = parent.counter().await?;
        let children = lab.fork(&parent, 2).await?;
        for guest in children.iter().chain([&parent]) {
            expect_mark(guest, "parent").await?;
            ensure!(guest.counter().await? >= before, "the counter began anew");
        }
        // From here on they differ.
        mark(&children[0], "child").await?;
        expect_mark(&children[1], "parent").await?;
        expect_mark(&parent, "parent").await?;
        let grandchild = lab.fork(&children[0], 1).await?.pop().context("a grandchild")?;
        mark(&children[0], "changed-later").await?;
        expect_mark(&grandchild, "child").await?;
        ensure!(grandchild.counter().await? >= before, "the counter began anew");
        // Nobody needs its ancestors.
        parent.remove().await?;
        for child in children {
            child.remove().await?;
        }
        let last = lab.fork(&grandchild, 1).await?.pop().context("a child of the grandchild")?;
        expect_mark(&last, "child").await?;
        let count = last.counter().await?;
        ensure!(last.counter().await? >= count);
        Ok(())
    })
}

#[test]
fn children_share_one_memory_file() -> Result<()> {
    in_lab(async |lab| {
        let parent = lab.create().await?;
        let children = lab.fork(&parent, 4).await?;
        ensure!(children.len() == 4);
        let mappings: Vec<_> = children.iter().map(memory_mapping).collect::<Result<_>>()?;
        for mapping in &mappings {
            ensure!(mapping == &mappings[0], "{mappings:?}");
            ensure!(mapping.0.ends_with('p'), "memory is not mapped privately: {mapping:?}");
        }
        let snapshot = children[0].state().record.origin.clone();
        let inode = fs::metadata(lab.snapshot_directory(&snapshot).join("memory"))?.ino();
        ensure!(mappings[0].2 == inode.to_string(), "{mappings:?} is not inode {inode}");
        let mut names = std::collections::BTreeSet::new();
        for child in &children {
            names.insert(child.shell("hostname").await?);
        }
        ensure!(names.len() == 4, "{names:?}");
        Ok(())
    })
}

#[test]
fn a_command_under_way_goes_on_while_its_sandbox_is_forked() -> Result<()> {
    in_lab(async |lab| {
        let parent = lab.create().await?;
        let line = "i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); sleep 0.1; done";
        let link = parent.link().await?;
        let running =
            tokio::spawn(
                async move { link.exec(ProcessSpec::shell(line), b"", tests::guest::OUTPUT_MAX).await },
            );
        let mut children = Vec::new();
        for _ in 0..2 {
            children.extend(lab.fork(&parent, 1).await?);
        }
        let output = running.await??;
        let expected: String = (0..30).map(|number| format!("line {number}\n")).collect();
        ensure!(output.stdout == expected.as_bytes(), "{}", String::from_utf8_lossy(&output.stdout));
        ensure!(output.exit.status.shell_code() == 0);
        // The same command goes on in the children too, where nobody listens.
        for child in &children {
            child.shell("while pgrep -f '[e]cho line' > /dev/null; do sleep 0.05; done").await?;
        }
        Ok(())
    })
}

#[test]
fn a_paused_and_a_hibernated_sandbox_can_be_forked() -> Result<()> {
    in_lab(async |lab| {
        let parent = lab.create().await?;
        mark(&parent, "once").await?;
        parent.pause().await?;
        let child = lab.fork(&parent, 1).await?.pop().context("a child")?;
        expect_mark(&child, "once").await?;
        ensure!(parent.phase() == Phase::Paused, "forking woke its paused parent");
        parent.resume().await?;
        mark(&parent, "twice").await?;
        parent.hibernate().await?;
        let children = lab.fork(&parent, 2).await?;
        ensure!(parent.phase() == Phase::Hibernated);
        for child in &children {
            expect_mark(child, "twice").await?;
        }
        parent.wake().await?;
        expect_mark(&parent, "twice").await
    })
}

#[test]
fn snapshots_of_forks_of_snapshots_go_in_any_order() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("order")).await?;
        let clean = lab.settled_census().await?;
        let first = lab.create().await?;
        mark(&first, "one").await?;
        let (kept_one, _) = lab.node().snapshot(&first).await?;
        mark(&first, "later").await?;
        let second = lab.create_from(&kept_one.id).await?;
        expect_mark(&second, "one").await?;
        mark(&second, "two").await?;
        let third = lab.fork(&second, 1).await?.pop().context("a fork")?;
        mark(&third, "three").await?;
        let (kept_three, _) = lab.node().snapshot(&third).await?;
        let fourth = lab.create_from(&kept_three.id).await?;

        // The oldest goes first, while everything made from it runs.
        lab.node().delete_snapshot(&kept_one.id)?;
        ensure!(lab.create_from(&kept_one.id).await.is_err(), "a deleted snapshot was used");
        ensure!(lab.snapshot_directory(&kept_one.id).exists(), "memory that a machine maps was removed");
        expect_mark(&second, "two").await?;
        second.hibernate().await?;
        let directory = lab.snapshot_directory(&kept_one.id);
        wait::until("a snapshot goes with its last user", Duration::from_secs(60), || !directory.exists())
            .await?;
        second.wake().await?;
        expect_mark(&second, "two").await?;
        let fifth = lab.fork(&second, 1).await?.pop().context("a fork of a woken fork")?;
        expect_mark(&fifth, "two").await?;

        lab.node().delete_snapshot(&kept_three.id)?;
        third.remove().await?;
        expect_mark(&fourth, "three").await?;
        let sixth = lab.fork(&fourth, 1).await?.pop().context("a fork of an orphan")?;
        fourth.hibernate().await?;
        fourth.wake().await?;
        expect_mark(&fourth, "three").await?;
        expect_mark(&sixth, "three").await?;
        for guest in [first, second, fourth, fifth, sixth] {
            guest.remove().await?;
        }
        lab.expect_census(&clean).await?;
        let left = lab.node().snapshots();
        ensure!(
            left.iter().all(|info| matches!(info.about.purpose, SnapshotKind::Template { .. })),
            "{left:?}"
        );
        lab.remove().await
    })
}

#[test]
fn a_snapshot_costs_what_changed_and_says_so() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        guest.shell("head -c 8000000 /dev/urandom > /run/eight").await?;
        let (info, timings) = lab.node().snapshot(&guest).await?;
        let changed = info.about.changed_bytes;
        ensure!((8_000_000..120_000_000).contains(&changed), "{changed} bytes changed");
        ensure!(timings.changed_bytes == changed || timings.changed_bytes == 0, "{timings:?}");
        ensure!(info.about.sandbox.as_ref() == Some(guest.id()));
        lab.node().delete_snapshot(&info.id)?;
        let gone = lab.node().delete_snapshot(&info.id);
        ensure!(matches!(gone, Err(NodeError::NoSnapshot(_))), "{gone:?}");
        Ok(())
    })
}

#[test]
fn a_fork_of_nobody_or_of_too_many_is_refused() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        for count in [0, 65] {
            let refused = lab.node().fork(&guest, count).await;
            ensure!(matches!(refused, Err(NodeError::ForkCount { asked, max: 64 }) if asked == count));
        }
        let sandbox = guest.sandbox().clone();
        guest.remove().await?;
        let refused = lab.node().fork(&sandbox, 1).await;
        ensure!(matches!(refused, Err(NodeError::NoSandbox(_))), "a deleted sandbox was forked");
        tests::wait::until("it is forgotten", Duration::from_secs(60), || {
            lab.node().sandbox(sandbox.id()).is_err()
        })
        .await
    })
}

/// All of a sandbox's life with memory that can only come on demand, from files that are here.
#[test]
fn sandboxes_with_huge_pages_are_forked_sleep_and_are_found_again() -> Result<()> {
    run(async || {
        let Some(engine) = engine::with_huge_pages()? else {
            eprintln!("SKIPPED: the engine of this host has no huge pages");
            return Ok(());
        };
        let lab = Lab::prepare(LabSettings::new("huge")).await?.open_with(engine.clone()).await?;
        let refused = lab.create().await.map(drop);
        let unfit =
            refused.as_ref().is_err_and(|error| matches!(error.downcast_ref(), Some(NodeError::Unfit(_))));
        ensure!(unfit, "a snapshot with other pages was used: {refused:?}");
        let memory_bytes = 256 << 20;
        let aside = Aside::set(3 * memory_bytes)?;
        let template = bake_anew(&lab).await?;

        let parent = lab.create_from(&template).await?;
        mark(&parent, "parent").await?;
        parent.start_counter().await?;
        let before = parent.counter().await?;
        ensure!(used_by(parent.machine()?.pid)? > 0, "its memory is not in huge pages");
        let child = lab.fork(&parent, 1).await?.pop().context("a child")?;
        expect_mark(&child, "parent").await?;
        mark(&child, "child").await?;
        child.hibernate().await?;
        child.wake().await?;
        expect_mark(&child, "child").await?;

        // One is served from a snapshot, the other from memory of its own.
        let ids = [parent, child].map(|guest| guest.keep().id().clone());
        let lab = lab.close().await.open_with(engine).await?;
        let found = ids.map(|id| lab.node().sandbox(&id).map(Guest::new));
        let [Ok(parent), Ok(child)] = found else { bail!("a sandbox is gone") };
        expect_mark(&parent, "parent").await?;
        expect_mark(&child, "child").await?;
        let (snapshot, _) = lab.node().snapshot(child.sandbox()).await?;
        child.remove().await?;
        let made = lab.create_from(&snapshot.id).await?;
        expect_mark(&made, "child").await?;
        for guest in [&parent, &made] {
            ensure!(guest.counter().await? >= before, "the counter began anew");
        }
        made.remove().await?;
        parent.remove().await?;
        drop(aside);
        lab.remove().await
    })
}
