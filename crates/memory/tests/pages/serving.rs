//! Faults are answered with what was packed, whatever the source and the guest do.

use std::os::fd::OwnedFd;

use memory::pages::{Handover, PageError, PageServer, TakeOverError, Trace};
use memory::stream::FetchError;
use tokio::sync::mpsc;

use crate::guest::sum_of;
use crate::source::Source;
use crate::{CHUNK_PAGES, PAGE, PAGE_BYTES, SEED, Served, TIMEOUT, blocking, hand_over, memory_of, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_what_was_packed() {
    let regions = [1300, 4000];
    let bytes = memory_of(5300);
    let served = Served::start(&bytes, &regions).await;
    let (served, sum) = blocking(served, |guest| {
        guest.read(1, 0, 5300, 8);
        guest.sum(1)
    })
    .await;
    assert_eq!(sum, sum_of(&bytes));
    assert!(!served.source.asked().contains(&2), "a chunk of zeros was fetched");
    let counts = served.server.counts();
    let stored = bytes.chunks(PAGE).filter(|page| page.iter().any(|byte| *byte != 0)).count() as u64;
    assert_eq!(counts.copied_pages, stored, "{counts:?}");
    assert!(counts.faults < 5300, "neighbours were not put in place: {counts:?}");
    assert!(served.server.removed().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_chunk_holds_nobody_else_up() {
    let bytes = memory_of(3 * CHUNK_PAGES);
    let served = Served::start(&bytes, &[3 * CHUNK_PAGES]).await;
    served.source.hold(&[0]);
    let (mut served, fast) = blocking(served, |guest| {
        guest.read(0, 0, CHUNK_PAGES, 4);
        guest.read(1, CHUNK_PAGES, 2 * CHUNK_PAGES, 4);
        guest.sum(1)
    })
    .await;
    assert_eq!(fast, sum_of(&bytes[CHUNK_PAGES * PAGE..]));
    served.source.wait_until_asked(0).await;
    served.source.release();
    let slow;
    (served, slow) = blocking(served, |guest| guest.sum(0)).await;
    assert_eq!(slow, sum_of(&bytes[..CHUNK_PAGES * PAGE]));
    assert_eq!(served.source.asked().iter().filter(|chunk| **chunk == 0).count(), 1, "asked for once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chunk_is_fetched_over_and_over() {
    let pages = 12 * CHUNK_PAGES;
    let bytes = memory_of(pages);
    let served = Served::start(&bytes, &[pages]).await;
    let (served, sum) = blocking(served, move |guest| {
        guest.read(0, 0, pages, 2);
        guest.sum(0)
    })
    .await;
    assert_eq!(sum, sum_of(&bytes));
    // Pages may be waited for between the second fetch and the moment in which all of it is in place.
    assert!(served.source.asked().len() <= 3 * 12, "{:?}", served.source.asked());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_that_cannot_be_had_is_told() {
    let bytes = memory_of(2 * CHUNK_PAGES);
    let mut served = Served::start(&bytes, &[2 * CHUNK_PAGES]).await;
    served.source.lose(1);
    let sum;
    (served, sum) = blocking(served, |guest| {
        guest.read(0, 0, CHUNK_PAGES, 2);
        guest.sum(0)
    })
    .await;
    assert_eq!(sum, sum_of(&bytes[..CHUNK_PAGES * PAGE]));
    served.guest.read(1, CHUNK_PAGES, CHUNK_PAGES, 2);
    let error = tokio::time::timeout(TIMEOUT, served.server.failed()).await.unwrap();
    assert!(matches!(error, PageError::Fetch(FetchError::Failed { number: 1, .. })), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_is_no_failure() {
    let bytes = memory_of(CHUNK_PAGES);
    let mut served = Served::start(&bytes, &[CHUNK_PAGES]).await;
    served.source.hold(&[0]);
    served.guest.read(0, 0, CHUNK_PAGES, 2);
    served.source.wait_until_asked(0).await;
    served.guest.kill();
    served.source.release();
    until("the server ends by itself", || served.server.has_ended()).await;
    let failed = tokio::time::timeout(std::time::Duration::ZERO, served.server.failed()).await;
    assert!(failed.is_err(), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_waits_is_taken_over() {
    let bytes = memory_of(3 * CHUNK_PAGES);
    let mut served = Served::start(&bytes, &[1500, 3 * CHUNK_PAGES - 1500]).await;
    let regions = serde_json::to_string(served.server.regions()).unwrap();
    served.source.hold(&[0, 1]);
    // More threads than the server takes faults from at once.
    served.guest.read(0, 0, 3 * CHUNK_PAGES, 150);
    served.source.wait_until_asked(0).await;
    served.source.wait_until_asked(1).await;

    drop(served.server);
    let regions = serde_json::from_str(&regions).unwrap();
    let handover = Handover::take_over(served.guest.pid(), regions).unwrap();
    let source = Source::new(&bytes);
    served.server = PageServer::start(handover, source, Trace::default()).unwrap();
    let (_served, sum) = blocking(served, |guest| guest.sum(0)).await;
    assert_eq!(sum, sum_of(&bytes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_else_reads_is_served_too() {
    let bytes = memory_of(2 * CHUNK_PAGES);
    let (_directory, mut guest, handover) = hand_over(&[2 * CHUNK_PAGES], false).await;
    let address = handover.regions().parts()[0].address;
    let other = guest.userfault();
    // One that is passed on, and one that is lost.
    let mut offsets = Vec::new();
    for name in 0..2 {
        guest.read(name, 3 + name * CHUNK_PAGES, 1, 1);
        until("the other reads a fault", || {
            offsets.extend(fault(&other));
            offsets.len() > name
        })
        .await;
    }
    let (passing, passed_on) = mpsc::channel(1);
    let source = Source::new(&bytes);
    let server = PageServer::start_beside(handover, source.clone(), Trace::default(), passed_on).unwrap();
    assert_eq!(offsets[0] - address, 3 * PAGE_BYTES);
    passing.send(offsets[0] - address).await.unwrap();
    let served = Served { server, guest, source, _directory };
    let (served, sum) = blocking(served, |guest| guest.sum(0)).await;
    assert_eq!(sum, sum_of(&bytes[3 * PAGE..4 * PAGE]));
    assert_eq!(served.source.asked(), [0], "nobody was told of the other");
    drop(passing);
    let (_served, sum) = blocking(served, |guest| guest.sum(1)).await;
    assert_eq!(sum, sum_of(&bytes[(3 + CHUNK_PAGES) * PAGE..(4 + CHUNK_PAGES) * PAGE]));
}

/// The address of a fault, if there is one to be read.
fn fault(userfault: &OwnedFd) -> Option<u64> {
    let mut message = [0; 32];
    let read = rustix::io::read(userfault, &mut message).ok()?;
    assert_eq!(read, message.len());
    message[16..24].try_into().ok().map(u64::from_ne_bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_served_process_can_be_taken_over() {
    let (_directory, mut guest, handover) = hand_over(&[16], false).await;
    let regions = handover.regions().clone();
    let none = Handover::take_over(1, regions.clone());
    assert!(matches!(none, Err(TakeOverError::Descriptors { count: 0, .. })), "{none:?}");
    guest.kill();
    let gone = Handover::take_over(guest.pid(), regions);
    assert!(matches!(gone, Err(TakeOverError::Gone { .. })), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_given_back_is_zeros() {
    let mut bytes = memory_of(2 * CHUNK_PAGES);
    let served = Served::start(&bytes, &[600, 2 * CHUNK_PAGES - 600]).await;
    let (served, sum) = blocking(served, |guest| {
        // Some were read before, some written, some never touched.
        guest.read(0, 100, 50, 2);
        guest.sum(0);
        guest.write(120, 100, 9);
        guest.remove(110, 300);
        guest.remove(700, 1000);
        guest.write(800, 3, 9);
        guest.read(1, 0, 2 * CHUNK_PAGES, 8);
        guest.sum(1)
    })
    .await;
    bytes[110 * PAGE..410 * PAGE].fill(0);
    bytes[700 * PAGE..1700 * PAGE].fill(0);
    for page in 800..803 {
        bytes[page * PAGE..(page + 1) * PAGE].copy_from_slice(&crate::pattern(page, 9));
    }
    assert_eq!(sum, sum_of(&bytes));
    assert_eq!(
        served.server.removed(),
        [110 * PAGE_BYTES..410 * PAGE_BYTES, 700 * PAGE_BYTES..1700 * PAGE_BYTES]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_given_back_while_it_is_read() {
    let pages = 2 * CHUNK_PAGES;
    let bytes = memory_of(pages);
    let served = Served::start(&bytes, &[pages]).await;
    let (served, sum) = blocking(served, move |guest| {
        guest.churn(0, pages, SEED);
        guest.read(1, 0, pages, 4);
        guest.sum(1)
    })
    .await;
    let mut expected = bytes;
    for range in served.server.removed() {
        expected[range.start as usize..range.end as usize].fill(0);
    }
    assert_eq!(sum, sum_of(&expected));
}
