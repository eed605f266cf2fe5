//! Starts a program inside the jail.
//!
//! The child is cloned with the parent's memory and the parent's thread waits until it has executed the program (as `vfork`):
//! nothing is copied however big the node has grown. Until then the child makes system calls on values prepared before the
//! clone and does nothing else: no allocation, no locks, no library code with a memory of its own.
#![allow(unsafe_code)]

use std::ffi::{CString, NulError, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use rustix::mount::{OpenTreeFlags, open_tree};

use crate::process::ProcessIdentity;

use super::JailRoot;
use super::own::{DeviceNode, DevicesPlan, Room, RoomPlan};

const CHILD_STACK_BYTES: usize = 64 * 1024;
/// From the kernel's `linux/mount.h`: the source is the descriptor itself.
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
/// From the kernel's `linux/sched.h`.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// Descriptors a machine process may hold: disks, taps, sockets and the engine's own.
const OPEN_FILES_MAX: u64 = 256;

/// A file put into the jail's root by name.
#[derive(Debug)]
pub struct Bind<'a> {
    /// The file. The jailed program opens it anew by its name here, so its mode must let the jail's user do so.
    pub file: &'a File,
    /// Its name; in the root itself one of the root's binding points.
    pub name: &'static str,
    /// The directory of the root in which it has that name: the program's room, or none for the root itself.
    pub directory: Option<&'static str>,
    /// Whether the jailed program may write it.
    pub mode: BindMode,
}

/// What a jailed program may do with a bound file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindMode {
    /// Read it only: the mount itself refuses writes.
    ReadOnly,
    /// Read and write it.
    ReadWrite,
}

/// A program to start in a jail.
#[derive(Debug)]
pub struct Jail<'a> {
    /// The root directory it will see.
    pub root: &'a JailRoot,
    /// Files bound into it.
    pub binds: Vec<Bind<'a>>,
    /// User and group id.
    pub uid: u32,
    /// Arguments after the program's own name.
    pub arguments: Vec<String>,
    /// Descriptors it keeps, at the numbers they have now.
    pub descriptors: &'a [RawFd],
    /// Where its stdout and stderr go.
    pub output: &'a File,
    /// A directory in memory that it alone may write, if it needs one.
    pub room: Option<Room<'a>>,
    /// Device nodes it opens by name; they are all that is in its `/dev`. None: it has no `/dev`.
    pub devices: &'a [DeviceNode],
    /// The network namespace it joins; `None` for an empty one of its own.
    pub network: Option<BorrowedFd<'a>>,
}

/// A program that was started.
#[derive(Debug)]
pub struct Spawned {
    /// Which process it is.
    pub identity: ProcessIdentity,
    /// Its descriptor.
    pub pidfd: OwnedFd,
}

