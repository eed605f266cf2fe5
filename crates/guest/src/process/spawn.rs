//! Starts a program. The child shares our memory until it calls `execve` and does nothing but system calls there: copying page
//! tables as `fork` does is slow, most of all under emulation. The calling thread waits meanwhile, so this runs on a worker.
//!
//! Every descriptor of this program closes on `execve`, and its limits are those that programs get: the child has nothing to
//! undo. Under emulation each system call that is not made is a millisecond less for the first command after a restore.

use std::ffi::{CString, c_char, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr;

use guest_link::message::{Command, Failure, ProcessDefaults, ProcessFailure, ProcessSpec, Stdin, Terminal};

use super::account::{self, Account};
use super::defaults;
use super::terminal;
use crate::kernel::{self, check, errno};

/// Where programs are looked for when the caller does not say.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Enough for a chain of system calls.
const STACK_BYTES: usize = 32 * 1024;

/// A program that runs, and our ends of its pipes: nonblocking, except that a terminal's two ends are one.
pub(crate) struct Spawned {
    pub(crate) pid: i32,
    pub(crate) stdin: Option<File>,
    pub(crate) stdout: File,
    pub(crate) stderr: Option<File>,
}

/// Where the child was when it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
enum Step {
    None,
    Setup,
    User,
    Directory,
    Exec,
}

/// Everything the child needs, made before it exists: it must not allocate.
struct Plan {
    /// Paths to try, in order.
    programs: Vec<CString>,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    directory: CString,
    /// A home directory or a template's own may be missing; one that was asked for may not.
    directory_required: bool,
    account: Account,
    /// What becomes standard input, output and error.
    standard: [i32; 3],
    terminal: bool,
    failed: Step,
    errno: i32,
}

/// Starts what `spec` says.
pub(crate) fn spawn(spec: &ProcessSpec) -> Result<Spawned, Failure> {
    let defaults = defaults::current();
    let defaults = defaults.as_deref();
    let account = match (&spec.user, defaults.and_then(|defaults| defaults.user.as_deref())) {
        (None, Some(user)) => account::in_image(user),
        (user, _) => account::find(user.as_ref()),
    };
    let account = account.ok_or(Failure::Process(ProcessFailure::UnknownUser))?;
    let invalid = |_| Failure::Process(ProcessFailure::InvalidCommand);
    let argv: Vec<CString> = match &spec.command {
        Command::Argv(argv) => {
            argv.iter().map(|arg| CString::new(arg.as_str())).collect::<Result<_, _>>().map_err(invalid)?
        }
        Command::Shell(line) => {
            vec![c"/bin/sh".to_owned(), c"-c".to_owned(), CString::new(line.as_str()).map_err(invalid)?]
        }
    };
    let Some(name) = argv.first().filter(|name| !name.is_empty()) else {
        return Err(Failure::Process(ProcessFailure::InvalidCommand));
    };
    let (env, path) = environment(spec, &account, defaults)?;
    let programs = candidates(name, &path);
    let directory = match spec.cwd.as_ref().or(defaults.and_then(|defaults| defaults.cwd.as_ref())) {
        Some(path) => CString::new(path.as_bytes()).map_err(invalid)?,
        None => CString::new(account.home.as_str()).map_err(invalid)?,
    };
    let ends = Ends::open(spec, &account)
        .map_err(|error| Failure::Process(ProcessFailure::Spawn { errno: errno(&error) }))?;
    let mut plan = Plan {
        programs,
        argv: pointers(&argv),
        env: pointers(&env),
        directory,
        directory_required: spec.cwd.is_some(),
        account,
        standard: ends.child.each_ref().map(AsRawFd::as_raw_fd),
        terminal: spec.terminal.is_some(),
        failed: Step::None,
        errno: 0,
    };
    let pid = run(&mut plan)?;
    Ok(Spawned { pid, stdin: ends.stdin, stdout: ends.stdout, stderr: ends.stderr })
}

/// Descriptors of both sides.
struct Ends {
    child: [File; 3],
    stdin: Option<File>,
    stdout: File,
    stderr: Option<File>,
}

impl Ends {
    fn open(spec: &ProcessSpec, account: &Account) -> io::Result<Ends> {
        if let Some(Terminal { size, .. }) = &spec.terminal {
            let (master, slave) = terminal::open(*size, account.uid)?;
            kernel::set_pipe_nonblocking(&master)?;
            let child = [slave.try_clone()?, slave.try_clone()?, slave];
            return Ok(Ends { child, stdin: Some(master.try_clone()?), stdout: master, stderr: None });
        }
        let (input, stdin) = match spec.stdin {
            Stdin::Null => (File::open("/dev/null")?, None),
            Stdin::Pipe => {
                let (read, write) = kernel::pipe()?;
                kernel::set_pipe_nonblocking(&write)?;
                (read, Some(write))
            }
        };
        let (stdout, output) = kernel::pipe()?;
        let (stderr, error) = kernel::pipe()?;
        kernel::set_pipe_nonblocking(&stdout)?;
        kernel::set_pipe_nonblocking(&stderr)?;
        Ok(Ends { child: [input, output, error], stdin, stdout, stderr: Some(stderr) })
    }
}

/// The defaults with what the template and then the caller add or override, and the resulting `PATH`.
fn environment(
    spec: &ProcessSpec,
    account: &Account,
    defaults: Option<&ProcessDefaults>,
) -> Result<(Vec<CString>, String), Failure> {
    let term = spec.terminal.as_ref().map(|terminal| ("TERM", terminal.term.as_str()));
    let own = [
        ("PATH", PATH),
        ("HOME", &account.home),
        ("USER", &account.name),
        ("LOGNAME", &account.name),
        ("SHELL", &account.shell),
        ("LANG", "C.UTF-8"),
    ];
    if spec.env.iter().any(|(name, _)| name.is_empty() || name.contains('=')) {
        return Err(Failure::Process(ProcessFailure::InvalidCommand));
    }
    let template = defaults.map_or(&[][..], |defaults| &defaults.env[..]);
    let mut variables: Vec<(&str, &str)> = own.into();
    for (name, value) in template.iter().map(words).chain(term).chain(spec.env.iter().map(words)) {
        match variables.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = value,
            None => variables.push((name, value)),
        }
    }
    let path = variables.iter().find(|(name, _)| *name == "PATH").map_or(PATH, |(_, path)| path).to_owned();
    let env = variables
        .iter()
        .map(|(name, value)| CString::new(format!("{name}={value}")))
        .collect::<Result<_, _>>()
        .map_err(|_| Failure::Process(ProcessFailure::InvalidCommand))?;
    Ok((env, path))
}

