//! Serves the memory of a real second process page by page and compares what it sees with what was packed.
#![allow(unsafe_code, clippy::unwrap_used, clippy::single_range_in_vec_init)]

mod guest;
mod handover;
mod huge;
mod serving;
mod source;
mod tracing_and_capture;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memory::PAGE_BYTES;
use memory::pages::{Handover, PageServer, Trace};
use tokio::net::UnixListener;

use guest::Guest;
use source::Source;

const PAGE: usize = PAGE_BYTES as usize;
const CHUNK_PAGES: usize = memory::stream::CHUNK_PAGES;
/// Longest that anything here may take. Far more than it does.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
#[ignore = "the other process of the tests here; does nothing on its own"]
fn guest_process() {
    guest::run();
}

/// Bytes of a page; seed 0 is zeros.
fn pattern(page: usize, seed: u8) -> Vec<u8> {
    (0..PAGE).map(|index| if seed == 0 { 0 } else { (page * 31 + index * 7) as u8 ^ seed }).collect()
}

/// A memory of which some pages are zeros, and of which the third chunk is nothing else.
fn memory_of(pages: usize) -> Vec<u8> {
    let seed = |page: usize| match page / CHUNK_PAGES == 2 || page % 7 < 3 || page % 100 > 90 {
        true => 0,
        false => SEED,
    };
    (0..pages).flat_map(|page| pattern(page, seed(page))).collect()
}

/// The seed of pages that are not zeros in [`memory_of`].
const SEED: u8 = 0x55;

/// A guest and what serves it. The directory holds its socket.
struct Served {
    server: PageServer,
    guest: Guest,
    source: Arc<Source>,
    _directory: tempfile::TempDir,
}

impl Served {
    async fn start(bytes: &[u8], regions: &[usize]) -> Served {
        Served::start_with(Source::new(bytes), regions, Trace::default(), false).await
    }

    async fn start_with(source: Arc<Source>, regions: &[usize], replay: Trace, is_huge: bool) -> Served {
        let (directory, guest, handover) = hand_over(regions, is_huge).await;
        let server = PageServer::start(handover, source.clone(), replay).unwrap();
        Served { server, guest, source, _directory: directory }
    }
}

/// A guest whose faults nobody answers yet.
async fn hand_over(regions: &[usize], is_huge: bool) -> (tempfile::TempDir, Guest, Handover) {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let guest = Guest::start(&path, regions, is_huge);
    let (stream, _) = tokio::time::timeout(TIMEOUT, listener.accept()).await.unwrap().unwrap();
    let length = regions.iter().sum::<usize>() as u64 * PAGE_BYTES;
    let handover = Handover::receive(&stream, length).await.unwrap();
    (directory, guest, handover)
}

/// Waits until something is true.
async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        tokio::task::yield_now().await;
    }
}

/// Runs what blocks without holding up the server.
async fn blocking<T: Send + 'static>(
    mut served: Served,
    work: impl FnOnce(&mut Guest) -> T + Send + 'static,
) -> (Served, T) {
    tokio::task::spawn_blocking(move || {
        let result = work(&mut served.guest);
        (served, result)
    })
    .await
    .unwrap()
}
