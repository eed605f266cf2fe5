//! Archived snapshots on bad days: damaged files here, a store that fails while a guest waits for its memory, a node that is killed
//! while memory is still coming. Clear words or the right bytes, and never a guest with wrong memory.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use domain::SandboxId;
use domain::lifecycle::Phase;
use node::{CreateFrom, CreateRequest, NodeError};
use tests::frail_store::Fault;
use tests::harm::{Harm, flip_bit, harm};
use tests::node_process::NodeProcess;
use tests::{Guest, Lab, LabSettings, engine, run, wait};

use super::bucket::Bucket;
use super::{archived, expect_failure, expect_kept, lab};

/// Longest that a store in trouble may keep somebody waiting: all tries, all of them without an answer, and what surrounds them.
const TROUBLE_MAX: Duration = Duration::from_secs(60);

#[test]
fn what_leads_to_an_archived_snapshot_is_verified() -> Result<()> {
    run(async || {
        let (lab, _archive) = lab("archivedamage").await?;
        let clean = lab.settled_census().await?;
        let id = archived(&lab).await?;
        let directory = lab.pool().join("archived").join(id.as_str());
        for (name, what) in [
            ("devices", Harm::OneBit),
            ("devices", Harm::CutShort),
            ("devices", Harm::Missing),
            ("memory.index", Harm::OneBit),
            ("disk.index", Harm::CutShort),
        ] {
            let mend = harm(&directory.join(name), what)?;
            let request = CreateRequest::new(CreateFrom::Snapshot(id.clone()));
            let created = lab.node().create(request).await.map(|(sandbox, _)| sandbox.id().clone());
            ensure!(matches!(created, Err(NodeError::Damaged { .. })), "{name} {what:?}: {created:?}");
            mend()?;
            lab.expect_census(&clean).await.with_context(|| format!("{name} {what:?}"))?;
        }
        let guest = lab.create_from(&id).await?;
        expect_kept(&guest).await?;
        // What came from the archive is fetched again where it is not as it came.
        let landed = directory.join("landed");
        if landed.exists() {
            flip_bit(&landed)?;
        }
        let lab = damage_cache(lab, guest).await?;
        let guest = lab.create_from(&id).await?;
        expect_kept(&guest).await?;
        guest.remove().await?;
        lab.remove().await
    })
}

/// Changes every chunk that is kept here, under the next node: this one holds some of them in memory.
async fn damage_cache(lab: Lab, guest: Guest) -> Result<Lab> {
    let sandbox = guest.keep().id().clone();
    let closed = lab.close().await;
    let mut left = vec![closed.data_dir().join("pool/chunks")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() { left.push(path) } else { flip_bit(&path)? }
        }
    }
    let lab = closed.open().await?;
    let guest = Guest::new(lab.node().sandbox(&sandbox)?);
    expect_kept(&guest).await.context("a guest that was there before")?;
    guest.remove().await?;
    Ok(lab)
}

#[test]
fn a_store_in_trouble_keeps_a_guest_waiting_for_a_bounded_time() -> Result<()> {
    run(async || {
        let bucket = Bucket::start().await?;
        let mut closed = Lab::prepare(LabSettings::new("archivetrouble")).await?;
        closed.config().archive = Some(bucket.config()?);
        let lab = closed.open().await?;
        let id = archived(&lab).await?;
        let mut closed = lab.close().await;
        closed.config().archive = Some(bucket.impatient_config()?);
        let lab = closed.open().await?;
        let before = lab.settled_census().await?;
        for (fault, words) in [
            (Fault::Status(500), "could not fetch"),
            (Fault::CutAfter(1000), "could not fetch"),
            (Fault::Flip(10), "wrong bytes"),
            (Fault::Stall, "could not fetch"),
        ] {
            bucket.way.always_when(|seen| seen.method == "GET" && seen.target.contains("/memory"), fault);
            let began = Instant::now();
            expect_failure(&lab, &id, &[words]).await.with_context(|| format!("{fault:?}"))?;
            let took = began.elapsed();
            ensure!(took < wait::scaled(TROUBLE_MAX), "{fault:?}: it took {took:?} to tell");
            lab.expect_census(&before).await.with_context(|| format!("{fault:?}"))?;
        }
        bucket.way.heal();
        let mut closed = lab.close().await;
        closed.config().archive = Some(bucket.config()?);
        let lab = closed.open().await?;
        let guest = lab.create_from(&id).await?;
        expect_kept(&guest).await?;
        guest.remove().await?;
        lab.remove().await
    })
}

#[test]
fn a_guest_goes_on_after_its_node_is_killed_while_memory_is_coming() -> Result<()> {
    run(async || {
        let (lab, archive) = lab("archivekillednode").await?;
        let id = archived(&lab).await?;
        let mut closed = lab.close().await;
        let address = archive.display().to_string();
        let mut process = NodeProcess::start(&mut closed, &["archive", &address, id.as_str()], Vec::new())?;
        let made = process.done("mark").await?;
        process.kill().await?;
        let sandbox = SandboxId::parse(made["id"].as_str().context("no id")?)?;
        let lab = closed.open().await?;
        let guest = Guest::new(lab.node().sandbox(&sandbox)?);
        ensure!(
            guest.phase() == Phase::Running,
            "it is {:?}: {:?}",
            guest.phase(),
            guest.state().record.died
        );
        let on_demand = guest.state().record.vm.as_ref().is_some_and(|vm| vm.on_demand.is_some());
        ensure!(on_demand == engine::engine()?.takes_memory_on_demand(), "its memory came another way");
        // What it wrote since, what it had when it was saved, and the process that counts.
        let found = guest.shell("cat /mine /run/mine").await?;
        ensure!(found == format!("{sandbox}\n{sandbox}"), "found {found:?}");
        expect_kept(&guest).await?;
        guest.remove().await?;
        lab.remove().await
    })
}
