//! Snapshots in an archive: put there by themselves, brought back when used, gone when deleted, and clear words when it fails.
//!
//! With an engine that takes memory on demand a machine begins before its memory is here; where that cannot be it comes back whole
//! first. What a user sees is the same.

mod bucket;
mod trouble;
mod upkeep;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::SnapshotId;
use domain::lifecycle::Phase;
use node::{ArchiveConfig, NodeError, SnapshotPlace};
use storage::blobs::{BlobAddress, BlobsConfig};
use tests::engine::Upgraded;
use tests::{Guest, Lab, LabSettings, engine, run, wait};

const TIMEOUT: Duration = Duration::from_secs(120);

/// A node that keeps as little of archived snapshots as it can, and its archive, in a directory beside.
async fn lab(name: &'static str) -> Result<(Lab, PathBuf)> {
    let mut closed = Lab::prepare(LabSettings::new(name)).await?;
    let archive = closed.data_dir().join("archive");
    closed.config().archive = Some(ArchiveConfig {
        blobs: BlobsConfig::new(BlobAddress::Directory(archive.clone())),
        local_bytes_max: Some(0),
        cache_bytes_max: 1 << 30,
    });
    Ok((closed.open().await?, archive))
}

fn place(lab: &Lab, id: &SnapshotId) -> Option<SnapshotPlace> {
    lab.node().snapshots().into_iter().find(|info| info.id == *id).map(|info| info.place)
}

async fn expect_place(lab: &Lab, id: &SnapshotId, expected: SnapshotPlace) -> Result<()> {
    wait::until_async("the snapshot is where it belongs", TIMEOUT, async || {
        Ok(place(lab, id) == Some(expected))
    })
    .await
    .with_context(|| format!("it is {:?}, not {expected:?}", place(lab, id)))
}

/// A snapshot of a guest with something in memory and on disk.
async fn kept(lab: &Lab) -> Result<SnapshotId> {
    let guest = lab.create().await?;
    guest.shell("echo kept > /run/in-memory; echo kept > /on-disk").await?;
    // More than what the guest needs to answer, so that most of it is not touched by chance.
    guest.shell("head -c 12000000 /dev/urandom > /run/much; sha256sum < /run/much > /run/sum").await?;
    guest.start_counter().await?;
    let (info, _) = lab.node().snapshot(&guest).await?;
    guest.remove().await?;
    Ok(info.id)
}

/// The same, in the archive alone.
async fn archived(lab: &Lab) -> Result<SnapshotId> {
    let id = kept(lab).await?;
    expect_place(lab, &id, SnapshotPlace::Archive).await?;
    ensure!(!lab.snapshot_directory(&id).exists(), "its files are still here");
    Ok(id)
}

async fn expect_kept(guest: &Guest) -> Result<()> {
    let found = guest.shell("cat /run/in-memory /on-disk; sha256sum < /run/much | cmp - /run/sum").await?;
    ensure!(found == "kept\nkept", "found {found:?}");
    guest.counter().await.map(drop)
}

