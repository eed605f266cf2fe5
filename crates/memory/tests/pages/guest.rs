//! A process that has its memory served, as a VMM has: it makes the memory and the descriptor for its faults, hands that over
//! and then touches its memory as it is told to. It is this test program again.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use xxhash_rust::xxh3::xxh3_64;

use crate::{PAGE, pattern};

const SOCKET_VARIABLE: &str = "PAGES_TEST_SOCKET";
const REGIONS_VARIABLE: &str = "PAGES_TEST_REGIONS";
const HUGE_VARIABLE: &str = "PAGES_TEST_HUGE";

/// The process as the tests see it.
pub(crate) struct Guest {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Guest {
    /// Starts a process with regions of so many pages, which connects to `socket`.
    pub(crate) fn start(socket: &Path, regions: &[usize], is_huge: bool) -> Guest {
        let regions = regions.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "guest_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(SOCKET_VARIABLE, socket)
            .env(REGIONS_VARIABLE, regions)
            .envs(is_huge.then_some((HUGE_VARIABLE, "1")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Guest { child, orders, answers }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A copy of its descriptor for faults.
    pub(crate) fn userfault(&self) -> OwnedFd {
        let pid = Pid::from_raw(self.pid() as i32).unwrap();
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let is_userfault = |number: &i32| {
            let link = std::fs::read_link(format!("/proc/{}/fd/{number}", self.pid()));
            link.is_ok_and(|link| link.as_os_str() == "anon_inode:[userfaultfd]")
        };
        let number = (0..100).find(is_userfault).unwrap();
        rustix::process::pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()).unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Has threads read pages in an order of their own; [`Guest::sum`] waits for them.
    pub(crate) fn read(&mut self, name: usize, first: usize, pages: usize, threads: usize) {
        self.order(&format!("read {name} {first} {pages} {threads}"));
    }

    /// The sum of what was read under a name, as [`sum_of`] makes it.
    pub(crate) fn sum(&mut self, name: usize) -> u64 {
        self.order(&format!("join {name}")).unwrap()
    }

    /// Fills pages with [`pattern`]s of a seed.
    pub(crate) fn write(&mut self, first: usize, pages: usize, seed: u8) {
        self.order(&format!("write {first} {pages} {seed}"));
    }

    /// Gives pages back.
    pub(crate) fn remove(&mut self, first: usize, pages: usize) {
        self.order(&format!("remove {first} {pages}"));
    }

    /// Reads pages from several threads while others give them back. Every page read has to be what it was, of this seed, or
    /// zeros; which pages are zeros to begin with does not matter.
    pub(crate) fn churn(&mut self, first: usize, pages: usize, seed: u8) {
        self.order(&format!("churn {first} {pages} {seed}"));
    }

    fn order(&mut self, order: &str) -> Option<u64> {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the guest ended");
            if let Some((_, answer)) = line.split_once("DONE ") {
                return answer.trim().parse().ok();
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One number for pages, whatever the order in which they were read.
pub(crate) fn sum_of(pages: &[u8]) -> u64 {
    let sums: Vec<u8> = pages.chunks(PAGE).flat_map(|page| xxh3_64(page).to_le_bytes()).collect();
    xxh3_64(&sums)
}

/// The body of the process.
pub(crate) fn run() {
    let Some(socket) = std::env::var_os(SOCKET_VARIABLE) else { return };
    let lengths: Vec<usize> =
        std::env::var(REGIONS_VARIABLE).unwrap().split(',').map(|pages| pages.parse().unwrap()).collect();
    let memory = Arc::new(Memory::new(&lengths, std::env::var_os(HUGE_VARIABLE).is_some()));
    memory.hand_over(Path::new(&socket));
    let mut readers: HashMap<usize, Readers> = HashMap::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (verb, numbers) = line.split_once(' ').unwrap();
        let numbers: Vec<usize> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        match (verb, &numbers[..]) {
            ("read", &[name, first, pages, threads]) => {
                readers.insert(name, read(&memory, first, pages, threads));
            }
            ("join", &[name]) => {
                let threads = readers.remove(&name).unwrap();
                let mut sums: Vec<_> =
                    threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
                sums.sort_unstable();
                let sums: Vec<u8> = sums.into_iter().flat_map(|(_, sum)| sum.to_le_bytes()).collect();
                answer(&xxh3_64(&sums).to_string());
                continue;
            }
            ("write", &[first, pages, seed]) => {
                (first..first + pages).for_each(|page| memory.write(page, &pattern(page, seed as u8)));
            }
            ("remove", &[first, pages]) => memory.remove(first, pages),
            ("churn", &[first, pages, seed]) => churn(&memory, first, pages, seed as u8),
            other => panic!("{other:?}"),
        }
        answer("-");
    }
}

fn answer(text: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "DONE {text}").and_then(|()| output.flush()).unwrap();
}

/// Threads that read pages, each its own share, and return a sum for every page.
type Readers = Vec<JoinHandle<Vec<(usize, u64)>>>;

/// Threads that read every page once, each its own share in an order of its own.
fn read(memory: &Arc<Memory>, first: usize, pages: usize, threads: usize) -> Readers {
    let share = |thread: usize| {
        let mut share: Vec<usize> = (first + thread..first + pages).step_by(threads).collect();
        share.sort_by_key(|page| xxh3_64(&page.to_le_bytes()));
        share
    };
    let reader = |thread: usize| {
        let (memory, share) = (Arc::clone(memory), share(thread));
        std::thread::spawn(move || {
            share.into_iter().map(|page| (page, xxh3_64(&memory.read(page)))).collect()
        })
    };
    (0..threads).map(reader).collect()
}

fn churn(memory: &Memory, first: usize, pages: usize, seed: u8) {
    let shuffled = |salt: u64| {
        let mut all: Vec<usize> = (first..first + pages).collect();
        all.sort_by_key(|page| xxh3_64(&(*page as u64 * 31 + salt).to_le_bytes()));
        all
    };
    std::thread::scope(|scope| {
        for salt in 0..3 {
            let order = shuffled(salt);
            scope.spawn(move || {
                for page in order {
                    let bytes = memory.read(page);
                    let is_known = bytes.iter().all(|byte| *byte == 0) || bytes == pattern(page, seed);
                    assert!(is_known, "page {page} is neither what it was nor zeros");
                }
            });
        }
        let order = shuffled(99);
        scope.spawn(move || order.into_iter().step_by(3).for_each(|page| memory.remove(page, 1)));
    });
}

/// Regions of anonymous memory whose faults are told over a descriptor.
struct Memory {
    regions: Vec<(*mut u8, usize)>,
    userfault: OwnedFd,
    page_bytes: usize,
}

// SAFETY: the pointers are to mappings that live as long as the process, and what threads do at the same time there are volatile
// copies of whole pages, as guests and devices of a machine do.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(lengths: &[usize], is_huge: bool) -> Memory {
        // SAFETY: a system call that takes a number; what it returns is owned here alone.
        let userfault = unsafe {
            let descriptor = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK);
            assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
            OwnedFd::from_raw_fd(descriptor as i32)
        };
        // `struct uffdio_api` with the version and UFFD_FEATURE_EVENT_REMOVE, which Firecracker asks for too.
        ioctl(&userfault, 0xc018_aa3f, &mut [0xaa, 1 << 3, 0]);
        // As Firecracker maps it: huge pages are not kept for it.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let flags = if is_huge { flags | MapFlags::HUGETLB } else { flags };
        let map = |pages: &usize| {
            let (length, protection) = (pages * PAGE, ProtFlags::READ | ProtFlags::WRITE);
            // SAFETY: a fresh mapping that lives until the process ends.
            let address =
                unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) }
                    .unwrap();
            // `struct uffdio_register` for pages that are missing.
            ioctl(&userfault, 0xc020_aa00, &mut [address as u64, length as u64, 1, 0]);
            (address.cast(), length)
        };
        let regions = lengths.iter().map(map).collect();
        Memory { regions, userfault, page_bytes: if is_huge { 2 << 20 } else { PAGE } }
    }

