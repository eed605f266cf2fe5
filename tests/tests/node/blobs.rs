//! Stores of blobs, and chunks from them: a directory and a real S3 server behave the same, and one that fails, stalls, cuts or lies is got over
//! or ends in an error that says so.

mod frail;
mod upload;

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use memory::stream::{CHUNK_BYTES, ChunkSource, INDEX_BYTES_MAX, Index, pack};
use storage::blobs::{PART_BYTES, Patience};
use storage::{BlobAddress, BlobError, BlobKey, Blobs, BlobsConfig, ChunkCache, fetch_file};
use tests::packed::Folder;
use tests::s3_server::{BUCKET, S3Server, environment};
use tests::{run, wait};

/// Long enough for an honest answer on a busy host.
const IDLE: Duration = Duration::from_secs(3);
const TRIES: u32 = 3;

fn key(text: &str) -> BlobKey {
    BlobKey::parse(text).expect("a name of a test is plain")
}

fn patience() -> Patience {
    Patience {
        tries: TRIES,
        idle_timeout: wait::scaled(IDLE),
        pause: Duration::from_millis(10),
        ..Patience::default()
    }
}

fn bucket(address: SocketAddr, prefix: &str) -> Result<Blobs> {
    let address_text = format!("s3://{BUCKET}/{prefix}");
    let mut config = BlobsConfig::new(address_text.parse()?);
    (config.environment, config.patience) = (environment(address), patience());
    Ok(Blobs::open(&config)?)
}

/// Bytes that do not repeat, the same each time.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn file_of(folder: &Folder, name: &str, bytes: &[u8]) -> Result<File> {
    let path = folder.path().join(name);
    File::create(&path)?.write_all(bytes)?;
    Ok(File::open(path)?)
}

/// A sparse file, packed and put into a store with its index, as a saved machine's memory is.
struct Saved {
    original: File,
    index: Index,
}

const SAVED: &str = "snapshots/1/memory";
const SAVED_CHUNKS: u32 = 6;

impl Saved {
    async fn put(folder: &Folder, blobs: &Blobs) -> Result<Saved> {
        let original = file_of(folder, "original", &[])?;
        let writer = File::options().write(true).open(folder.path().join("original"))?;
        writer.set_len(u64::from(SAVED_CHUNKS) * CHUNK_BYTES + 4096)?;
        for (number, pages) in [(0, 200), (1, 1024), (2, 1), (4, 700), (5, 33)] {
            let offset = number * CHUNK_BYTES + if pages < 800 { 8 * 4096 } else { 0 };
            writer.write_all_at(&noise(pages * 4096, number + 1), offset)?;
        }
        let mut packed = File::create(folder.path().join("packed"))?;
        let index = pack(&original, &mut packed)?;
        blobs.put_file(&key(SAVED), File::open(folder.path().join("packed"))?).await?;
        blobs.put(&key(&format!("{SAVED}.index")), index.encode()).await?;
        Ok(Saved { original, index })
    }

    /// Brings back the index from the store, and the file as a whole by way of a cache.
    async fn fetch(&self, blobs: &Arc<Blobs>, cache: &Arc<ChunkCache>, target: &Path) -> Result<()> {
        let index = blobs.read(&key(&format!("{SAVED}.index")), INDEX_BYTES_MAX).await?;
        let index = Index::decode(&index)?;
        ensure!(index == self.index, "another index");
        let source = cache.source(Arc::clone(blobs), key(SAVED), index);
        self.compare(&source, target).await
    }

    async fn compare(&self, source: &Arc<dyn ChunkSource>, target: &Path) -> Result<()> {
        let copy = File::options().read(true).write(true).create(true).truncate(true).open(target)?;
        fetch_file(&**source, copy.try_clone()?, 4).await?;
        ensure!(content(&copy)? == content(&self.original)?, "another file");
        Ok(())
    }
}

