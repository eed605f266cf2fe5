//! Bad days: damaged files, another engine, a full disk, requests given up half way. A clear error, nothing lost, nothing left.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::lifecycle::Phase;
use node::{CreateFrom, CreateRequest, NodeError};
use tests::baked::Contents;
use tests::engine::{Upgraded, engine};
use tests::harm::{Harm, harm};
use tests::{Guest, Lab, LabSettings, census, lab, run};

async fn create(lab: &Lab, snapshot: &domain::SnapshotId) -> Result<Guest, NodeError> {
    let request = CreateRequest::new(CreateFrom::Snapshot(snapshot.clone()));
    lab.node().create(request).await.map(|(sandbox, _)| Guest::new(sandbox))
}

#[test]
fn a_damaged_snapshot_is_never_started() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("damaged")).await?;
        let guest = lab.create().await?;
        guest.shell("echo kept > /kept").await?;
        let (kept, _) = lab.node().snapshot(&guest).await?;
        guest.remove().await?;
        let clean = lab.settled_census().await?;
        let directory = lab.snapshot_directory(&kept.id);
        for (name, what) in [
            ("memory", Harm::OneBit),
            ("memory", Harm::CutShort),
            ("memory", Harm::Missing),
            ("disk", Harm::OneBit),
            ("disk", Harm::CutShort),
            ("devices", Harm::OneBit),
            ("devices", Harm::CutShort),
            ("devices", Harm::Missing),
            ("memory.sums", Harm::OneBit),
            ("disk.sums", Harm::CutShort),
        ] {
            let mend = harm(&directory.join(name), what)?;
            let created = create(&lab, &kept.id).await.map(|guest| guest.id().clone());
            ensure!(matches!(created, Err(NodeError::Damaged { .. })), "{name} {what:?}: {created:?}");
            lab.expect_census(&clean).await.with_context(|| format!("{name} {what:?}"))?;
            mend()?;
        }
        // Put right, it is as good as before.
        let guest = create(&lab, &kept.id).await?;
        ensure!(guest.shell("cat /kept").await? == "kept");
        guest.remove().await?;

        // A manifest is read when the node starts: such a snapshot is not offered, and not thrown away.
        let mend = harm(&directory.join("manifest.json"), Harm::OneBit)?;
        let lab = lab.close().await.open().await?;
        ensure!(lab.kept_snapshots().is_empty(), "a damaged manifest was believed");
        let created = create(&lab, &kept.id).await.map(|guest| guest.id().clone());
        ensure!(matches!(created, Err(NodeError::NoSnapshot(_) | NodeError::Damaged { .. })), "{created:?}");
        ensure!(directory.join("memory").exists(), "a snapshot that cannot be read was thrown away");
        let other = lab.create().await.context("another snapshot is affected")?;
        other.remove().await?;
        mend()?;
        let lab = lab.close().await.open().await?;
        let guest = create(&lab, &kept.id).await?;
        ensure!(guest.shell("cat /kept").await? == "kept");
        guest.remove().await?;
        lab.remove().await
    })
}

