//! What the keeper of an archive does by itself: uploads that are killed, stores that are down, disks that nobody needs any more.

use anyhow::{Result, ensure};
use node::SnapshotPlace;
use tests::frail_store::Fault;
use tests::node_process::NodeProcess;
use tests::{Lab, LabSettings, census, run, wait};

use super::bucket::Bucket;
use super::{TIMEOUT, archived, expect_kept, expect_place, kept, lab, place};

#[test]
fn a_disk_that_came_alone_goes_with_its_last_user() -> Result<()> {
    run(async || {
        let (lab, _archive) = lab("archivelanded").await?;
        let id = archived(&lab).await?;
        let disk = lab.pool().join("archived").join(id.as_str()).join("landed");
        // One goes while the next is made, all the time: none finds its disk gone.
        let mut last = lab.create_from(&id).await?;
        for _ in 0..3 {
            let (gone, next) = tokio::join!(last.remove(), lab.create_from(&id));
            gone?;
            last = next?;
        }
        expect_kept(&last).await?;
        last.remove().await?;
        wait::until("the disk is gone", TIMEOUT, || !disk.exists()).await?;
        expect_place(&lab, &id, SnapshotPlace::Archive).await?;
        // One that a killed node left goes too.
        let closed = lab.close().await;
        std::fs::write(&disk, b"left")?;
        let lab = closed.open().await?;
        wait::until("the disk is gone", TIMEOUT, || !disk.exists()).await?;
        let guest = lab.create_from(&id).await?;
        expect_kept(&guest).await?;
        guest.remove().await?;
        lab.remove().await
    })
}

#[test]
fn nothing_is_packed_for_a_store_that_is_down() -> Result<()> {
    run(async || {
        let bucket = Bucket::start().await?;
        let mut closed = Lab::prepare(LabSettings::new("archivedown")).await?;
        closed.config().archive = Some(bucket.config()?);
        let lab = closed.open().await?;
        bucket.way.always(Fault::Status(503));
        let guest = lab.create().await?;
        let (info, _) = lab.node().snapshot(&guest).await?;
        guest.remove().await?;
        let staging = lab.pool().join("archived/.staging");
        wait::until_async("the store is tried", TIMEOUT, async || {
            let staged = census::entries(&staging)?;
            ensure!(staged.is_empty(), "something is packed: {staged:?}");
            Ok(bucket.way.seen_count() >= bucket.tries())
        })
        .await?;
        let seen = bucket.way.seen();
        ensure!(
            seen.iter().all(|seen| seen.length == 0),
            "the store was asked for more than a trifle: {seen:?}"
        );
        ensure!(place(&lab, &info.id) == Some(SnapshotPlace::Local), "it is said to be archived");
        // The next node need not wait for this one's rest.
        bucket.way.heal();
        let lab = lab.close().await.open().await?;
        expect_place(&lab, &info.id, SnapshotPlace::Archive).await?;
        lab.remove().await
    })
}

#[test]
fn a_killed_upload_is_done_again_and_leaves_nothing() -> Result<()> {
    run(async || {
        let bucket = Bucket::start().await?;
        let lab = Lab::open(LabSettings::new("archivekilled")).await?;
        let id = kept(&lab).await?;
        let mut closed = lab.close().await;
        // Of the memory one part never arrives.
        bucket.way.always_when(|seen| seen.target.contains("partNumber=2"), Fault::Stall);
        let process = NodeProcess::start(&mut closed, &["archive", &bucket.address()], bucket.environment())?;
        wait::until("an upload is under way", TIMEOUT, || {
            bucket.way.seen().iter().any(|seen| seen.target.contains("partNumber=2"))
        })
        .await?;
        process.kill().await?;
        ensure!(bucket.server.incomplete_uploads().await? == 1, "the upload was not killed half way");
        bucket.way.heal();
        closed.config().archive = Some(bucket.config()?);
        let lab = closed.open().await?;
        expect_place(&lab, &id, SnapshotPlace::Archive).await?;
        ensure!(bucket.server.incomplete_uploads().await? == 0, "parts of the killed upload are left");
        let blobs = bucket.list().await?;
        ensure!(blobs.len() == 2, "in the store are {blobs:?}");
        let guest = lab.create_from(&id).await?;
        expect_kept(&guest).await?;
        guest.remove().await?;

        lab.node().delete_snapshot(&id)?;
        let emptied = async || Ok(bucket.list().await?.is_empty());
        wait::until_async("deleted snapshots leave the archive", TIMEOUT, emptied).await?;
        let notes = census::entries(&lab.pool().join("archived"))?;
        ensure!(!notes.iter().any(|name| name.starts_with(".putting")), "notes are left: {notes:?}");
        lab.remove().await
    })
}
