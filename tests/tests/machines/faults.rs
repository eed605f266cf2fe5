//! What an engine must not do on a bad day, whichever it is: machines that are killed while they are saved, states of another engine.

use std::fs::{self, Metadata};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use domain::lifecycle::Phase;
use machine::ProcessIdentity;
use node::{CreateFrom, CreateRequest, NodeError};
use tests::engine::Upgraded;
use tests::leftovers::os::kill_process;
use tests::{Guest, Lab, LabSettings, engine, run, wait};

/// How long a save may take to reach the moment it is waited for.
const MOMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// What a machine is saved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Save {
    Snapshot,
    Fork,
    Hibernate,
}

/// When it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Files for what will be saved have been made; the guest still runs.
    Begun,
    /// Its memory is being copied.
    MemoryTouched,
    /// Its devices are written. Its memory may be, too.
    DevicesWritten,
}

/// A file that a save writes to, if it is there.
fn find(directory: &Path, name: &str) -> Option<Metadata> {
    let mut entries = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    entries.find_map(|path| match path.is_dir() {
        true => find(&path, name),
        false => path.file_name()?.to_str()?.starts_with(name).then(|| path.metadata().ok())?,
    })
}

/// Kills a machine at a moment of its save. Does nothing but look, so as not to miss it. `false` when the moment never came.
fn kill_at(moment: Moment, directory: &Path, machine: ProcessIdentity) -> Result<bool> {
    let deadline = Instant::now() + wait::scaled(MOMENT_TIMEOUT);
    let mut memory_made = None;
    while Instant::now() < deadline {
        let reached = match moment {
            Moment::Begun => find(directory, "devices").is_some(),
            Moment::MemoryTouched => find(directory, "memory")
                .and_then(|found| found.modified().ok())
                .is_some_and(|modified| *memory_made.get_or_insert(modified) != modified),
            Moment::DevicesWritten => find(directory, "devices").is_some_and(|found| found.len() > 0),
        };
        if reached {
            kill_process(machine)?;
            return Ok(true);
        }
    }
    Ok(false)
}

async fn save(lab: &Lab, guest: &Guest, what: Save) -> Result<(), NodeError> {
    match what {
        Save::Snapshot => lab.node().snapshot(guest).await.map(drop),
        Save::Hibernate => guest.hibernate().await.map(drop),
        Save::Fork => {
            let (children, _) = lab.node().fork(guest, 1).await?;
            for child in children {
                child?.delete().await?;
            }
            Ok(())
        }
    }
}

#[test]
fn a_machine_that_is_killed_while_it_is_saved_is_told() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("killed-saving")).await?;
        let other = lab.create().await?;
        let before = lab.settled_census().await?;
        for what in [Save::Snapshot, Save::Fork, Save::Hibernate] {
            for moment in [Moment::Begun, Moment::MemoryTouched, Moment::DevicesWritten] {
                kill_while_saving(&lab, what, moment)
                    .await
                    .with_context(|| format!("{what:?}, {moment:?}"))?;
                ensure!(other.shell("echo fine").await? == "fine", "{what:?}, {moment:?}: others suffer");
                lab.expect_census(&before).await.with_context(|| format!("{what:?}, {moment:?}"))?;
            }
        }
        other.remove().await?;
        lab.remove().await
    })
}