/// Why a program could not be jailed.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// An argument or path holds a NUL byte.
    #[error("an argument holds a NUL byte")]
    Argument(#[from] NulError),
    /// The clone failed or its outcome could not be learned.
    #[error("could not {action}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A step inside the child failed.
    #[error("the jailed process could not {step}")]
    Step {
        /// The step.
        step: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// The child's steps, in order; their numbers travel through the error pipe.
const STEPS: [&str; 15] = [
    "start a session",
    "make its mounts private",
    "bind its root",
    "bind a file into its root",
    "make its root read-only",
    "enter its root",
    "leave the host's root",
    "keep its descriptors",
    "limit its resources",
    "drop its capabilities",
    "change its user",
    "execute the program",
    "make its room",
    "make its device nodes",
    "join its network",
];

/// A file's mount, cloned off the host's tree and attached to nothing yet: a path or descriptor of the host's own mounts means
/// nothing in the child's namespace, this does.
struct LooseMount {
    tree: OwnedFd,
    target: CString,
    mode: BindMode,
}

/// Everything the child needs, prepared while allocation is still allowed.
struct ChildPlan<'a> {
    root: CString,
    binds: Vec<LooseMount>,
    room: Option<RoomPlan>,
    devices: Option<DevicesPlan>,
    network: Option<RawFd>,
    group: Option<RawFd>,
    uid: u32,
    arguments: Vec<*const libc::c_char>,
    environment: [*const libc::c_char; 1],
    descriptors: &'a [RawFd],
    null: RawFd,
    output: RawFd,
    report: RawFd,
}

impl Jail<'_> {
    /// Starts the program in a group (cgroup v2), or in that of the node; returns when it has been executed. After `Err` no process
    /// is left. Blocks for a few milliseconds.
    pub fn spawn(&self, group: Option<BorrowedFd<'_>>) -> Result<Spawned, JailError> {
        let host = |action| move |source: io::Error| JailError::Host { action, source };
        let null = File::open("/dev/null").map_err(host("open /dev/null"))?;
        let (report_read, report_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| host("make a pipe")(error.into()))?;
        let mut argument_strings = vec![CString::new("program")?];
        for argument in &self.arguments {
            argument_strings.push(CString::new(argument.as_str())?);
        }
        let mut arguments: Vec<_> = argument_strings.iter().map(|argument| argument.as_ptr()).collect();
        arguments.push(ptr::null());
        let root = self.root.path();
        let mut binds = Vec::new();
        for bind in &self.binds {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH;
            binds.push(LooseMount {
                tree: open_tree(bind.file, "", flags)
                    .map_err(|error| host("detach a file's mount")(error.into()))?,
                target: c_string(root.join(bind.directory.unwrap_or("")).join(bind.name).as_os_str())?,
                mode: bind.mode,
            });
        }
        let plan = ChildPlan {
            root: c_string(root.as_os_str())?,
            binds,
            room: self.room.map(|room| RoomPlan::new(root, room, self.uid)).transpose()?,
            devices: (!self.devices.is_empty()).then(|| DevicesPlan::new(root, self.devices)).transpose()?,
            network: self.network.map(|network| network.as_raw_fd()),
            group: group.map(|group| group.as_raw_fd()),
            uid: self.uid,
            arguments,
            environment: [ptr::null()],
            descriptors: self.descriptors,
            null: null.as_raw_fd(),
            output: self.output.as_raw_fd(),
            report: report_write.as_raw_fd(),
        };
        let (pid, pidfd) = clone_child(&plan).map_err(host("clone a process"))?;
        drop(report_write);

        let mut report = [0u8; 5];
        let received = rustix::io::read(&report_read, &mut report)
            .map_err(|error| host("read the child's report")(error.into()))?;
        if received == 0 {
            let identity = ProcessIdentity::of(pid).map_err(host("identify the process"))?;
            return Ok(Spawned { identity, pidfd });
        }
        // The child reported a failed step and has exited or is about to.
        let waited = rustix::process::waitid(
            rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&pidfd)),
            rustix::process::WaitIdOptions::EXITED,
        );
        if let Err(error) = waited {
            return Err(host("wait for the failed child")(error.into()));
        }
        let step = STEPS.get(usize::from(report[0])).copied().unwrap_or("start");
        let errno = i32::from_ne_bytes([report[1], report[2], report[3], report[4]]);
        Err(JailError::Step { step, source: io::Error::from_raw_os_error(errno) })
    }
}

pub(super) fn c_string(text: &OsStr) -> Result<CString, NulError> {
    CString::new(text.as_bytes())
}

