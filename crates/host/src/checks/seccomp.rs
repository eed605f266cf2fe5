//! Can a process be kept from making system calls? Tried on a thread that forbids itself one.
#![allow(unsafe_code)]

use std::io::{Error, Result};

use super::NEWER_KERNEL;
use crate::check::{Check, Subject};

const SECCOMP: Subject = Subject { name: "seccomp", title: "System call filter (seccomp)" };
/// What the forbidden call answers; no kernel would by itself.
const REFUSAL: i32 = 77;

pub(super) fn check() -> Check {
    match std::thread::scope(|scope| scope.spawn(forbid_one_call).join()) {
        Ok(Ok(())) => SECCOMP.ok("a thread forbade itself a system call"),
        Ok(Err(error)) => SECCOMP.problem(format!("no filter could be set: {error}"), NEWER_KERNEL),
        Err(_) => SECCOMP.problem("the trial thread died", NEWER_KERNEL),
    }
}

/// Filter and privileges are the thread's own; they go with it.
fn forbid_one_call() -> Result<()> {
    let step = |code: u32, jump_true, jump_false, k| libc::sock_filter {
        code: code as u16,
        jt: jump_true,
        jf: jump_false,
        k,
    };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the call's number
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_getppid as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | REFUSAL as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: sets a flag of this thread.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel copies the filter, which lives through the call; without TSYNC it binds this thread only.
    if unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &filter) } != 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: takes nothing and touches nothing.
    let answer = unsafe { libc::syscall(libc::SYS_getppid) };
    if answer == -1 && Error::last_os_error().raw_os_error() == Some(REFUSAL) {
        Ok(())
    } else {
        Err(Error::other("the filter was accepted but does not filter"))
    }
}
