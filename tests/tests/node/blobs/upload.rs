//! Uploads to a store that fails: complete, or nothing under the name.

use std::time::Duration;

use anyhow::{Result, ensure};
use storage::blobs::{BlobError, PART_BYTES};
use tests::frail_store::{Fault, FrailStore};
use tests::packed::Folder;
use tests::s3_server::S3Server;
use tests::{run, wait};

use super::{TRIES, bucket, file_of, key, noise};

#[test]
fn an_upload_gets_over_faults_that_pass() -> Result<()> {
    run(async || {
        let server = S3Server::start().await?;
        let way = FrailStore::start(server.address()).await?;
        let folder = Folder::new("blobs-upload")?;
        let blobs = bucket(way.address(), "p")?;
        let bytes = noise(PART_BYTES as usize * 3 + 1, 3);
        // The beginning, two parts and one part's second try.
        way.next([Some(Fault::Status(500)), None, Some(Fault::Close), Some(Fault::LoseAnswer), None, None]);
        way.next([Some(Fault::Status(503))]);
        blobs.put_file(&key("blob"), file_of(&folder, "file", &bytes)?).await?;
        ensure!(blobs.read(&key("blob"), u64::MAX).await? == bytes);
        // Five requests: begin, four parts; then the store completes it, and nobody hears of it.
        way.next([None, None, None, None, None, Some(Fault::LoseAnswer)]);
        blobs.put_file(&key("other"), file_of(&folder, "file", &bytes)?).await?;
        ensure!(blobs.read(&key("other"), u64::MAX).await? == bytes);
        way.next([Some(Fault::LoseAnswer), Some(Fault::Status(500))]);
        blobs.put(&key("small"), b"bytes".to_vec()).await?;
        ensure!(blobs.read(&key("small"), 5).await? == b"bytes");
        ensure!(server.incomplete_uploads().await? == 0);
        Ok(())
    })
}

#[test]
fn an_upload_that_fails_or_is_dropped_leaves_nothing_under_the_name() -> Result<()> {
    run(async || {
        let server = S3Server::start().await?;
        let way = FrailStore::start(server.address()).await?;
        let folder = Folder::new("blobs-failed-upload")?;
        let blobs = bucket(way.address(), "p")?;
        let bytes = noise(PART_BYTES as usize * 3 + 1, 4);
        let file = || file_of(&folder, "file", &bytes);
        // One part is refused as often as it is tried; the others, and giving up, go well.
        way.always_when(|seen| seen.target.contains("partNumber=2"), Fault::Status(500));
        let failed = blobs.put_file(&key("blob"), file()?).await.err();
        ensure!(matches!(failed, Some(BlobError::Failed { tries: TRIES, .. })), "{failed:?}");
        ensure!(blobs.list(&key("blob")).await?.is_empty() && server.incomplete_uploads().await? == 0);

        way.always(Fault::Status(500));
        let failed = blobs.put(&key("small"), b"bytes".to_vec()).await.err();
        let text = failed.as_ref().map(ToString::to_string);
        ensure!(text.as_deref() == Some("could not write `small` in 3 tries"), "{failed:?}");
        way.heal();

        // Dropped in the middle, as a killed process does it: of four parts one never arrives.
        way.seen();
        way.always_when(|seen| seen.target.contains("partNumber=3"), Fault::Stall);
        let name = key("blob");
        let upload = blobs.put_file(&name, file()?);
        let arrived = wait::until("the parts", Duration::from_secs(30), || way.seen_count() >= 5);
        tokio::select! {
            done = upload => anyhow::bail!("the upload ended: {done:?}"),
            arrived = arrived => arrived?,
        }
        way.heal();
        let absent = blobs.read(&key("blob"), u64::MAX).await.err();
        ensure!(matches!(absent, Some(BlobError::NotFound { .. })), "{absent:?}");
        blobs.put_file(&key("blob"), file()?).await?;
        ensure!(blobs.read(&key("blob"), u64::MAX).await? == bytes);
        Ok(())
    })
}