fn clone_child(plan: &ChildPlan<'_>) -> io::Result<(u32, OwnedFd)> {
    let mut stack = vec![Frame([0; 16]); CHILD_STACK_BYTES / size_of::<Frame>()];
    let mut pidfd: libc::c_int = -1;
    let flags = libc::CLONE_VM
        | libc::CLONE_VFORK
        | libc::CLONE_PIDFD
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    // SAFETY: numbers only; zero means that the kernel is asked for nothing.
    let mut wanted: libc::clone_args = unsafe { std::mem::zeroed() };
    wanted.flags = flags as u64;
    if plan.network.is_none() {
        wanted.flags |= libc::CLONE_NEWNET as u64;
    }
    if let Some(group) = plan.group {
        wanted.flags |= CLONE_INTO_CGROUP;
        wanted.cgroup = group as u64;
    }
    wanted.pidfd = ptr::from_mut(&mut pidfd) as u64;
    wanted.exit_signal = libc::SIGCHLD as u64;
    wanted.stack = stack.as_mut_ptr() as u64;
    wanted.stack_size = CHILD_STACK_BYTES as u64;
    // SAFETY: an all-zero signal set is valid storage for sigfillset and pthread_sigmask to write.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: `child` touches only `plan`, which outlives the call because CLONE_VFORK holds this thread until the child has
    // executed or exited; its stack is `stack`, 16-byte aligned at the top and larger than the child's few frames. Signals are
    // blocked across the clone so that no handler of this process runs in the child on our memory.
    let pid = unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let pid = clone3(&wanted, child, plan);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        pid
    };
    if pid < 0 {
        return Err(io::Error::from_raw_os_error(i32::try_from(-pid).unwrap_or(libc::EINVAL)));
    }
    // SAFETY: with CLONE_PIDFD the kernel stored a new descriptor, owned by nobody else, in `pidfd`.
    Ok((pid as u32, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// What a stack is made of: its top has to be aligned to this.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Frame([u8; 16]);

/// The system call. The C library has no function for it, and its `clone` cannot put a child into a group, which would then have to be
/// moved there: that waits for every processor of the host. Returns the child's id, or an error as the kernel has it.
///
/// # Safety
/// `wanted` has a stack of its own for the child, on which `run` is called with `plan` and from which it must not return.
unsafe fn clone3(
    wanted: &libc::clone_args,
    run: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    plan: &ChildPlan<'_>,
) -> i64 {
    let outcome: i64;
    // SAFETY: the parent comes back with a number and nothing else changed. The child has the same registers, another stack, and
    // leaves this code for good.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => outcome,
            in("rdi") ptr::from_ref(wanted),
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") ptr::from_ref(plan),
            in("r13") run,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    outcome
}

/// The child. Never returns to Rust code of the parent: it executes the program or exits.
extern "C" fn child(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `argument` is the `ChildPlan` that `clone_child` keeps alive until we execute or exit.
    let plan = unsafe { &*argument.cast::<ChildPlan<'_>>() };
    // SAFETY: system calls on prepared, NUL-terminated strings and valid descriptors. Raw `syscall` is used where the C library's
    // wrapper would act on the parent's other threads (setuid and its kin).
    unsafe {
        let step = enter(plan);
        let report: [u8; 4] = (*libc::__errno_location()).to_ne_bytes();
        let message = [step, report[0], report[1], report[2], report[3]];
        libc::write(plan.report, message.as_ptr().cast(), message.len());
        libc::_exit(127)
    }
}

/// Performs the steps; returns the number of the one that failed, with `errno` set.
///
/// # Safety
/// Only in the cloned child, with a plan whose pointers are valid.
unsafe fn enter(plan: &ChildPlan<'_>) -> u8 {
    let none: *const libc::c_char = ptr::null();
    // SAFETY: see `child`.
    unsafe {
        // Dies with the node until it changes its user, which clears this: a kill in between leaves no half-jailed process.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::setsid() < 0 {
            return 0;
        }
        if libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, ptr::null()) < 0 {
            return 1;
        }
        let root = plan.root.as_ptr();
        if libc::mount(root, root, none, libc::MS_BIND, ptr::null()) < 0 {
            return 2;
        }
        if let Some(room) = &plan.room
            && !room.make(plan.uid)
        {
            return 12;
        }
        if let Some(devices) = &plan.devices
            && !devices.make(plan.uid)
        {
            return 13;
        }
        if let Some(network) = plan.network
            && libc::setns(network, libc::CLONE_NEWNET) < 0
        {
            return 14;
        }
        for bind in &plan.binds {
            let target = bind.target.as_ptr();
            let moved = libc::syscall(
                libc::SYS_move_mount,
                bind.tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_FDCWD,
                target,
                MOVE_MOUNT_F_EMPTY_PATH,
            );
            if moved < 0 {
                return 3;
            }
            let mut flags =
                libc::MS_BIND | libc::MS_REMOUNT | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            if bind.mode == BindMode::ReadOnly {
                flags |= libc::MS_RDONLY;
            }
            if libc::mount(none, target, none, flags, ptr::null()) < 0 {
                return 3;
            }
        }
        let sealed = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
        if libc::mount(none, root, none, sealed, ptr::null()) < 0 {
            return 4;
        }
        // The new root is stacked over the old one, which is then taken away from under it.
        if libc::chdir(root) < 0 || libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) < 0 {
            return 5;
        }
        if libc::umount2(c".".as_ptr(), libc::MNT_DETACH) < 0 || libc::chdir(c"/".as_ptr()) < 0 {
            return 6;
        }
        if libc::dup2(plan.null, 0) < 0 || libc::dup2(plan.output, 1) < 0 || libc::dup2(plan.output, 2) < 0 {
            return 7;
        }
        if libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) < 0 {
            return 7;
        }
        for &descriptor in plan.descriptors {
            if libc::fcntl(descriptor, libc::F_SETFD, 0) < 0 {
                return 7;
            }
        }
        let limit = |resource, value: u64| {
            let both = libc::rlimit { rlim_cur: value, rlim_max: value };
            libc::setrlimit(resource, &both) == 0
        };
        // An emulator's code buffer asks for huge pages; a small guest fills a fraction of each.
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
        if !limit(libc::RLIMIT_CORE, 0) || !limit(libc::RLIMIT_NOFILE, OPEN_FILES_MAX) {
            return 8;
        }
        let mut capability = 0;
        while libc::prctl(libc::PR_CAPBSET_DROP, capability) == 0 {
            capability += 1;
        }
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 {
            return 9;
        }
        let uid = plan.uid;
        if libc::syscall(libc::SYS_setgroups, 0usize, ptr::null::<libc::gid_t>()) < 0
            || libc::syscall(libc::SYS_setresgid, uid, uid, uid) < 0
            || libc::syscall(libc::SYS_setresuid, uid, uid, uid) < 0
        {
            return 10;
        }
        // Before signals are let in again none may have a handler left that would run the node's code here.
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none_blocked: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none_blocked);
        libc::sigprocmask(libc::SIG_SETMASK, &none_blocked, ptr::null_mut());
        libc::execve(c"/program".as_ptr(), plan.arguments.as_ptr(), plan.environment.as_ptr());
        11
    }
}
