//! Can memory be filled on demand and its changes be found? Both on a few pages of our own.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::NEWER_KERNEL;
use crate::check::{Check, Subject};

const USERFAULTFD: Subject = Subject { name: "userfaultfd", title: "Memory filled on demand (userfaultfd)" };
const PAGEMAP_SCAN: Subject =
    Subject { name: "pagemap_scan", title: "Changed memory found quickly (PAGEMAP_SCAN)" };

/// Every x86-64 kernel's.
const PAGE_BYTES: usize = 4096;
const PATTERN: u8 = 0x5a;

const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00;
const UFFDIO_COPY: libc::Ioctl = 0xc028_aa03;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;

const PAGEMAP_SCAN_REQUEST: libc::Ioctl = 0xc060_6610;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;

pub(super) fn userfaultfd() -> Check {
    match serve_one_fault() {
        Ok(()) => USERFAULTFD.ok("a fault on a missing page was caught and filled"),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            USERFAULTFD.warning(format!("refused: {error}"), "sysctl -w vm.unprivileged_userfaultfd=1")
        }
        Err(error) => USERFAULTFD.warning(format!("{error}: snapshots will be loaded whole"), NEWER_KERNEL),
    }
}

pub(super) fn pagemap_scan() -> Check {
    match scan_private_pages() {
        Ok(()) => PAGEMAP_SCAN.ok("of four pages mapped from a file, the one written to was found"),
        Err(error) => PAGEMAP_SCAN.warning(
            format!("{error}: the slower /proc/PID/pagemap will be read instead (Linux 6.7 has it)"),
            NEWER_KERNEL,
        ),
    }
}

/// Pages mapped for a trial, unmapped when dropped.
struct Pages {
    address: *mut u8,
    bytes: usize,
}

impl Pages {
    fn map(count: usize, file: Option<&File>) -> Result<Pages> {
        let bytes = count * PAGE_BYTES;
        let (kind, fd) = file.map_or((libc::MAP_ANONYMOUS, -1), |file| (0, file.as_raw_fd()));
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice disturbs no other memory.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_PRIVATE | kind, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Pages { address: address.cast(), bytes })
    }

    /// Address of page `index`, as a number.
    fn page(&self, index: usize) -> u64 {
        (self.address as usize + index * PAGE_BYTES) as u64
    }

    fn read(&self, index: usize) -> u8 {
        debug_assert!(index * PAGE_BYTES < self.bytes);
        // SAFETY: the index is inside the mapping, which lives as long as `self`.
        unsafe { self.address.add(index * PAGE_BYTES).read_volatile() }
    }

    fn write(&self, index: usize, value: u8) {
        debug_assert!(index * PAGE_BYTES < self.bytes);
        // SAFETY: as for `read`; the mapping is writable and no reference to it exists.
        unsafe { self.address.add(index * PAGE_BYTES).write_volatile(value) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made, of which no reference is left.
        unsafe { libc::munmap(self.address.cast(), self.bytes) };
    }
}

/// Has one fault of a second thread served by this one.
fn serve_one_fault() -> Result<()> {
    // SAFETY: the call takes flags and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let faults = File::from(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    let page = Pages::map(1, None)?;
    request(&faults, UFFDIO_API, &mut [UFFD_API, 0, 0])?;
    let length = PAGE_BYTES as u64;
    request(&faults, UFFDIO_REGISTER, &mut [page.page(0), length, UFFDIO_REGISTER_MODE_MISSING, 0])?;
    std::thread::scope(|scope| {
        let address = page.page(0) as usize;
        let toucher = scope.spawn(move || {
            // SAFETY: the page stays mapped until the scope, which joins this thread, has ended.
            unsafe { (address as *const u8).read_volatile() }
        });
        let served = fill(faults, page.page(0));
        // `fill` has closed the descriptor: had it failed, the kernel now lets the thread go on with a zero page.
        let seen = toucher.join().map_err(|_| Error::other("the touching thread died"))?;
        served?;
        if seen == PATTERN { Ok(()) } else { Err(Error::other("the page did not hold what was put there")) }
    })
}

/// Waits for the fault on `address` and answers it. Takes the descriptor, so that it is closed whatever happens.
fn fill(mut faults: File, address: u64) -> Result<()> {
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    if poll(&mut [PollFd::new(&faults, PollFlags::IN)], Some(&patience))? == 0 {
        return Err(Error::other("no fault was reported"));
    }
    let mut message = [0u8; 32];
    faults.read_exact(&mut message)?;
    let mut reported = [0u8; 8];
    reported.copy_from_slice(&message[16..24]);
    if message[0] != UFFD_EVENT_PAGEFAULT
        || u64::from_ne_bytes(reported) & !(PAGE_BYTES as u64 - 1) != address
    {
        return Err(Error::other("another event than the fault was reported"));
    }
    let content = [PATTERN; PAGE_BYTES];
    request(&faults, UFFDIO_COPY, &mut [address, content.as_ptr() as u64, PAGE_BYTES as u64, 0, 0])
}

fn request<const WORDS: usize>(faults: &File, code: libc::Ioctl, argument: &mut [u64; WORDS]) -> Result<()> {
    debug_assert_eq!((code >> 16) as usize & 0x3fff, WORDS * 8, "the code carries the argument's size");
    // SAFETY: the kernel reads and writes as many bytes as the code says, which is the array's length; addresses
    // inside of it lead to the trial page and to a buffer that outlives the call.
    match unsafe { libc::ioctl(faults.as_raw_fd(), code, argument.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Changes one of four pages that come from a file, and asks the kernel which are no longer the file's.
fn scan_private_pages() -> Result<()> {
    let mut file = tempfile::tempfile()?;
    file.write_all(&[1; 4 * PAGE_BYTES])?;
    let pages = Pages::map(4, Some(&file))?;
    (0..4).for_each(|index| {
        pages.read(index);
    });
    pages.write(2, PATTERN);
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut regions = [[0u64; 3]; 4];
    // `struct pm_scan_arg`: present, and not the file's.
    let mut argument: [u64; 12] = [
        96,
        0,
        pages.page(0),
        pages.page(4),
        0,
        regions.as_mut_ptr() as u64,
        regions.len() as u64,
        0,
        PAGE_IS_FILE,
        PAGE_IS_FILE | PAGE_IS_PRESENT,
        0,
        PAGE_IS_FILE | PAGE_IS_PRESENT,
    ];
    // SAFETY: the argument is as long as the code says (96 bytes) and points to `regions`, whose length it carries.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN_REQUEST, argument.as_mut_ptr()) };
    if found < 0 {
        return Err(Error::last_os_error());
    }
    let right = found == 1 && regions[0][0] == pages.page(2) && regions[0][1] == pages.page(3);
    if right { Ok(()) } else { Err(Error::other("the kernel named other pages than the changed one")) }
}
