//! Captures the memory of a real second process and compares every byte.
//!
//! The other process is this test program again: it maps a file privately, writes what it is told to, says so and
//! waits. It stands for a paused VMM.
#![allow(unsafe_code, clippy::unwrap_used, clippy::single_range_in_vec_init)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use memory::{CaptureError, Checksums, GuestMemory, PAGE_BYTES, ScanError, Sharing, WriteOut, capture};

const PAGE: usize = PAGE_BYTES as usize;
const FILE_VARIABLE: &str = "MEMORY_TEST_FILE";
/// The page with which the second part begins; without it the memory has one part.
const SPLIT_VARIABLE: &str = "MEMORY_TEST_SPLIT";

/// What the other process does to its memory; one line each on its standard input.
enum Order {
    /// Fills `pages` pages from `first` with bytes made from `seed`; seed 0 fills zeros.
    Fill { first: usize, pages: usize, seed: u8 },
    /// Touches pages without changing them.
    Read { first: usize, pages: usize },
    /// Gives one page another protection, which splits the mapping in `/proc/PID/maps`.
    Protect { page: usize },
    /// Asks for huge pages.
    Huge,
    /// Puts anonymous memory in place of pages, as a VMM does for a guest's balloon.
    GiveBack { first: usize, pages: usize },
}

struct OtherProcess {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<std::process::ChildStdout>,
}

impl OtherProcess {
    fn start(file: &Path) -> OtherProcess {
        OtherProcess::start_split(file, None)
    }