async fn kill_while_saving(lab: &Lab, what: Save, moment: Moment) -> Result<()> {
    let guest = lab.create().await?;
    guest.shell("echo kept > /kept; sync; head -c 8000000 /dev/urandom > /run/large").await?;
    let directory = match what {
        Save::Snapshot | Save::Fork => lab.pool().join("snapshots/.staging"),
        Save::Hibernate => lab.sandbox_directory(guest.id()),
    };
    let machine = guest.machine()?;
    let killer = tokio::task::spawn_blocking(move || kill_at(moment, &directory, machine));
    let saved = save(lab, &guest, what).await;
    ensure!(killer.await??, "the save ended before it could be killed: {saved:?}");
    match (saved, moment) {
        (Err(NodeError::Died { reason, .. }), _) => {
            ensure!(reason.contains("signal"), "it ended because {reason:?}");
            ensure!(guest.phase() == Phase::Died, "it is {:?}", guest.phase());
            ensure!(lab.kept_snapshots().is_empty(), "half a snapshot is kept");
            // What is on its disk is not lost. Once is enough: booting takes long.
            if (what, moment) == (Save::Hibernate, Moment::Begun) {
                guest.start_cold().await?;
                ensure!(guest.shell("cat /kept").await? == "kept");
            }
        }
        // All of it had been saved by then. So it is whole.
        (Ok(()), Moment::MemoryTouched | Moment::DevicesWritten) if what == Save::Hibernate => {
            guest.wake().await?;
            ensure!(guest.shell("cat /kept").await? == "kept");
        }
        (Ok(()), Moment::MemoryTouched | Moment::DevicesWritten) => {
            for id in lab.kept_snapshots() {
                lab.create_from(&id).await?.remove().await?;
                lab.node().delete_snapshot(&id)?;
            }
        }
        (saved, _) => anyhow::bail!("it was told {saved:?}"),
    }
    guest.remove().await
}

#[test]
fn a_snapshot_of_another_engine_is_refused_with_a_sentence() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("engines")).await?;
        let guest = lab.create().await?;
        guest.shell("echo kept > /run/kept").await?;
        let (kept, _) = lab.node().snapshot(&guest).await?;
        guest.hibernate().await?;
        let id = guest.keep().id().clone();
        let other = engine::other()?;
        let names = [engine::engine()?.fingerprint().engine.clone(), other.fingerprint().engine.clone()];

        let lab = lab.close().await.open_with(other).await?;
        let guest = Guest::new(lab.node().sandbox(&id)?);
        let clean = lab.settled_census().await?;
        let request = CreateRequest::new(CreateFrom::Snapshot(kept.id.clone()));
        let created = lab.node().create(request).await.map(|(sandbox, _)| sandbox.id().clone());
        for refused in [created.map(drop), guest.wake().await.map(drop)] {
            let error = refused.err().context("it was resumed by another engine")?;
            ensure!(matches!(error, NodeError::Unfit(_)), "{error:?}");
            let said = domain::ErrorChain(&error).to_string();
            ensure!(names.iter().all(|name| said.contains(name)), "{said:?} does not name {names:?}");
        }
        ensure!(guest.phase() == Phase::Hibernated, "it is {:?}", guest.phase());
        lab.expect_census(&clean).await?;
        let id = guest.keep().id().clone();

        // Nothing happened to either.
        let lab = lab.close().await.open().await?;
        let (guest, made) = (Guest::new(lab.node().sandbox(&id)?), lab.create_from(&kept.id).await?);
        guest.wake().await?;
        for guest in [guest, made] {
            ensure!(guest.shell("cat /run/kept").await? == "kept");
            guest.remove().await?;
        }
        lab.remove().await
    })
}

#[test]
fn a_machine_that_outlives_an_upgrade_of_its_engine_stays_what_it_is() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("upgraded")).await?;
        let guest = lab.create().await?;
        guest.shell("echo kept > /run/kept").await?;
        let id = guest.keep().id().clone();

        // Its process is the old program still, so what is saved of it is for that one.
        let lab = lab.close().await.open_with(Arc::new(Upgraded::new(engine::engine()?))).await?;
        let guest = Guest::new(lab.node().sandbox(&id)?);
        ensure!(guest.shell("cat /run/kept").await? == "kept");
        let (kept, _) = lab.node().snapshot(&guest).await?;
        guest.hibernate().await?;
        let request = CreateRequest::new(CreateFrom::Snapshot(kept.id.clone()));
        let created = lab.node().create(request).await.map(drop);
        for refused in [created, guest.wake().await.map(drop)] {
            let error = refused.err().context("it was resumed by an engine that it was not saved with")?;
            ensure!(matches!(error, NodeError::Unfit(_)), "{error:?}");
        }
        let id = guest.keep().id().clone();

        let lab = lab.close().await.open().await?;
        let (guest, made) = (Guest::new(lab.node().sandbox(&id)?), lab.create_from(&kept.id).await?);
        guest.wake().await?;
        for guest in [guest, made] {
            ensure!(guest.shell("cat /run/kept").await? == "kept");
            guest.remove().await?;
        }
        lab.remove().await
    })
}
