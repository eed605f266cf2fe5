//! The kernel's interface for answering page faults of another process, as few calls on one descriptor.
//!
//! The only module of the page server with `unsafe` code. It contains the kernel's structures and one function per call, no
//! policy.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::OFlags;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::PAGE_BYTES;

const EVENT_PAGEFAULT: u8 = 0x12;
const EVENT_REMOVE: u8 = 0x15;

/// What the link of a userfaultfd in `/proc/PID/fd` says.
pub(super) const LINK: &str = "anon_inode:[userfaultfd]";

/// Messages taken from the kernel per read: 2 KiB of stack.
const MESSAGES_PER_READ: usize = 64;

/// What a process did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A thread waits for memory at this address.
    Fault { address: u64 },
    /// Memory is being given back; it is zeros from now on.
    Remove { start: u64, end: u64 },
    /// Something that was not asked for.
    Other(u8),
}

/// `struct uffd_msg` of `linux/userfaultfd.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    arguments: [u64; 3],
}

impl Message {
    fn event(&self) -> Event {
        match (self.event, self.arguments) {
            (EVENT_PAGEFAULT, [_flags, address, _]) => Event::Fault { address },
            (EVENT_REMOVE, [start, end, _]) => Event::Remove { start, end },
            (other, _) => Event::Other(other),
        }
    }
}

/// `struct uffdio_range`.
#[repr(C)]
struct RangeArgument {
    start: u64,
    length: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
struct CopyArgument {
    to: u64,
    from: u64,
    length: u64,
    mode: u64,
    copied: i64,
}

/// `struct uffdio_zeropage`.
#[repr(C)]
struct ZeroArgument {
    start: u64,
    length: u64,
    mode: u64,
    zeroed: i64,
}

const COPY: Opcode = opcode::read_write::<CopyArgument>(0xAA, 0x03);
const ZERO: Opcode = opcode::read_write::<ZeroArgument>(0xAA, 0x04);
const WAKE: Opcode = opcode::read::<RangeArgument>(0xAA, 0x02);

/// A call that reads its argument and may write to it.
struct Call<'a, const OPCODE: Opcode, T>(&'a mut T);

// SAFETY: the pointer is to a live value of the structure that the opcode takes, which the callers below see to.
unsafe impl<const OPCODE: Opcode, T> Ioctl for Call<'_, OPCODE, T> {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::from_mut(self.0).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// A userfaultfd of another process.
#[derive(Debug)]
pub(super) struct Userfault {
    descriptor: OwnedFd,
    /// Tells which pages that process has, where it was asked for.
    pagemap: Option<File>,
}

impl Userfault {
    /// Takes a descriptor, if it is a userfaultfd. Reading from it never waits afterwards.
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Userfault> {
        let link = rustix::fs::readlink(format!("/proc/self/fd/{}", descriptor.as_raw_fd()), Vec::new())?;
        if link.as_bytes() != LINK.as_bytes() {
            return Err(io::Error::other("the descriptor is not a userfaultfd"));
        }
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        Ok(Userfault { descriptor, pagemap: None })
    }

    /// The same, and [`Userfault::has_page`] can tell. `pid` is the process whose userfaultfd it is.
    pub(super) fn with_pages_of(self, pid: u32) -> io::Result<Userfault> {
        Ok(Userfault { pagemap: Some(File::open(format!("/proc/{pid}/pagemap"))?), ..self })
    }

    /// Whether there is a page at an address. `ESRCH` when the process is gone; yes where nobody can tell.
    pub(super) fn has_page(&self, address: u64) -> Result<bool, rustix::io::Errno> {
        const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
        let Some(pagemap) = &self.pagemap else { return Ok(true) };
        let mut entry = [0; 8];
        match rustix::io::pread(pagemap, &mut entry, address / PAGE_BYTES * 8)? {
            8 => Ok(u64::from_ne_bytes(entry) & PRESENT_OR_SWAPPED != 0),
            _ => Err(rustix::io::Errno::SRCH),
        }
    }

    /// Has the tokio runtime of the caller tell when there is something to read.
    pub(super) fn watch(self) -> io::Result<AsyncFd<Userfault>> {
        // SAFETY: `Userfault` owns the descriptor, never replaces or closes it, and always names the same one.
        Ok(unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) }?)
    }

    /// Adds what happened to `events`; nothing when there is nothing. Returns whether there may be more: what is read at once
    /// has a bound, or a process could have it read for ever.
    pub(super) fn read(&self, events: &mut Vec<Event>) -> io::Result<bool> {
        let mut buffer = [Message::default(); MESSAGES_PER_READ];
        // SAFETY: the kernel writes no more bytes than the buffer has, and every bit pattern is a message.
        let read = unsafe {
            libc::read(self.descriptor.as_raw_fd(), buffer.as_mut_ptr().cast(), size_of_val(&buffer))
        };
        if read < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(true),
                io::ErrorKind::WouldBlock => Ok(false),
                _ => Err(error),
            };
        }
        let count = read as usize / size_of::<Message>();
        events.extend(buffer[..count].iter().map(Message::event));
        Ok(count == buffer.len())
    }

    /// Puts bytes in place at an address where nothing is, and wakes who waits there. Returns how many were put: less than
    /// asked for when something was in the way. `EEXIST` when there is something at the address itself, `EAGAIN` when an event
    /// has to be read first, `ESRCH` when the process is gone.
    pub(super) fn copy(&self, address: u64, bytes: &[u8]) -> Result<u64, rustix::io::Errno> {
        let length = bytes.len() as u64;
        let mut argument =
            CopyArgument { to: address, from: bytes.as_ptr() as u64, length, mode: 0, copied: 0 };
        // SAFETY: a `struct uffdio_copy`; the kernel reads `length` bytes of `bytes`, which is borrowed, and writes to the other
        // process only, at addresses it checks.
        let result = unsafe { rustix::ioctl::ioctl(&self.descriptor, Call::<COPY, _>(&mut argument)) };
        put(result, argument.copied, length)
    }

    /// Puts zeros in place, like [`Userfault::copy`]. They take no memory until they are written.
    pub(super) fn zero(&self, address: u64, length: u64) -> Result<u64, rustix::io::Errno> {
        let mut argument = ZeroArgument { start: address, length, mode: 0, zeroed: 0 };
        // SAFETY: a `struct uffdio_zeropage`; nothing of this process is touched but it.
        let result = unsafe { rustix::ioctl::ioctl(&self.descriptor, Call::<ZERO, _>(&mut argument)) };
        put(result, argument.zeroed, length)
    }

    /// Wakes who waits in a range; where nothing is in place they ask again.
    pub(super) fn wake(&self, address: u64, length: u64) -> Result<(), rustix::io::Errno> {
        let mut argument = RangeArgument { start: address, length };
        // SAFETY: a `struct uffdio_range`, which the kernel only reads.
        unsafe { rustix::ioctl::ioctl(self.descriptor.as_fd(), Call::<WAKE, _>(&mut argument)) }
    }
}

impl AsRawFd for Userfault {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The kernel says `EAGAIN` for a part, and how long that is.
fn put(result: rustix::io::Result<()>, put: i64, length: u64) -> Result<u64, rustix::io::Errno> {
    match result {
        Ok(()) => Ok(length),
        Err(rustix::io::Errno::AGAIN) if put > 0 => Ok(put as u64),
        Err(errno) => Err(errno),
    }
}
