//! Templates: baked once, anew when something changed, and not at all when it cannot be done. Machines kept ready ahead of need.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::EngineFingerprint;
use node::{BakeProgress, BakeStage, CreateFrom, CreateRequest, NodeError};
use tests::baked::template;
use tests::engine::{Upgraded, engine};
use tests::{Guest, Lab, LabSettings, census, in_lab, run, wait};

/// A lab whose template no longer fits its engine: everything to bake it anew is there.
async fn outdated_lab(name: &'static str) -> Result<Lab> {
    let lab = Lab::prepare(LabSettings::new(name)).await?;
    lab.open_with(Arc::new(Upgraded::new(engine()?))).await
}

#[test]
fn concurrent_first_uses_bake_once() -> Result<()> {
    run(async || {
        let lab = outdated_lab("once").await?;
        let boots = AtomicUsize::new(0);
        let report = |progress: BakeProgress| {
            boots.fetch_add(usize::from(matches!(progress.stage, BakeStage::Booting)), Ordering::Relaxed);
        };
        let spec = template();
        let bake = || lab.node().template(&spec, &report);
        let (one, two, three) = tokio::join!(bake(), bake(), bake());
        let (one, two, three) = (one?, two?, three?);
        ensure!(one == two && two == three, "{one} {two} {three}");
        ensure!(boots.load(Ordering::Relaxed) == 1, "it was booted {} times", boots.load(Ordering::Relaxed));
        ensure!(bake().await? == one, "it was baked again");
        // The bake it replaces is gone, and so is everything that baking needed.
        let census = lab.settled_census().await?;
        ensure!(census.machines == 0 && census.namespaces == 0 && census.waiting.is_empty(), "{census:?}");
        ensure!(census.snapshots.len() == 1, "{census:?}");
        let guest = lab.create_from(&one).await?;
        guest.shell("true").await?;
        guest.remove().await?;
        lab.remove().await
    })
}

#[test]
fn a_clock_that_is_measured_anew_bakes_nothing() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("clock")).await?;
        let first = lab.node().template(&template(), &|_| {}).await?;
        let off = |khz: i64| {
            move |found: &mut EngineFingerprint| found.tsc_khz = found.tsc_khz.saturating_add_signed(khz)
        };
        // As two measurements differ: a few ticks.
        let lab = lab.close().await.open_with(Arc::new(Upgraded::changed(engine()?, off(3)))).await?;
        ensure!(lab.node().template(&template(), &|_| {}).await? == first, "it was baked again");
        // As two processors differ.
        let lab = lab.close().await.open_with(Arc::new(Upgraded::changed(engine()?, off(500_000)))).await?;
        let second = lab.node().template(&template(), &|_| {}).await?;
        ensure!(second != first, "a bake for another clock was used");
        let census = lab.settled_census().await?;
        ensure!(census.snapshots.len() == 1, "{census:?}");
        lab.remove().await
    })
}

#[test]
fn a_bake_that_fails_leaves_nothing() -> Result<()> {
    run(async || {
        let mut lab = Lab::prepare(LabSettings::new("failing")).await?;
        lab.config().boot_patience = Duration::from_millis(300);
        let lab = lab.open_with(Arc::new(Upgraded::new(engine()?))).await?;
        let clean = lab.settled_census().await?;
        let silent = lab.node().template(&template(), &|_| {}).await;
        ensure!(matches!(silent, Err(NodeError::GuestSilent { .. })), "{silent:?}");
        lab.expect_census(&clean).await?;

        // No room for the template's memory.
        let filler = lab.pool().join("filler");
        let file = std::fs::File::create(&filler)?;
        let space = rustix::fs::statvfs(&filler)?;
        let bytes = (space.f_bavail * space.f_frsize).saturating_sub(100 << 20);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
        let full = lab.node().template(&template(), &|_| {}).await;
        ensure!(matches!(full, Err(NodeError::NoSpace { .. })), "{full:?}");
        drop(file);
        std::fs::remove_file(&filler)?;
        lab.expect_census(&clean).await?;

        // A warm-up command that fails says what it said.
        let mut lab = lab.close().await;
        lab.config().boot_patience = Duration::from_secs(120);
        let lab = lab.open_with(Arc::new(Upgraded::new(engine()?))).await?;
        let mut spec = template();
        spec.warm = vec![["/bin/sh", "-c", "echo it is cold >&2; exit 4"].map(str::to_owned).to_vec()];
        match lab.node().template(&spec, &|_| {}).await {
            Err(NodeError::Warm { output, status, .. }) => {
                ensure!(output.contains("it is cold") && status.contains('4'), "{output} {status}");
            }
            other => anyhow::bail!("{other:?}"),
        }
        lab.expect_census(&clean).await?;
        lab.remove().await
    })
}