#[test]
fn a_damaged_hibernation_image_is_never_resumed() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("image")).await?;
        let guest = lab.create().await?;
        guest.shell("echo kept > /kept; echo kept > /run/kept").await?;
        guest.hibernate().await?;
        let clean = lab.settled_census().await?;
        let directory = lab.sandbox_directory(guest.id());
        let files = census::entries(&directory)?;
        let named = |prefix: &str, suffix: &str| {
            let found = files.iter().find(|name| {
                name.starts_with(prefix)
                    && name.ends_with(suffix)
                    && (suffix == ".sums") == name.ends_with(".sums")
            });
            found.cloned().with_context(|| format!("no {prefix}*{suffix} in {files:?}"))
        };
        let (memory, sums, devices) =
            (named("memory.", "")?, named("memory.", ".sums")?, named("devices.", "")?);
        for (name, what) in [
            (&memory, Harm::OneBit),
            (&memory, Harm::CutShort),
            (&memory, Harm::Missing),
            (&sums, Harm::OneBit),
            (&devices, Harm::OneBit),
            (&devices, Harm::CutShort),
            (&devices, Harm::Missing),
            (&"hibernation.json".to_owned(), Harm::CutShort),
        ] {
            let mend = harm(&directory.join(name), what)?;
            let woken = guest.wake().await;
            ensure!(matches!(woken, Err(NodeError::Damaged { .. })), "{name} {what:?}: {woken:?}");
            ensure!(guest.phase() == Phase::Hibernated, "{name} {what:?}: {:?}", guest.phase());
            let forked = lab.node().fork(&guest, 1).await.map(|(children, _)| children.len());
            ensure!(matches!(forked, Err(NodeError::Damaged { .. })), "{name} {what:?}: {forked:?}");
            mend()?;
            lab.expect_census(&clean).await.with_context(|| format!("{name} {what:?}"))?;
        }
        guest.wake().await.context("wake what was put right")?;
        ensure!(guest.shell("cat /kept /run/kept").await? == "kept\nkept");
        // What cannot be resumed can be started from its disk.
        guest.hibernate().await?;
        let files = census::entries(&directory)?;
        let devices = files.iter().find(|name| name.starts_with("devices.")).context("no devices")?;
        fs::write(directory.join(devices), b"garbage")?;
        ensure!(matches!(guest.wake().await, Err(NodeError::Damaged { .. })));
        guest.start_cold().await?;
        ensure!(guest.shell("cat /kept; test -e /run/kept; echo $?").await? == "kept\n1");
        guest.remove().await?;
        lab.remove().await
    })
}

#[test]
fn after_an_upgrade_templates_bake_anew_and_files_are_kept() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("upgrade")).await?;
        let asleep = lab.create().await?;
        asleep.shell("echo kept > /kept").await?;
        let (kept, _) = lab.node().snapshot(&asleep).await?;
        asleep.hibernate().await?;
        let running = lab.create().await?;
        running.start_counter().await?;
        let ids = [asleep, running].map(|guest| guest.keep().id().clone());

        let lab = lab.close().await.open_with(Arc::new(Upgraded::new(engine()?))).await?;
        let [asleep, running] = ids.map(|id| lab.node().sandbox(&id).map(Guest::new));
        let (asleep, running) = (asleep?, running?);
        // A machine that runs is not affected.
        running.counter().await.context("a running machine was lost")?;
        let woken = asleep.wake().await;
        ensure!(matches!(woken, Err(NodeError::Unfit(_))), "{woken:?}");
        ensure!(asleep.phase() == Phase::Hibernated);
        let created = create(&lab, &kept.id).await.map(|guest| guest.id().clone());
        ensure!(matches!(created, Err(NodeError::Unfit(_))), "{created:?}");
        asleep.start_cold().await?;
        ensure!(asleep.shell("cat /kept").await? == "kept");

        let old = lab.template().clone();
        let baked = lab::bake_anew(&lab).await?;
        ensure!(baked != old, "the old template was taken");
        let fresh = create(&lab, &baked).await?;
        fresh.shell("true").await?;
        ensure!(
            !lab.snapshot_directory(&old).exists() || running.machine().is_ok(),
            "the old template is still there"
        );
        for guest in [asleep, running, fresh] {
            guest.remove().await?;
        }
        tests::wait::until("the old template is gone", Duration::from_secs(60), || {
            !lab.snapshot_directory(&old).exists()
        })
        .await?;
        lab.remove().await
    })
}

#[test]
fn a_full_disk_is_told_and_nothing_is_lost() -> Result<()> {
    run(async || {
        let settings =
            LabSettings { pool_bytes: 900 << 20, contents: Contents::Snapshot, ..LabSettings::new("full") };
        let lab = Lab::open(settings).await?;
        let guest = lab.create().await?;
        guest.shell("echo kept > /kept; sync").await?;
        guest.start_counter().await?;
        let clean = lab.settled_census().await?;
        // Most of the guest's memory is changed, so that saving it takes more than is left.
        guest.shell("head -c 60000000 /dev/urandom > /run/large").await?;
        let filler = lab.pool().join("filler");
        fill(&filler)?;
        let counted = guest.counter().await?;
        let taken = lab.node().snapshot(&guest).await.map(|(info, _)| info.id);
        ensure!(matches!(taken, Err(NodeError::NoSpace { .. })), "snapshot: {taken:?}");
        let slept = guest.hibernate().await;
        ensure!(matches!(slept, Err(NodeError::NoSpace { .. })), "hibernate: {slept:?}");
        let forked = lab.node().fork(&guest, 1).await.map(|(children, _)| children.len());
        ensure!(matches!(forked, Err(NodeError::NoSpace { .. })), "fork: {forked:?}");
        ensure!(guest.phase() == Phase::Running);
        ensure!(guest.counter().await? >= counted, "it did not go on");
        lab.expect_census(&clean).await.context("parts of what failed are left")?;
        fs::remove_file(&filler)?;
        guest.hibernate().await.context("hibernate when there is room again")?;
        guest.wake().await?;
        ensure!(guest.counter().await? >= counted);
        ensure!(guest.shell("cat /kept").await? == "kept");
        guest.remove().await?;
        lab.remove().await
    })
}

