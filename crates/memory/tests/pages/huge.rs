//! Memory in huge pages, of which the host sets a few aside for as long as a test lasts.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use memory::pages::{PageError, PageServer, Trace};
use memory::stream::FileSource;
use memory::{WriteOut, capture_compared};
use rustix::fs::FlockOperation;
use rustix::mm::{MapFlags, ProtFlags};

use crate::guest::sum_of;
use crate::source::{Source, file_of};
use crate::{CHUNK_PAGES, PAGE, PAGE_BYTES, Served, TIMEOUT, blocking, hand_over, memory_of, pattern};

const HUGE: usize = 2 << 20;
/// Small pages in a huge one.
const SMALL: usize = HUGE / PAGE;

/// Huge pages that were set aside; given back when dropped.
struct Aside {
    count: File,
    before: usize,
    /// What is reserved and so in nobody's reach: address and length.
    reserved: Vec<(*mut std::ffi::c_void, usize)>,
}

// SAFETY: the mappings are this value's alone, and nobody touches them.
unsafe impl Send for Aside {}

impl Aside {
    /// As many free huge pages, whatever there is besides; `None`, said aloud, where that cannot be had. One test at a time has any.
    fn set(wanted: usize) -> Option<Aside> {
        let folder = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB");
        let number =
            |name: &str| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<usize>().ok();
        let set = || {
            let count = File::options().read(true).write(true).open(folder.join("nr_hugepages")).ok()?;
            rustix::fs::flock(&count, FlockOperation::LockExclusive).ok()?;
            let mut aside = Aside { before: number("nr_hugepages")?, count, reserved: Vec::new() };
            aside.write(aside.before + wanted);
            let free = number("free_hugepages")?.checked_sub(number("resv_hugepages")?)?;
            aside.reserve(free.checked_sub(wanted)?)?;
            Some(aside)
        };
        let aside = set();
        if aside.is_none() {
            eprintln!("SKIPPED: this host does not set {wanted} huge pages of 2 MiB aside");
        }
        aside
    }

    fn write(&self, count: usize) {
        self.count.write_all_at(count.to_string().as_bytes(), 0).unwrap();
    }

    /// Puts free pages out of reach.
    fn reserve(&mut self, pages: usize) -> Option<()> {
        let (length, protection) = (pages * HUGE, ProtFlags::READ | ProtFlags::WRITE);
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB;
        if pages > 0 {
            // SAFETY: a fresh mapping that nobody touches.
            let mapped =
                unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
            self.reserved.push((mapped.ok()?, length));
        }
        Some(())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        for (address, length) in self.reserved.drain(..) {
            // SAFETY: a mapping of this value, which goes.
            unsafe { rustix::mm::munmap(address, length) }.unwrap();
        }
        self.write(self.before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_are_put_in_place_whole() {
    let pages = 2 * CHUNK_PAGES;
    let Some(_aside) = Aside::set(pages / SMALL) else { return };
    let mut bytes = memory_of(pages);
    bytes[..SMALL * PAGE].fill(0);
    let served = Served::start_with(Source::new(&bytes), &[pages], Trace::default(), true).await;
    let (mut served, (first, second)) = blocking(served, move |guest| {
        guest.read(0, 0, pages, 4);
        let first = guest.sum(0);
        guest.remove(SMALL, SMALL);
        guest.read(1, 0, pages, 4);
        (first, guest.sum(1))
    })
    .await;
    assert_eq!(first, sum_of(&bytes));
    bytes[SMALL * PAGE..2 * SMALL * PAGE].fill(0);
    assert_eq!(second, sum_of(&bytes));
    assert_eq!(served.server.removed(), [SMALL as u64 * PAGE_BYTES..2 * SMALL as u64 * PAGE_BYTES]);
    served.guest.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_come_from_a_file_and_what_was_changed_is_found() {
    let pages = 3 * CHUNK_PAGES;
    let Some(_aside) = Aside::set(pages / SMALL) else { return };
    let bytes = memory_of(pages);
    let (_directory, guest, handover) =
        hand_over(&[CHUNK_PAGES + SMALL, pages - CHUNK_PAGES - SMALL], true).await;
    let source = Arc::new(FileSource::new(file_of(&bytes)).unwrap());
    let server = PageServer::start(handover, source, Trace::default()).unwrap();
    let writing = tokio::task::spawn_blocking(move || {
        let mut guest = guest;
        guest.read(0, 0, 10, 1);
        let sum = guest.sum(0);
        // On both sides of where the first region ends, and data by zeros.
        guest.write(CHUNK_PAGES + SMALL - 2, 4, 9);
        guest.write(5, 1, 0);
        (guest, sum)
    });
    let (guest, sum) = writing.await.unwrap();
    assert_eq!(sum, sum_of(&bytes[..10 * PAGE]));
    let mut expected = bytes.clone();
    for (page, seed) in
        (CHUNK_PAGES + SMALL - 2..CHUNK_PAGES + SMALL + 2).map(|page| (page, 9)).chain([(5, 0)])
    {
        expected[page * PAGE..(page + 1) * PAGE].copy_from_slice(&pattern(page, seed));
    }

    let (base, target) = (file_of(&bytes), file_of(&bytes));
    let memory = server.memory(guest.pid()).unwrap();
    let held: u64 = memory.changed().unwrap().iter().map(|range| range.end - range.start).sum();
    assert_eq!(held, 3 * HUGE as u64, "what was touched is there, and nothing else");
    let faults = server.counts().faults;
    let captured = capture_compared(&memory, &base, &target, WriteOut::Later).unwrap();
    assert_eq!(captured.bytes, 5 * PAGE_BYTES, "of a huge page only what changed counts");
    assert_eq!(server.counts().faults, faults, "a capture touches nothing that is absent");
    let mut read = vec![0; expected.len()];
    target.read_exact_at(&mut read, 0).unwrap();
    assert!(read == expected, "the captured bytes differ");
    let reading = tokio::task::spawn_blocking(move || {
        let mut guest = guest;
        guest.read(1, 0, pages, 4);
        let sum = guest.sum(1);
        guest.kill();
        sum
    });
    assert_eq!(reading.await.unwrap(), sum_of(&expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_any_left_is_told_of() {
    let pages = 2 * CHUNK_PAGES;
    let Some(_aside) = Aside::set(1) else { return };
    let mut served =
        Served::start_with(Source::new(&memory_of(pages)), &[pages], Trace::default(), true).await;
    served.guest.read(0, 0, pages, 2);
    let failed = tokio::time::timeout(TIMEOUT, served.server.failed()).await.unwrap();
    assert!(matches!(failed, PageError::NoHugePage), "{failed:?}");
    served.guest.kill();
}