#[test]
fn machines_are_kept_ready_and_dead_ones_replaced() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings { kept_ready: 1, ..LabSettings::new("ready") }).await?;
        let first = lab.create().await?;
        let ready = async || {
            let count = || lab.node().stats().prestarted_vmms == 1;
            wait::until("a machine is ready", Duration::from_secs(60), count).await
        };
        ready().await?;
        let request = || CreateRequest::new(CreateFrom::Snapshot(lab.template().clone()));
        let (second, timings) = lab.node().create(request()).await?;
        let second = Guest::new(second);
        ensure!(timings.prestarted, "{timings:?}");
        second.shell("true").await?;
        ready().await?;

        // One that died while it waited is not given to anybody.
        let tag = census::tag(lab.data_dir()).context("a tag")?;
        let used = [first.machine()?, second.machine()?];
        for machine in census::machines(&tag)?.into_iter().filter(|machine| !used.contains(machine)) {
            tests::leftovers::os::kill_process(machine)?;
        }
        let (third, _) = lab.node().create(request()).await?;
        let third = Guest::new(third);
        third.shell("true").await?;
        ready().await?;
        wait::until("the dead one's place is gone", Duration::from_secs(60), || {
            census::entries(&lab.pool().join("waiting")).is_ok_and(|entries| entries.len() == 1)
        })
        .await?;
        for guest in [first, second, third] {
            guest.remove().await?;
        }
        let data_dir = lab.data_dir().to_owned();
        let lab = lab.close().await;
        // A closed node leaves nothing that is not a sandbox's.
        let census = census::Census::take(&data_dir)?;
        ensure!(census.machines == 0 && census.namespaces == 0 && census.waiting.is_empty(), "{census:?}");
        lab.remove()
    })
}

#[test]
fn as_many_machines_are_kept_ready_as_were_asked_for_at_once() -> Result<()> {
    run(async || {
        let settings = LabSettings { kept_ready: 1, kept_ready_max: 3, ..LabSettings::new("demand") };
        let lab = Lab::open(settings).await?;
        let ready = async |count: usize| {
            let seen = || lab.node().stats().prestarted_vmms == count;
            wait::until("machines are ready", Duration::from_secs(60), seen).await
        };
        let first = lab.create().await?;
        ready(1).await?;
        let create = || async {
            let request = CreateRequest::new(CreateFrom::Snapshot(lab.template().clone()));
            lab.node().create(request).await
        };
        // One finds a machine, three do not; but only so many are ever kept.
        let (a, b, c, d) = tokio::join!(create(), create(), create(), create());
        let mut waited = 0;
        let mut guests = vec![first];
        for made in [a, b, c, d] {
            let (sandbox, timings) = made?;
            waited += usize::from(timings.prestarted);
            guests.push(Guest::new(sandbox));
        }
        ensure!(waited == 1, "{waited} found a machine that waited");
        ready(3).await?;
        let (a, b, c) = tokio::join!(create(), create(), create());
        for made in [a, b, c] {
            let (sandbox, timings) = made?;
            ensure!(timings.prestarted, "{timings:?}");
            guests.push(Guest::new(sandbox));
        }
        for guest in guests {
            guest.remove().await?;
        }
        lab.close().await.remove()
    })
}

#[test]
fn what_a_template_has_free_was_given_back_before_it_was_kept() -> Result<()> {
    in_lab(async |lab| {
        if !engine()?.reclaims_free_pages() {
            eprintln!("SKIPPED: guests of this engine give no memory back");
            return Ok(());
        }
        let guest = lab.create().await?;
        // A kernel gives back every two seconds. What a template had left, all sandboxes made from it would have to.
        guest.shell("sleep 5").await?;
        let counters = guest.counters().await.context("the machine does not say what it counted")?;
        let given = counters.given_back_bytes.context("it does not count what is given back")?;
        ensure!(given < 32 << 20, "a guest that did nothing gave back {given} bytes");
        guest.remove().await
    })
}
