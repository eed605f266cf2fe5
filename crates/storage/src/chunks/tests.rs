//! A cache over a store in a directory.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use memory::stream::{FetchError, pack};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;
use crate::blobs::{BlobAddress, BlobsConfig, Patience};

const CHUNKS: u64 = 6;
/// Pages in each chunk of the file.
const PAGES: u64 = 3;
const PACKED: u64 = PAGES * 4096;

/// A file in a store, and a place for a cache.
struct Setting {
    folder: tempfile::TempDir,
    file: File,
    index: Index,
    blobs: Arc<Blobs>,
}

fn key() -> BlobKey {
    BlobKey::parse("snap/1/memory").unwrap()
}

impl Setting {
    async fn new() -> Setting {
        let folder = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len((CHUNKS + 1) * CHUNK_BYTES).unwrap();
        for number in 0..CHUNKS {
            for page in 0..PAGES {
                let offset = number * CHUNK_BYTES + page * 40_960;
                file.write_all_at(&[(number * 16 + page + 1) as u8; 4096], offset).unwrap();
            }
        }
        let packed = File::create_new(folder.path().join("packed")).unwrap();
        let index = pack(&file, &mut &packed).unwrap();
        let mut config = BlobsConfig::new(BlobAddress::Directory(folder.path().join("blobs")));
        config.patience = Patience { tries: 2, pause: Duration::from_millis(1), ..Patience::default() };
        let blobs = Arc::new(Blobs::open(&config).unwrap());
        blobs.put_file(&key(), File::open(folder.path().join("packed")).unwrap()).await.unwrap();
        Setting { folder, file, index, blobs }
    }