    fn start_split(file: &Path, split: Option<usize>) -> OtherProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "other_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(FILE_VARIABLE, file)
            .envs(split.map(|page| (SPLIT_VARIABLE, page.to_string())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut process = OtherProcess { child, orders, answers };
        process.wait_until_done();
        process
    }

    fn order(&mut self, order: &Order) {
        let line = match order {
            Order::Fill { first, pages, seed } => format!("fill {first} {pages} {seed}"),
            Order::Read { first, pages } => format!("read {first} {pages} 0"),
            Order::Protect { page } => format!("protect {page} 0 0"),
            Order::Huge => "huge 0 0 0".to_owned(),
            Order::GiveBack { first, pages } => format!("give {first} {pages} 0"),
        };
        writeln!(self.orders.as_mut().unwrap(), "{line}").unwrap();
        self.wait_until_done();
    }

    fn wait_until_done(&mut self) {
        let mut line = String::new();
        while !line.contains("DONE") {
            line.clear();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the other process ended");
        }
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pattern(page: usize, seed: u8) -> Vec<u8> {
    (0..PAGE).map(|index| if seed == 0 { 0 } else { (page * 31 + index * 7) as u8 ^ seed }).collect()
}

#[test]
#[ignore = "the other process of the tests here; does nothing on its own"]
fn other_process() {
    use rustix::mm::{Advice, MprotectFlags};
    let Some(path) = std::env::var_os(FILE_VARIABLE) else { return };
    let file = File::open(path).unwrap();
    let split = std::env::var(SPLIT_VARIABLE).ok().map(|page| page.parse().unwrap());
    let memory = Mapped::new(&file, split);
    println!("DONE");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<usize>().unwrap();
        match words[0] {
            "fill" => {
                for page in number(1)..number(1) + number(2) {
                    let bytes = pattern(page, number(3) as u8);
                    // SAFETY: a page inside the mapping; the tests order none outside of it.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.page(page), PAGE) };
                }
            }
            "read" => {
                for page in number(1)..number(1) + number(2) {
                    // SAFETY: as above.
                    unsafe { memory.page(page).read_volatile() };
                }
            }
            // SAFETY: one whole page inside the mapping.
            "protect" => unsafe {
                rustix::mm::mprotect(memory.page(number(1)).cast(), PAGE, MprotectFlags::READ).unwrap();
            },
            // SAFETY: advice about our own mapping, which has one part in the tests that order this.
            "huge" => unsafe {
                let _ = rustix::mm::madvise(memory.page(0).cast(), memory.length, Advice::LinuxHugepage);
            },
            "give" => memory.give_back(number(1), number(2)),
            other => panic!("{other}"),
        }
        println!("DONE");
    }
}

/// The memory of the other process, which lives until that ends. Pages that nobody can touch lie around every part.
struct Mapped {
    first: *mut u8,
    second: *mut u8,
    split: usize,
    length: usize,
}

impl Mapped {
    fn new(file: &File, split: Option<usize>) -> Mapped {
        use rustix::mm::{MapFlags, ProtFlags};
        let length = file.metadata().unwrap().len() as usize;
        let split = split.unwrap_or(length / PAGE);
        // SAFETY: a fresh mapping that lives until the process ends; the file takes the place of pieces of it.
        unsafe {
            let room = rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length + 3 * PAGE,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            );
            let second = room.unwrap().cast::<u8>().add(PAGE);
            let first = second.add(length - split * PAGE + PAGE);
            let map = |address: *mut u8, length: usize, offset: usize| {
                let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                let protection = ProtFlags::READ | ProtFlags::WRITE;
                rustix::mm::mmap(address.cast(), length, protection, flags, file, offset as u64).unwrap();
            };
            map(first, split * PAGE, 0);
            if split * PAGE < length {
                map(second, length - split * PAGE, split * PAGE);
            }
            Mapped { first, second, split, length }
        }
    }

    fn page(&self, page: usize) -> *mut u8 {
        // SAFETY: inside the mapping of its part; the tests name no page that is not there.
        unsafe {
            match page < self.split {
                true => self.first.add(page * PAGE),
                false => self.second.add((page - self.split) * PAGE),
            }
        }
    }

    fn give_back(&self, first: usize, pages: usize) {
        use rustix::mm::{MapFlags, ProtFlags};
        for page in first..first + pages {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            // SAFETY: replaces one whole page of our own mapping, to which nothing refers.
            unsafe { rustix::mm::mmap_anonymous(self.page(page).cast(), PAGE, protection, flags) }.unwrap();
        }
    }
}

/// A base file with data in every third page, and the place for a copy of it.
struct Files {
    _directory: tempfile::TempDir,
    base: PathBuf,
    target: PathBuf,
}

impl Files {
    fn new(pages: usize) -> Files {
        let directory = tempfile::tempdir().unwrap();
        let (base, target) = (directory.path().join("base"), directory.path().join("target"));
        // Twice the same, as a clone is, with the same holes.
        for path in [&base, &target] {
            let file = File::create_new(path).unwrap();
            file.set_len((pages * PAGE) as u64).unwrap();
            for page in (0..pages).step_by(3) {
                file.write_all_at(&pattern(page, 0x55), (page * PAGE) as u64).unwrap();
            }
        }
        Files { _directory: directory, base, target }
    }