/// Everything that lies in the archive.
fn objects(archive: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![archive.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).context("look into the archive")? {
            let path = entry?.path();
            if path.is_dir() { left.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}

fn object(archive: &Path, id: &SnapshotId, part: &str) -> PathBuf {
    archive.join("snapshots").join(id.as_str()).join(part)
}

/// Forgets what came from the archive earlier.
fn empty_cache(lab: &Lab) -> Result<()> {
    for entry in fs::read_dir(lab.pool().join("chunks"))? {
        let path = entry?.path();
        if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    Ok(())
}

#[test]
fn an_archived_snapshot_is_used_like_any_other() -> Result<()> {
    run(async || {
        let (lab, archive) = lab("archive").await?;
        let before = lab.settled_census().await?;
        let id = archived(&lab).await?;
        let guest = lab.create_from(&id).await?;
        let on_demand = guest.state().record.vm.as_ref().is_some_and(|vm| vm.on_demand.is_some());
        ensure!(on_demand == engine::engine()?.takes_memory_on_demand(), "its memory came another way");
        expect_kept(&guest).await?;
        // Two at once, of which neither disturbs the other.
        let second = lab.create_from(&id).await?;
        second.shell("echo second > /run/in-memory; echo second > /on-disk").await?;
        expect_kept(&guest).await?;

        // What is made from it is whole, and needs the archive no more.
        guest.shell("echo again > /run/in-memory").await?;
        let child = lab.fork(&guest, 1).await?.pop().context("a child")?;
        let (again, _) = lab.node().snapshot(&guest).await?;
        guest.hibernate().await?;
        expect_place(&lab, &again.id, SnapshotPlace::Archive).await?;
        fs::rename(&archive, archive.with_extension("away"))?;
        guest.wake().await?;
        for guest in [&guest, &child] {
            let found = guest.shell("cat /run/in-memory; sha256sum < /run/much | cmp - /run/sum").await?;
            ensure!(found == "again", "found {found:?}");
            guest.counter().await?;
        }
        fs::rename(archive.with_extension("away"), &archive)?;
        let third = lab.create_from(&again.id).await?;
        ensure!(third.shell("cat /run/in-memory").await? == "again");

        for guest in [guest, second, child, third] {
            guest.remove().await?;
        }
        for id in [id, again.id] {
            lab.node().delete_snapshot(&id)?;
        }
        let emptied = || Ok(objects(&archive)?.is_empty());
        wait::until_async("deleted snapshots leave the archive", TIMEOUT, async || emptied()).await?;
        lab.expect_census(&before).await?;
        lab.remove().await
    })
}

#[test]
fn a_guest_goes_on_under_the_next_node_wherever_its_memory_comes_from() -> Result<()> {
    run(async || {
        let (lab, _archive) = lab("archivenode").await?;
        let id = archived(&lab).await?;
        let guest = lab.create_from(&id).await?;
        let count = guest.counter().await?;
        let sandbox = guest.keep().id().clone();
        let lab = lab.close().await.open().await?;
        ensure!(place(&lab, &id).is_some(), "the snapshot is not known any more");
        let guest = Guest::new(lab.node().sandbox(&sandbox)?);
        ensure!(guest.phase() == Phase::Running, "it is {:?}", guest.phase());
        // Most of its memory was not here when the first node closed.
        expect_kept(&guest).await?;
        ensure!(guest.counter().await? >= count, "the counter began anew");
        // Deleted while a machine needs it: it stays until that is gone.
        lab.node().delete_snapshot(&id)?;
        let child = lab.fork(&guest, 1).await?.pop().context("a child")?;
        expect_kept(&child).await?;
        child.remove().await?;
        guest.remove().await?;
        lab.remove().await
    })
}

#[test]
fn a_host_without_memory_on_demand_brings_snapshots_back_whole() -> Result<()> {
    run(async || {
        let (lab, _archive) = lab("archivewhole").await?;
        let id = archived(&lab).await?;
        let engine = Upgraded::without_memory_on_demand(engine::engine()?);
        let lab = lab.close().await.open_with(Arc::new(engine)).await?;
        let guest = lab.create_from(&id).await?;
        let on_demand = guest.state().record.vm.as_ref().is_some_and(|vm| vm.on_demand.is_some());
        ensure!(!on_demand, "its memory came on demand");
        expect_kept(&guest).await?;
        guest.remove().await?;
        lab.remove().await
    })
}

#[test]
fn memory_that_does_not_come_ends_with_clear_words() -> Result<()> {
    run(async || {
        let (lab, archive) = lab("archivegone").await?;
        let before = lab.settled_census().await?;
        let id = archived(&lab).await?;
        // Damaged: other bytes of the same length.
        let memory = object(&archive, &id, "memory");
        let good = fs::read(&memory)?;
        fs::write(&memory, good.iter().map(|byte| !byte).collect::<Vec<_>>())?;
        expect_failure(&lab, &id, &["wrong bytes"]).await?;
        // Cut short, and gone.
        fs::write(&memory, &good[..good.len() / 2])?;
        expect_failure(&lab, &id, &["not in the store", "could not fetch"]).await?;
        fs::remove_file(&memory)?;
        expect_failure(&lab, &id, &["not in the store"]).await?;
        lab.expect_census(&before).await?;
        // The snapshot itself has come to no harm.
        fs::write(&memory, &good)?;
        empty_cache(&lab)?;
        let guest = lab.create_from(&id).await?;
        expect_kept(&guest).await?;
        guest.remove().await?;
        lab.remove().await
    })
}

/// A machine of the snapshot does not come to be, or ends as soon as it needs what is not there, and says why.
async fn expect_failure(lab: &Lab, id: &SnapshotId, words: &[&str]) -> Result<()> {
    empty_cache(lab)?;
    let said = match lab.create_from(id).await {
        Err(error) => format!("{error:#}"),
        Ok(guest) => {
            let outcome = guest.shell("sha256sum /run/much").await;
            ensure!(outcome.is_err(), "it had all of its memory");
            wait::until_async("it is seen to have died", TIMEOUT, async || Ok(guest.phase() == Phase::Died))
                .await?;
            let died = guest.state().record.died.clone().unwrap_or_default();
            ensure!(died.contains("memory could not be fetched"), "it died of {died:?}");
            guest.remove().await?;
            died
        }
    };
    ensure!(words.iter().any(|words| said.contains(words)), "{said:?} does not say {words:?}");
    Ok(())
}

#[test]
fn a_node_without_the_archive_says_so() -> Result<()> {
    run(async || {
        let (lab, _archive) = lab("archivenone").await?;
        let id = archived(&lab).await?;
        let mut closed = lab.close().await;
        let archive = closed.config().archive.take();
        let lab = closed.open().await?;
        ensure!(place(&lab, &id) == Some(SnapshotPlace::Archive), "the snapshot is not listed");
        let request = node::CreateRequest::new(node::CreateFrom::Snapshot(id.clone()));
        let refused = lab.node().create(request).await;
        ensure!(matches!(refused, Err(NodeError::NoArchive(_))), "it was {:?}", refused.map(drop));
        let mut closed = lab.close().await;
        closed.config().archive = archive;
        let lab = closed.open().await?;
        expect_kept(&lab.create_from(&id).await?).await?;
        lab.remove().await
    })
}

#[test]
fn an_archive_that_cannot_be_written_loses_nothing() -> Result<()> {
    run(async || {
        let (lab, archive) = lab("archivefull").await?;
        // A file where the archive wants a directory.
        fs::remove_dir_all(&archive).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        fs::write(&archive, b"")?;
        let guest = lab.create().await?;
        guest.shell("echo kept > /run/in-memory").await?;
        let (info, _) = lab.node().snapshot(&guest).await?;
        ensure!(place(&lab, &info.id) == Some(SnapshotPlace::Local), "it is said to be archived");
        let again = lab.create_from(&info.id).await?;
        ensure!(again.shell("cat /run/in-memory").await? == "kept");
        again.remove().await?;
        guest.remove().await?;
        // A node that comes later has what this one could not do.
        let closed = lab.close().await;
        fs::remove_file(&archive)?;
        let lab = closed.open().await?;
        expect_place(&lab, &info.id, SnapshotPlace::Archive).await?;
        lab.node().delete_snapshot(&info.id)?;
        let emptied = || Ok(objects(&archive)?.is_empty());
        wait::until_async("deleted snapshots leave the archive", TIMEOUT, async || emptied()).await?;
        lab.remove().await
    })
}
