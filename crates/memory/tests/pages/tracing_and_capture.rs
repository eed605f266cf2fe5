//! What a guest asked for is put in place for the next one, and what it changed is found by comparing.

use std::fs::File;
use std::os::unix::fs::FileExt;

use memory::pages::Trace;
use memory::{CaptureError, Checksums, WriteOut, capture_compared};

use crate::guest::sum_of;
use crate::source::{Source, file_of};
use crate::{CHUNK_PAGES, PAGE, PAGE_BYTES, Served, blocking, memory_of, pattern, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_is_put_in_place_ahead_of_need() {
    let pages = 8 * CHUNK_PAGES;
    let regions = [5000, pages - 5000];
    let bytes = memory_of(pages);
    let first = Served::start(&bytes, &regions).await;
    let touch = |guest: &mut crate::Guest| {
        for (name, page) in
            [6 * CHUNK_PAGES + 300, CHUNK_PAGES + 5, 4 * CHUNK_PAGES + 500].into_iter().enumerate()
        {
            guest.read(name, page, 100, 1);
            guest.sum(name);
        }
    };
    let (first, ()) = blocking(first, touch).await;
    let trace = Trace::decode(&first.server.trace().encode()).unwrap();
    assert!(!trace.pages().is_empty());

    let source = Source::new(&bytes);
    let second = Served::start_with(source, &regions, trace.clone(), false).await;
    // Pages that share a window may have been asked for one after the other; each is put in place once.
    let in_place = first.server.counts().copied_pages;
    until("the trace is in place", || second.server.counts().copied_pages >= in_place).await;
    let before = second.server.counts();
    assert_eq!((before.faults, before.copied_pages), (0, in_place));
    let mut asked = second.source.asked();
    asked.sort_unstable();
    assert_eq!(asked, [1, 4, 6]);
    let (second, ()) = blocking(second, touch).await;
    let after = second.server.counts();
    assert_eq!(after.copied_pages, before.copied_pages, "everything with data was in place");
    assert_eq!(second.server.trace(), trace);
    // What the trace does not foretell is served as ever.
    let (_second, sum) = blocking(second, move |guest| {
        guest.read(9, 0, pages, 8);
        guest.sum(9)
    })
    .await;
    assert_eq!(sum, sum_of(&bytes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_that_cannot_be_fetched_harms_nobody() {
    let pages = 4 * CHUNK_PAGES;
    let bytes = memory_of(pages);
    let first = Served::start(&bytes, &[pages]).await;
    let (first, _) = blocking(first, move |guest| {
        guest.read(0, 0, pages, 2);
        guest.sum(0)
    })
    .await;
    let source = Source::new(&bytes);
    source.lose(3);
    let second = Served::start_with(source, &[pages], first.server.trace(), false).await;
    second.source.wait_until_asked(3).await;
    let (_second, sum) = blocking(second, move |guest| {
        guest.read(0, 0, 3 * CHUNK_PAGES, 4);
        guest.sum(0)
    })
    .await;
    assert_eq!(sum, sum_of(&bytes[..3 * CHUNK_PAGES * PAGE]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_changed_is_found_by_comparing() {
    let pages = 4 * CHUNK_PAGES;
    let bytes = memory_of(pages);
    let served = Served::start(&bytes, &[1500, pages - 1500]).await;
    let (served, ()) = blocking(served, |guest| {
        guest.read(0, 0, 1000, 4);
        guest.sum(0);
        guest.write(10, 5, 3);
        guest.write(1490, 20, 4);
        // Written, but with what was there; and data by zeros.
        guest.write(33, 1, crate::SEED);
        guest.write(40, 2, 0);
        guest.remove(700, 200);
        guest.write(750, 1, 7);
        guest.remove(3000, 60);
        // Zeros in place of data that was given back, never written.
        guest.read(2, 3000, 30, 1);
        guest.sum(2);
    })
    .await;
    let mut expected = bytes.clone();
    let mut fill = |first: usize, count: usize, seed: u8| {
        for page in first..first + count {
            expected[page * PAGE..(page + 1) * PAGE].copy_from_slice(&pattern(page, seed));
        }
    };
    fill(10, 5, 3);
    fill(1490, 20, 4);
    fill(33, 1, crate::SEED);
    fill(40, 2, 0);
    fill(700, 200, 0);
    fill(750, 1, 7);
    fill(3000, 60, 0);

    let (base, target) = (file_of(&bytes), file_of(&bytes));
    let memory = served.server.memory(served.guest.pid()).unwrap();
    let faults = served.server.counts().faults;
    let captured = capture_compared(&memory, &base, &target, WriteOut::Later).unwrap();
    assert_eq!(served.server.counts().faults, faults, "a capture touches nothing that is absent");
    assert!(content(&target) == expected, "the captured bytes differ");
    let sums = |file: &File| Checksums::compute(file, PAGE_BYTES as u32).unwrap();
    assert_eq!(sums(&base).with_pages(&captured.sums.clone().unwrap()), Some(sums(&target)));
    for (page, (old, new)) in bytes.chunks(PAGE).zip(expected.chunks(PAGE)).enumerate() {
        let offset = page as u64 * PAGE_BYTES;
        let is_listed = captured.ranges.iter().any(|range| range.contains(&offset));
        assert!(is_listed || old == new, "page {page} changed and is not listed");
    }
    assert!(captured.bytes < 400 * PAGE_BYTES, "{captured:?}");
    let (_served, sum) = blocking(served, move |guest| {
        guest.read(1, 0, pages, 4);
        guest.sum(1)
    })
    .await;
    assert_eq!(sum, sum_of(&expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_of_another_length_or_a_dead_guest_is_refused() {
    let bytes = memory_of(64);
    let mut served = Served::start(&bytes, &[64]).await;
    let memory = served.server.memory(served.guest.pid()).unwrap();
    let (short, target) = (file_of(&bytes[PAGE..]), file_of(&bytes));
    let refused = capture_compared(&memory, &short, &target, WriteOut::Later);
    assert!(matches!(refused, Err(CaptureError::TargetLength { .. })), "{refused:?}");
    served.guest.kill();
    let refused = capture_compared(&memory, &target, &target, WriteOut::Later);
    assert!(matches!(refused, Err(CaptureError::Scan(_))), "{refused:?}");
    assert!(served.server.memory(served.guest.pid()).is_err());
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}