fn content(file: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// What any store does.
async fn behaves(blobs: &Arc<Blobs>, folder: &Folder) -> Result<()> {
    let large = noise(PART_BYTES as usize * 2 + 12_345, 7);
    blobs.put(&key("a/1/small"), b"a few bytes".to_vec()).await?;
    blobs.put(&key("a/1/empty"), Vec::new()).await?;
    blobs.put_file(&key("a/1/large"), file_of(folder, "large", &large)?).await?;
    blobs.put_file(&key("a/10"), file_of(folder, "short", b"short")?).await?;

    ensure!(blobs.read(&key("a/1/small"), 11).await? == b"a few bytes");
    ensure!(blobs.read(&key("a/1/empty"), 0).await?.is_empty());
    ensure!(blobs.read(&key("a/1/large"), u64::MAX).await? == large);
    for range in [0..1, PART_BYTES - 100..PART_BYTES + 5000, large.len() as u64 - 1..large.len() as u64] {
        let expected = &large[range.start as usize..range.end as usize];
        ensure!(blobs.read_range(&key("a/1/large"), range).await? == expected);
    }

    let absent = blobs.read_range(&key("a/1/none"), 0..5).await;
    ensure!(matches!(absent, Err(BlobError::NotFound { .. })), "{absent:?}");
    let short = blobs.read_range(&key("a/10"), 3..9).await;
    ensure!(matches!(short, Err(BlobError::TooShort { actual: 5, wanted: 9, .. })), "{short:?}");
    let long = blobs.read(&key("a/1/small"), 10).await;
    ensure!(matches!(long, Err(BlobError::TooLong { actual: 11, max: 10, .. })), "{long:?}");

    let listed = blobs.list(&key("a/1")).await?;
    let names: Vec<(&str, u64)> = listed.iter().map(|blob| (blob.key.as_str(), blob.length)).collect();
    ensure!(names == [("a/1/empty", 0), ("a/1/large", large.len() as u64), ("a/1/small", 11)], "{names:?}");
    blobs.put(&key("a/1/small"), b"replaced".to_vec()).await?;
    ensure!(blobs.read(&key("a/1/small"), 8).await? == b"replaced");
    blobs.delete_prefix(&key("a/1")).await?;
    blobs.delete_prefix(&key("a/1")).await?;
    let left = blobs.list(&key("a")).await?;
    ensure!(left.len() == 1 && left[0].key == key("a/10"), "{left:?}");

    let saved = Saved::put(folder, blobs).await?;
    let cache = ChunkCache::open(&folder.path().join("cache"), 1 << 30)?;
    saved.fetch(blobs, &cache, &folder.path().join("copy")).await?;
    ensure!(cache.counts().fetched == 5, "{:?}", cache.counts());
    // The second machine needs nothing of the store but the index.
    let cache = ChunkCache::open(&folder.path().join("cache"), 1 << 30)?;
    saved.fetch(blobs, &cache, &folder.path().join("copy")).await?;
    ensure!(cache.counts().fetched == 0 && cache.counts().disk == 5, "{:?}", cache.counts());
    Ok(())
}

#[test]
fn a_directory_behaves() -> Result<()> {
    run(async || {
        let folder = Folder::new("blobs-directory")?;
        let address = BlobAddress::Directory(folder.path().join("store"));
        let blobs = Blobs::open(&BlobsConfig { patience: patience(), ..BlobsConfig::new(address) })?;
        behaves(&Arc::new(blobs), &folder).await
    })
}

#[test]
fn a_bucket_behaves() -> Result<()> {
    run(async || {
        let server = S3Server::start().await?;
        for prefix in ["", "below/this"] {
            let folder = Folder::new("blobs-bucket")?;
            let blobs = Arc::new(bucket(server.address(), prefix)?);
            behaves(&blobs, &folder).await.with_context(|| format!("below `{prefix}`"))?;
        }
        Ok(())
    })
}