    fn hand_over(&self, socket: &Path) {
        let mut offset = 0;
        let mut regions = Vec::new();
        for (address, length) in &self.regions {
            regions.push(serde_json::json!({
                "base_host_virt_addr": *address as u64, "size": length, "offset": offset,
                "page_size": self.page_bytes, "page_size_kib": self.page_bytes,
            }));
            offset += length;
        }
        let stream = UnixStream::connect(socket).unwrap();
        let message = serde_json::to_vec(&regions).unwrap();
        let descriptors = [self.userfault.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let sent =
            rustix::net::sendmsg(&stream, &[IoSlice::new(&message)], &mut ancillary, SendFlags::empty());
        assert_eq!(sent.unwrap(), message.len());
        std::mem::forget(stream);
    }

    fn page(&self, page: usize) -> *mut u8 {
        let mut offset = page * PAGE;
        for (address, length) in &self.regions {
            if offset < *length {
                // SAFETY: inside this region.
                return unsafe { address.add(offset) };
            }
            offset -= length;
        }
        panic!("there is no page {page}");
    }

    fn read(&self, page: usize) -> Vec<u8> {
        // SAFETY: a whole page of the memory; every bit pattern is bytes.
        unsafe { self.page(page).cast::<[u8; PAGE]>().read_volatile() }.to_vec()
    }

    fn write(&self, page: usize, bytes: &[u8]) {
        let bytes: [u8; PAGE] = bytes.try_into().unwrap();
        // SAFETY: as above.
        unsafe { self.page(page).cast::<[u8; PAGE]>().write_volatile(bytes) };
    }

    fn remove(&self, first: usize, pages: usize) {
        // SAFETY: pages of one region, which read as zeros afterwards; nothing refers to them.
        unsafe { rustix::mm::madvise(self.page(first).cast(), pages * PAGE, Advice::LinuxDontNeed) }.unwrap();
    }
}

fn ioctl(descriptor: &OwnedFd, request: libc::c_ulong, argument: &mut [u64]) {
    // SAFETY: the requests above take as many numbers as they are given.
    let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), request, argument.as_mut_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