    fn cache_directory(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn cache(&self, bytes_max: u64) -> Arc<ChunkCache> {
        ChunkCache::open(&self.cache_directory(), bytes_max).unwrap()
    }

    fn source(&self, cache: &Arc<ChunkCache>) -> Arc<dyn ChunkSource> {
        cache.source(Arc::clone(&self.blobs), key(), self.index.clone())
    }

    fn chunk_file(&self, number: u32) -> PathBuf {
        self.cache_directory().join(self.index.digest(number).unwrap().to_string())
    }

    /// Asks for a chunk and looks at each page of it.
    async fn check(&self, source: &Arc<dyn ChunkSource>, number: u32) {
        let chunk = source.chunk(number).await.unwrap();
        let mut page = [0; 4096];
        for at in 0..1024 {
            self.file.read_exact_at(&mut page, u64::from(number) * CHUNK_BYTES + at * 4096).unwrap();
            assert_eq!(chunk.page(at as usize).unwrap_or(&[0; 4096]), page, "page {at} of chunk {number}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_at_once_have_a_chunk_fetched_once() {
    let setting = Setting::new().await;
    let cache = setting.cache(1 << 30);
    let sources: Vec<_> = (0..4).map(|_| setting.source(&cache)).collect();
    let asked = (0..60).map(|nth| setting.check(&sources[nth % 4], (nth % 3) as u32));
    futures::future::join_all(asked).await;
    assert_eq!((cache.counts().fetched, cache.bytes_used()), (3, 3 * PACKED));
    // The last chunk is zeros, and one more is not there.
    setting.check(&sources[0], CHUNKS as u32).await;
    let error = sources[0].chunk(CHUNKS as u32 + 1).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no chunk 7 in `snap/1/memory`");
    assert_eq!(cache.counts().fetched, 3);
}

#[tokio::test]
async fn what_is_kept_is_found_again_and_the_oldest_go_first() {
    let setting = Setting::new().await;
    let cache = setting.cache(3 * PACKED);
    let source = setting.source(&cache);
    for number in [0, 1, 2, 0, 3] {
        setting.check(&source, number).await;
    }
    assert_eq!(cache.bytes_used(), 3 * PACKED);
    assert!(!setting.chunk_file(1).exists(), "the least recently used one stays");
    drop((source, cache));

    std::fs::write(setting.cache_directory().join(".half.tmp"), b"half").unwrap();
    std::fs::write(setting.cache_directory().join("README"), b"not ours").unwrap();
    let cache = setting.cache(3 * PACKED);
    let source = setting.source(&cache);
    assert_eq!(cache.bytes_used(), 3 * PACKED);
    for number in [0, 2, 3] {
        setting.check(&source, number).await;
    }
    assert_eq!(cache.counts(), CacheCounts { disk: 3, ..CacheCounts::default() });
    setting.check(&source, 1).await;
    assert_eq!(cache.counts().fetched, 1);
    assert!(!setting.cache_directory().join(".half.tmp").exists());
    assert!(setting.cache_directory().join("README").exists());
    drop((source, cache));

    assert_eq!(setting.cache(PACKED).bytes_used(), PACKED);
    assert!(setting.chunk_file(1).exists(), "not the most recently used one");
    assert_eq!(setting.cache(0).bytes_used(), 0);
}

#[tokio::test]
async fn a_damaged_file_is_dropped_and_fetched_again() {
    let setting = Setting::new().await;
    let cache = setting.cache(1 << 30);
    let source = setting.source(&cache);
    for number in 0..3 {
        setting.check(&source, number).await;
    }
    drop((source, cache));
    let mut bytes = std::fs::read(setting.chunk_file(0)).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(setting.chunk_file(0), bytes).unwrap();
    let cache = setting.cache(1 << 30);
    let source = setting.source(&cache);
    // One that is cut while the cache is open, one that vanishes.
    File::options().write(true).open(setting.chunk_file(1)).unwrap().set_len(100).unwrap();
    std::fs::remove_file(setting.chunk_file(2)).unwrap();
    for number in 0..3 {
        setting.check(&source, number).await;
    }
    assert_eq!(cache.counts(), CacheCounts { fetched: 3, damaged: 2, ..CacheCounts::default() });
    assert_eq!(cache.bytes_used(), 3 * PACKED);
    assert_eq!(std::fs::metadata(setting.chunk_file(1)).unwrap().len(), PACKED);
}

#[tokio::test]
async fn wrong_bytes_of_the_store_are_an_error_and_not_kept() {
    let setting = Setting::new().await;
    let blob = setting.folder.path().join("blobs/snap/1/memory");
    let file = File::options().read(true).write(true).open(&blob).unwrap();
    file.write_all_at(b"!", PACKED + 7).unwrap();
    let cache = setting.cache(1 << 30);
    let source = setting.source(&cache);
    let error = source.chunk(1).await.unwrap_err();
    let text = "the store gave wrong bytes for chunk 1 of `snap/1/memory` in each of 2 tries";
    assert_eq!(error.to_string(), text);
    assert_eq!((cache.bytes_used(), cache.counts()), (0, CacheCounts::default()));
    setting.check(&source, 0).await;

    file.set_len(3 * PACKED - 1).unwrap();
    assert!(matches!(source.chunk(2).await, Err(FetchError::Missing { number: 2, .. })));
    std::fs::remove_file(blob).unwrap();
    assert!(matches!(source.chunk(3).await, Err(FetchError::Missing { number: 3, .. })));
    // What is in the cache needs no store.
    setting.check(&source, 0).await;
}

/// A small file system in memory.
struct Tmpfs(PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_full_disk_fails_nobody() {
    let setting = Setting::new().await;
    std::fs::create_dir(setting.cache_directory()).unwrap();
    let options = std::ffi::CString::new("size=20k").unwrap();
    mount("none", setting.cache_directory(), "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
    let _mounted = Tmpfs(setting.cache_directory());
    let cache = setting.cache(1 << 30);
    let source = setting.source(&cache);
    for number in 0..CHUNKS as u32 {
        setting.check(&source, number).await;
    }
    let counts = cache.counts();
    assert_eq!((counts.fetched, counts.not_kept), (CHUNKS, CHUNKS - 1));
    assert_eq!(cache.bytes_used(), PACKED);
    let left: Vec<_> = std::fs::read_dir(setting.cache_directory()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn a_file_comes_back_as_a_whole() {
    let setting = Setting::new().await;
    let cache = setting.cache(1 << 30);
    let copy = tempfile::tempfile().unwrap();
    fetch_file(&*setting.source(&cache), copy.try_clone().unwrap(), 4).await.unwrap();
    let content = |file: &File| {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert!(content(&copy) == content(&setting.file));
    std::fs::remove_file(setting.folder.path().join("blobs/snap/1/memory")).unwrap();
    let cold = ChunkCache::open(&setting.folder.path().join("cold"), 0).unwrap();
    let error = fetch_file(&*setting.source(&cold), tempfile::tempfile().unwrap(), 4).await.unwrap_err();
    assert!(matches!(error, FetchFileError::Fetch(FetchError::Missing { .. })));
}
