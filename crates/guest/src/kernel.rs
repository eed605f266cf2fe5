//! Thin, safe wrappers of the system calls that the standard library has no words for.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// KeyedMutex the C convention into a `Result`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that return a `long`.
pub(crate) fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The error number of an error; `EIO` for what did not come from the kernel.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// A pipe: the end to read, the end to write. Closed in programs we start.
pub(crate) fn pipe() -> io::Result<(File, File)> {
    let mut ends = [-1; 2];
    // SAFETY: the kernel writes two descriptors into `ends`.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both are fresh and owned by nobody else.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// Makes reads and writes of a pipe or terminal, which have no other flags, return instead of waiting.
pub(crate) fn set_pipe_nonblocking(descriptor: &impl AsFd) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(descriptor.as_fd().as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    Ok(())
}

/// Makes reads and writes return instead of waiting.
pub(crate) fn set_nonblocking(descriptor: &impl AsFd) -> io::Result<()> {
    let raw = descriptor.as_fd().as_raw_fd();
    // SAFETY: no pointers.
    let flags = check(unsafe { libc::fcntl(raw, libc::F_GETFL) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(raw, libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// Whether nobody is at the other end.
pub(crate) fn is_hung_up(descriptor: &impl AsFd) -> bool {
    let mut asked = libc::pollfd { fd: descriptor.as_fd().as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: the kernel reads and writes one `pollfd`.
    let answered = unsafe { libc::poll(&raw mut asked, 1, 0) };
    answered > 0 && asked.revents & libc::POLLHUP != 0
}

/// A counter that can be waited for.
pub(crate) fn event_counter() -> io::Result<File> {
    // SAFETY: no pointers.
    let raw = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: fresh and owned by nobody else.
    Ok(unsafe { File::from_raw_fd(raw) })
}

/// Bytes that wait in a pipe.
pub(crate) fn readable_bytes(descriptor: &impl AsFd) -> u64 {
    let mut count: libc::c_int = 0;
    // SAFETY: `FIONREAD` writes one int.
    match check(unsafe { libc::ioctl(descriptor.as_fd().as_raw_fd(), libc::FIONREAD, &raw mut count) }) {
        Ok(_) => u64::try_from(count).unwrap_or(0),
        Err(_) => 0,
    }
}

/// A clock's time in nanoseconds.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel fills the structure; zeroes are valid if it did not.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Nanoseconds that never jump.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of Unix time.
pub(crate) fn unix_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Blocks `SIGCHLD` and gives a descriptor that becomes readable when a child ends. To be called before any thread starts.
pub(crate) fn child_signals() -> io::Result<File> {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigemptyset` initialises the set; the calls below only read it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        check(libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()))?;
        let raw = check(libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(File::from_raw_fd(raw))
    }
}

/// A socket. Closed in programs we start.
pub(crate) fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let raw = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: fresh and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// One heap for all threads, and buffers of the sizes used here kept in it: a heap per thread and a mapping per buffer cost page
/// faults, which are dear under emulation. To be called before threads start.
pub(crate) fn settle_heap() {
    // SAFETY: no pointers. A refused hint changes nothing that matters.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 4 * 1024 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 8 * 1024 * 1024);
    }
}

/// Lets this thread run before all ordinary ones, and nothing it starts: what a guest's kernel threads or programs are busy with does
/// not delay an answer. The event loop never works for long.
pub(crate) fn raise_priority() {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one `sched_param`. Where it is not allowed, as in tests, answers are only later.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameter)
    };
}

/// Marks every descriptor we have, inherited ones included, to close in programs we start. Those we open later are born so.
pub(crate) fn close_all_on_exec() -> io::Result<()> {
    // SAFETY: no pointers; only a flag of descriptors changes.
    check_long(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })?;
    Ok(())
}
