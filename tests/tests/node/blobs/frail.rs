//! Reading from a store that fails: got over while tries last, then an error that names what was tried.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use memory::stream::FetchError;
use storage::ChunkCache;
use storage::blobs::{BlobError, Trouble};
use tests::frail_store::{Fault, FrailStore};
use tests::packed::Folder;
use tests::s3_server::S3Server;
use tests::{run, wait};

use super::{IDLE, SAVED, SAVED_CHUNKS, Saved, TRIES, bucket, key};

/// What is got over when it happens once.
const FAULTS: [Fault; 8] = [
    Fault::Status(500),
    Fault::Status(503),
    Fault::Status(429),
    Fault::Close,
    Fault::LoseAnswer,
    Fault::CutAfter(5000),
    Fault::Stall,
    Fault::StallAfter(5000),
];

#[test]
fn each_fault_is_got_over_when_it_passes() -> Result<()> {
    run(async || {
        let server = S3Server::start().await?;
        let way = FrailStore::start(server.address()).await?;
        let folder = Folder::new("blobs-passing")?;
        let blobs = Arc::new(bucket(way.address(), "p")?);
        let saved = Saved::put(&folder, &blobs).await?;
        for fault in FAULTS.into_iter().chain([Fault::Flip(5000)]) {
            // A cold cache each time, and the fault at each of the first two tries.
            let cache = ChunkCache::open(&folder.path().join("none"), 0)?;
            let source = cache.source(Arc::clone(&blobs), key(SAVED), saved.index.clone());
            way.seen();
            way.next([Some(fault), Some(fault), None]);
            let chunk = source.chunk(1).await.map_err(|error| anyhow::anyhow!("{fault:?}: {error}"))?;
            ensure!(chunk.bytes().len() == 1024 * 4096);
            let seen = way.seen();
            ensure!(seen.len() == 3, "{fault:?}: {seen:?}");
            let start =
                saved.index.blob_range(1).map(|range| format!("bytes={}-{}", range.start, range.end - 1));
            ensure!(seen.iter().all(|seen| seen.range == start), "{fault:?}: {seen:?}");
        }
        // Now and then, in the middle of many.
        let mut faults =
            FAULTS.into_iter().filter(|fault| !matches!(fault, Fault::Stall | Fault::StallAfter(_)));
        way.next((0..12).map(|nth| if nth % 3 == 1 { faults.next() } else { None }));
        let cache = ChunkCache::open(&folder.path().join("cache"), 1 << 30)?;
        saved.fetch(&blobs, &cache, &folder.path().join("copy")).await
    })
}

#[test]
fn a_fault_that_stays_is_a_clear_error_in_bounded_time() -> Result<()> {
    run(async || {
        let server = S3Server::start().await?;
        let way = FrailStore::start(server.address()).await?;
        let folder = Folder::new("blobs-staying")?;
        let blobs = Arc::new(bucket(way.address(), "p")?);
        let saved = Saved::put(&folder, &blobs).await?;
        let cache = ChunkCache::open(&folder.path().join("cache"), 1 << 30)?;
        let source = cache.source(Arc::clone(&blobs), key(SAVED), saved.index.clone());
        // Pauses, and what an answer takes until it stalls.
        let bound = wait::scaled(IDLE * (2 * TRIES) + Duration::from_secs(10));
        for fault in FAULTS {
            way.always(fault);
            way.seen();
            let began = Instant::now();
            let error = source.chunk(1).await.err();
            ensure!(began.elapsed() < bound, "{fault:?}: after {:?}", began.elapsed());
            let Some(FetchError::Failed { blob, number: 1, tries: TRIES, source }) = error else {
                anyhow::bail!("{fault:?}: {error:?}");
            };
            ensure!(blob == SAVED && way.seen_count() == TRIES as usize, "{fault:?}: {}", way.seen_count());
            let said = source.to_string();
            let expected = match fault {
                Fault::Status(status) => status.to_string(),
                Fault::Stall | Fault::StallAfter(_) => "nothing, or too little, came for".to_owned(),
                _ => "HTTP error".to_owned(),
            };
            ensure!(said.contains(&expected), "{fault:?}: {said}");
        }
        way.always(Fault::Flip(9));
        let error = source.chunk(1).await.err();
        ensure!(matches!(error, Some(FetchError::WrongBytes { number: 1, tries: TRIES, .. })), "{error:?}");
        ensure!(cache.bytes_used() == 0, "something wrong was kept");

        // Refused and absent are said at once.
        for (status, tries) in [(403, 1), (404, 1)] {
            way.always(Fault::Status(status));
            way.seen();
            ensure!(source.chunk(1).await.is_err());
            ensure!(way.seen_count() == tries, "{status}: {} requests", way.seen_count());
        }

        // All is well again, for the same source.
        way.heal();
        for number in 0..SAVED_CHUNKS {
            source.chunk(number).await?;
        }
        drop(way);
        ensure!(source.chunk(1).await.is_ok(), "what is kept needs no store");
        let error = blobs.read_range(&key(SAVED), 0..10).await.err();
        ensure!(matches!(error, Some(BlobError::Failed { tries: TRIES, .. })), "{error:?}");
        Ok(())
    })
}

#[test]
fn a_trickle_is_no_progress() -> Result<()> {
    run(async || {
        let server = S3Server::start().await?;
        let way = FrailStore::start(server.address()).await?;
        let blobs = bucket(way.address(), "p")?;
        blobs.put(&key("blob"), vec![1; 100_000]).await?;
        // Each byte comes in time; all of them would take an hour.
        way.always(Fault::Trickle(Duration::from_millis(30)));
        let error = blobs.read(&key("blob"), u64::MAX).await.err();
        let slow = matches!(error, Some(BlobError::Failed { tries: TRIES, source: Trouble::Slow(_), .. }));
        ensure!(slow, "{error:?}");
        Ok(())
    })
}

#[test]
fn whoever_gives_up_takes_nothing_from_others() -> Result<()> {
    run(async || {
        let server = S3Server::start().await?;
        let way = FrailStore::start(server.address()).await?;
        let folder = Folder::new("blobs-waiting")?;
        let blobs = Arc::new(bucket(way.address(), "p")?);
        let saved = Saved::put(&folder, &blobs).await?;
        let cache = ChunkCache::open(&folder.path().join("cache"), 1 << 30)?;
        let source = || cache.source(Arc::clone(&blobs), key(SAVED), saved.index.clone());
        way.seen();
        way.next([Some(Fault::Stall)]);
        let ask = || {
            let source = source();
            tokio::spawn(async move { source.chunk(1).await })
        };
        let first = ask();
        let arrived = || way.seen_count() == 1;
        wait::until("the first request", wait::scaled(IDLE), arrived).await?;
        let others: Vec<_> = (0..5).map(|_| ask()).collect();
        first.abort();
        for other in others {
            ensure!(other.await??.bytes().len() == 1024 * 4096);
        }
        let seen = way.seen();
        ensure!(seen.len() == 2 && cache.counts().fetched == 1, "{seen:?}, {:?}", cache.counts());

        // When nobody is left, nothing goes on.
        way.always(Fault::Stall);
        let only = {
            let source = source();
            tokio::spawn(async move { source.chunk(0).await })
        };
        wait::until("the request", wait::scaled(IDLE), arrived).await?;
        only.abort();
        ensure!(only.await.is_err_and(|error| error.is_cancelled()));
        way.heal();
        source().chunk(0).await?;
        ensure!(way.seen_count() == 2, "{:?}", way.seen());
        Ok(())
    })
}