fn words((name, value): &(String, String)) -> (&str, &str) {
    (name, value)
}

/// The paths under which `name` is tried.
pub(crate) fn candidates(name: &CString, path: &str) -> Vec<CString> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.clone()];
    }
    path.split(':')
        .filter_map(|directory| {
            let directory = if directory.is_empty() { "." } else { directory };
            let mut whole = directory.as_bytes().to_vec();
            whole.push(b'/');
            whole.extend_from_slice(name.as_bytes());
            CString::new(whole).ok()
        })
        .collect()
}

/// A NULL-terminated array for `execve`. Valid as long as `strings` is.
pub(crate) fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Makes the child and waits until it runs its program or failed to.
fn run(plan: &mut Plan) -> Result<i32, Failure> {
    let mut stack = vec![MaybeUninit::<u8>::uninit(); STACK_BYTES];
    let top = stack.as_mut_ptr_range().end;
    let top = top.wrapping_sub(top as usize % 16).cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: this program has no signal handlers that could run on the shared memory, but for its own faults. `CLONE_VFORK` suspends this thread until the
    // child has called `execve` or exited, so `stack` and `plan` outlive its use of them, and nobody else uses the thread-local
    // `errno` that the two share. `child` only makes system calls.
    let (result, error) = unsafe {
        let result = check(libc::clone(child, top, flags, ptr::from_mut(plan).cast()));
        // Written by the child behind the compiler's back.
        (result, (ptr::read_volatile(&raw const plan.failed), ptr::read_volatile(&raw const plan.errno)))
    };
    let failure = match (result, error) {
        (Err(error), _) => ProcessFailure::Spawn { errno: errno(&error) },
        (Ok(pid), (Step::None, _)) => return Ok(pid),
        (Ok(_), (Step::Directory, _)) => ProcessFailure::WorkingDirectory,
        (Ok(_), (Step::Exec, libc::ENOENT | libc::ENOTDIR)) => ProcessFailure::ProgramNotFound,
        (Ok(_), (Step::Exec, libc::EACCES | libc::ENOEXEC | libc::EISDIR)) => ProcessFailure::NotExecutable,
        (Ok(_), (Step::Exec, libc::E2BIG)) => ProcessFailure::InvalidCommand,
        (Ok(_), (_, errno)) => ProcessFailure::Spawn { errno },
    };
    // A child that failed is reaped by the event loop like any orphan.
    Err(Failure::Process(failure))
}

/// Runs in the child, on its own stack, in our memory: system calls only, no allocation, no locks, no panic.
extern "C" fn child(plan: *mut c_void) -> libc::c_int {
    // SAFETY: `run` passes a `Plan` and is suspended while we use it.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    // SAFETY: raw system calls whose pointers come from the plan, which outlives them. The user is changed by raw calls because
    // the library's versions would signal the other threads of the parent.
    unsafe {
        let (step, errno) = become_program(plan);
        ptr::write_volatile(&raw mut plan.errno, errno);
        ptr::write_volatile(&raw mut plan.failed, step);
        libc::syscall(libc::SYS_exit_group, 127);
    }
    127
}

/// # Safety
/// To be called only by `child`.
unsafe fn become_program(plan: &Plan) -> (Step, i32) {
    // SAFETY: see `child`.
    unsafe {
        let failed = |step| (step, *libc::__errno_location());
        libc::setsid();
        for (target, source) in plan.standard.iter().enumerate() {
            if libc::dup2(*source, target as i32) < 0 {
                return failed(Step::Setup);
            }
        }
        if plan.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
            return failed(Step::Setup);
        }
        let account = &plan.account;
        if (account.uid, account.gid) != (0, 0) || !account.groups.is_empty() {
            let (uid, gid) = (account.uid, account.gid);
            if libc::syscall(libc::SYS_setgroups, account.groups.len(), account.groups.as_ptr()) < 0
                || libc::syscall(libc::SYS_setresgid, gid, gid, gid) < 0
                || libc::syscall(libc::SYS_setresuid, uid, uid, uid) < 0
            {
                return failed(Step::User);
            }
        }
        if libc::chdir(plan.directory.as_ptr()) < 0
            && (plan.directory_required || libc::chdir(c"/".as_ptr()) < 0)
        {
            return failed(Step::Directory);
        }
        // The standard library ignores this one, and ignoring is inherited.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        let mut reason = libc::ENOENT;
        for program in &plan.programs {
            libc::execve(program.as_ptr(), plan.argv.as_ptr(), plan.env.as_ptr());
            match *libc::__errno_location() {
                // Not here; look further, as a shell does.
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => reason = libc::EACCES,
                other => return (Step::Exec, other),
            }
        }
        (Step::Exec, reason)
    }
}