/// Takes all but a few megabytes of a file system.
fn fill(path: &Path) -> Result<()> {
    let file = File::create(path)?;
    let space = rustix::fs::statvfs(path)?;
    let free = space.f_bavail * space.f_frsize;
    let bytes = free.saturating_sub(12 << 20);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).context("fill the pool")?;
    Ok(())
}

#[test]
fn a_request_given_up_half_way_leaves_nothing() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("given-up")).await?;
        let clean = lab.settled_census().await?;
        for patience in [5, 20, 40, 60, 90, 130, 200] {
            let request = create(&lab, lab.template());
            // Whether it was made in time or given up: afterwards there is what the node says there is.
            drop(tokio::time::timeout(Duration::from_millis(patience), request).await);
            let given_up = async || {
                for sandbox in lab.node().sandboxes() {
                    sandbox.delete().await?;
                }
                Ok(lab.census()? == clean)
            };
            let outcome =
                tests::wait::until_async("nothing is left", Duration::from_secs(60), given_up).await;
            let found = lab.census()?;
            outcome.with_context(|| format!("given up after {patience} ms: {found:?}, not {clean:?}"))?;
        }
        let parent = lab.create().await?;
        // One that was given up may begin only now, on a slow host: what there is at this moment is nothing to compare with.
        let mut with_parent = clean.clone();
        with_parent.machines += 1;
        with_parent.namespaces += 1;
        with_parent.sandboxes.insert(parent.id().to_string());
        for patience in [10, 60, 150] {
            let request = lab.node().fork(&parent, 2);
            drop(tokio::time::timeout(Duration::from_millis(patience), request).await);
            let given_up = async || {
                for sandbox in lab.node().sandboxes() {
                    if sandbox.id() != parent.id() {
                        sandbox.delete().await?;
                    }
                }
                Ok(lab.census()? == with_parent)
            };
            let outcome =
                tests::wait::until_async("nothing is left", Duration::from_secs(60), given_up).await;
            let found = lab.census()?;
            outcome.with_context(|| {
                format!("fork given up after {patience} ms: {found:?}, not {with_parent:?}")
            })?;
        }
        parent.shell("true").await?;
        parent.remove().await?;
        lab.remove().await
    })
}

#[test]
fn more_sandboxes_than_addresses_are_refused_and_slots_come_back() -> Result<()> {
    run(async || {
        let mut lab = Lab::prepare(LabSettings::new("addresses")).await?;
        let base = lab.config().addresses.to_string();
        let base = base.split('/').next().unwrap_or_default().to_owned();
        lab.config().addresses = network::AddressPool::new(base.parse()?, 29)?;
        let lab = lab.open().await?;
        let clean = lab.settled_census().await?;
        for _ in 0..2 {
            let (one, two) = (lab.create().await?, lab.create().await?);
            let full = lab.settled_census().await?;
            let third = create(&lab, lab.template()).await.map(|guest| guest.id().clone());
            ensure!(matches!(third, Err(NodeError::Network(_))), "{third:?}");
            lab.expect_census(&full).await.context("a refused sandbox left something")?;
            // A sleeper holds no address.
            one.hibernate().await?;
            let third = lab.create().await?;
            let woken = one.wake().await;
            ensure!(matches!(woken, Err(NodeError::Network(_))), "{woken:?}");
            ensure!(one.phase() == Phase::Hibernated);
            third.remove().await?;
            one.wake().await?;
            one.shell("true").await?;
            one.remove().await?;
            two.remove().await?;
            lab.expect_census(&clean).await?;
        }
        lab.remove().await
    })
}