    fn target(&self) -> File {
        File::options().read(true).write(true).open(&self.target).unwrap()
    }
}

fn check(pages: usize, orders: &[Order]) -> memory::Captured {
    check_split(pages, None, orders)
}

fn check_split(pages: usize, split: Option<usize>, orders: &[Order]) -> memory::Captured {
    let files = Files::new(pages);
    let mut expected = std::fs::read(&files.base).unwrap();
    let mut touched = vec![false; pages];
    let mut process = OtherProcess::start_split(&files.base, split);
    for order in orders {
        process.order(order);
        let filled = match *order {
            Order::Fill { first, pages, seed } => Some((first, pages, seed)),
            Order::GiveBack { first, pages } => Some((first, pages, 0)),
            _ => None,
        };
        if let Some((first, pages, seed)) = filled {
            for page in first..first + pages {
                expected[page * PAGE..(page + 1) * PAGE].copy_from_slice(&pattern(page, seed));
                touched[page] = true;
            }
        }
    }
    let memory = GuestMemory::find(process.child.id(), &File::open(&files.base).unwrap()).unwrap();
    assert_eq!(memory.sharing(), Sharing::Private);
    assert_eq!(memory.length(), (pages * PAGE) as u64);
    let lengths: Vec<u64> = memory.parts().iter().map(|part| part.length / PAGE_BYTES).collect();
    let expected_lengths = split.map_or(vec![pages], |split| vec![split, pages - split]);
    assert_eq!(lengths, Vec::from_iter(expected_lengths.into_iter().map(|pages| pages as u64)));
    let captured = capture(&memory, &files.target(), WriteOut::AtOnce).unwrap();

    assert!(std::fs::read(&files.target).unwrap() == expected, "the captured bytes differ");
    let sums = |path: &Path| Checksums::compute(&File::open(path).unwrap(), PAGE_BYTES as u32).unwrap();
    assert_eq!(captured.sums, None, "there is time for sums while the disk is at work");
    let again = capture(&memory, &files.target(), WriteOut::Later).unwrap();
    assert_eq!(sums(&files.base).with_pages(&again.sums.unwrap()), Some(sums(&files.target)));
    assert_eq!(captured.bytes, touched.iter().filter(|touched| **touched).count() as u64 * PAGE_BYTES);
    for range in &captured.ranges {
        let pages = range.start / PAGE_BYTES..range.end / PAGE_BYTES;
        assert!(pages.clone().all(|page| touched[page as usize]), "{pages:?} were not written");
    }
    captured
}

#[test]
fn nothing_changed_copies_nothing() {
    let captured = check(64, &[Order::Read { first: 0, pages: 64 }]);
    assert_eq!((captured.bytes, captured.ranges.len()), (0, 0));
}

#[test]
fn everything_changed() {
    check(1024, &[Order::Fill { first: 0, pages: 1024, seed: 9 }]);
}

#[test]
fn scattered_pages_beyond_one_window() {
    let orders: Vec<Order> =
        (0..2600).map(|index| Order::Fill { first: index * 2, pages: 1, seed: 3 }).collect();
    let captured = check(5300, &orders);
    assert_eq!(captured.ranges.len(), 2600);
}

#[test]
fn zeros_become_holes_and_keep_their_neighbours() {
    let captured = check(
        1024,
        &[
            Order::Fill { first: 10, pages: 5, seed: 1 },
            Order::Fill { first: 15, pages: 300, seed: 0 },
            Order::Fill { first: 315, pages: 2, seed: 2 },
            Order::Fill { first: 600, pages: 1, seed: 0 },
        ],
    );
    assert_eq!(captured.ranges.len(), 2);
    // The single page replaces data, which is not worth a hole.
    assert_eq!(captured.zero_bytes, 300 * PAGE_BYTES);
}

#[test]
fn zeros_where_there_was_nothing_store_nothing() {
    let captured = check(
        1024,
        &[Order::Fill { first: 1, pages: 2, seed: 0 }, Order::Fill { first: 700, pages: 1, seed: 0 }],
    );
    assert_eq!(captured.zero_bytes, 3 * PAGE_BYTES);
}

#[test]
fn zeros_free_the_space_of_what_they_replace() {
    let files = Files::new(1024);
    std::fs::write(&files.target, vec![7; 1024 * PAGE]).unwrap();
    let mut process = OtherProcess::start(&files.base);
    process.order(&Order::Fill { first: 0, pages: 1024, seed: 0 });
    let memory = GuestMemory::find(process.child.id(), &File::open(&files.base).unwrap()).unwrap();
    let target = files.target();
    capture(&memory, &target, WriteOut::Later).unwrap();
    target.sync_all().unwrap();
    assert_eq!(target.metadata().unwrap().blocks(), 0);
    assert!(std::fs::read(&files.target).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn a_mapping_that_was_split_is_one_memory() {
    check(
        512,
        &[
            Order::Protect { page: 100 },
            Order::Fill { first: 90, pages: 10, seed: 4 },
            Order::Fill { first: 101, pages: 10, seed: 5 },
            Order::Protect { page: 105 },
        ],
    );
}

#[test]
fn memory_in_two_parts() {
    let captured = check_split(
        1000,
        Some(700),
        &[
            Order::Read { first: 0, pages: 900 },
            Order::Fill { first: 0, pages: 3, seed: 1 },
            Order::Fill { first: 690, pages: 20, seed: 2 },
            Order::Fill { first: 999, pages: 1, seed: 3 },
        ],
    );
    assert_eq!(captured.ranges.len(), 3);
}

#[test]
fn memory_given_back_is_zero_until_it_is_written() {
    // With data in every third page of the base, every longer piece replaces some.
    let orders = [
        Order::Fill { first: 95, pages: 20, seed: 1 },
        Order::GiveBack { first: 100, pages: 300 },
        Order::Fill { first: 200, pages: 5, seed: 2 },
        Order::Read { first: 220, pages: 5 },
        Order::GiveBack { first: 500, pages: 1 },
        Order::GiveBack { first: 510, pages: 2 },
        Order::GiveBack { first: 0, pages: 30 },
        Order::GiveBack { first: 980, pages: 20 },
        Order::Fill { first: 999, pages: 1, seed: 3 },
    ];
    check(1000, &orders);
    check_split(1000, Some(600), &orders);
}

#[test]
fn memory_given_back_on_both_sides_of_a_border() {
    let orders = [Order::GiveBack { first: 580, pages: 50 }, Order::Fill { first: 610, pages: 2, seed: 2 }];
    check_split(1000, Some(600), &orders);
    check_split(1000, Some(580), &orders);
    check_split(1000, Some(630), &orders);
}

#[test]
fn what_was_given_back_takes_no_space() {
    let files = Files::new(1024);
    let mut process = OtherProcess::start(&files.base);
    process.order(&Order::GiveBack { first: 1, pages: 1022 });
    let memory = GuestMemory::find(process.child.id(), &File::open(&files.base).unwrap()).unwrap();
    assert_eq!(*memory.given_back(), [PAGE_BYTES..1023 * PAGE_BYTES]);
    let target = files.target();
    let captured = capture(&memory, &target, WriteOut::Later).unwrap();
    assert_eq!((captured.bytes, captured.zero_bytes), (1022 * PAGE_BYTES, 1022 * PAGE_BYTES));
    target.sync_all().unwrap();
    assert!(target.metadata().unwrap().blocks() * 512 <= 2 * PAGE_BYTES);
    // Asking did not bring the pages back.
    assert_eq!(memory.changed().unwrap(), captured.ranges);
}

#[test]
fn huge_pages_change_nothing() {
    check(
        2048,
        &[
            Order::Huge,
            Order::Fill { first: 512, pages: 512, seed: 6 },
            Order::Fill { first: 1500, pages: 3, seed: 7 },
        ],
    );
}

#[test]
fn a_target_of_another_length_is_refused() {
    let files = Files::new(16);
    let process = OtherProcess::start(&files.base);
    let memory = GuestMemory::find(process.child.id(), &File::open(&files.base).unwrap()).unwrap();
    let target = files.target();
    target.set_len(15 * PAGE_BYTES).unwrap();
    assert!(matches!(capture(&memory, &target, WriteOut::Later), Err(CaptureError::TargetLength { .. })));
}

#[test]
fn a_dead_vmm_is_not_an_unchanged_one() {
    let files = Files::new(16);
    let mut process = OtherProcess::start(&files.base);
    process.order(&Order::Fill { first: 0, pages: 4, seed: 1 });
    let memory = GuestMemory::find(process.child.id(), &File::open(&files.base).unwrap()).unwrap();
    assert!(memory.is_alive());
    drop(process);
    assert!(!memory.is_alive());
    assert!(matches!(
        capture(&memory, &files.target(), WriteOut::AtOnce),
        Err(CaptureError::Scan(ScanError::Gone { .. }))
    ));
}

#[test]
fn another_file_is_not_found() {
    let files = Files::new(16);
    let process = OtherProcess::start(&files.base);
    let found = GuestMemory::find(process.child.id(), &File::open(&files.target).unwrap());
    assert!(matches!(found, Err(memory::FindError::NotMapped { .. })));
}
