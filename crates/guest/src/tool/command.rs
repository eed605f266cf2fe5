//! Runs a command with mounts of its own, as the first process of a world of its own: what it leaves behind ends with it.

use std::ffi::CString;
use std::io::{self, Write};
use std::path::Path;

use guest_link::tool::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, RunRequest};

use super::mounts::{self, Mounts};
use super::{Tried, Trouble, reason};
use crate::boot::{PLAIN, c_path};
use crate::file::as_path;
use crate::kernel::check;
use crate::process::account::{self, Account};
use crate::process::spawn::{PATH, candidates, pointers};

/// Everything of the command that can be made before it exists.
struct Plan {
    programs: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    directory: CString,
    account: Account,
}

/// Runs it to its end; its exit code, as shells tell it.
pub(super) fn run(request: &RunRequest) -> Result<u8, Trouble> {
    let plan = Plan::of(request)?;
    let mut mounts = Mounts::default();
    let outcome = mounts.make(&request.mounts, request.resolver.as_deref()).and_then(|()| {
        if let Some(hidden) = request.hidden.as_ref().map(as_path).filter(|hidden| hidden.is_dir()) {
            mounts::cover(hidden).tried("cover", hidden)?;
        }
        plan.run(request)
    });
    mounts.take_back();
    outcome
}

impl Plan {
    fn of(request: &RunRequest) -> Result<Plan, Trouble> {
        let invalid = |_| Trouble("the command has a zero byte in it".into());
        let user = request.user.as_deref().filter(|user| !user.is_empty()).unwrap_or("0");
        let account =
            account::in_image(user).ok_or_else(|| Trouble(format!("there is no user or group `{user}`")))?;
        let argv = request.argv.iter().map(|word| CString::new(word.as_str()));
        let argv: Vec<CString> = argv.collect::<Result<_, _>>().map_err(invalid)?;
        let name = argv.first().ok_or_else(|| Trouble("the command is empty".into()))?;
        let given = |name: &str| request.env.iter().find(|(known, _)| known == name);
        let path = given("PATH").map_or(PATH, |(_, path)| path.as_str());
        let mut env = request.env.clone();
        for (name, value) in [("PATH", PATH), ("HOME", account.home.as_str())] {
            if given(name).is_none() {
                env.push((name.into(), value.into()));
            }
        }
        let programs = candidates(name, path);
        let env = env.iter().map(|(name, value)| CString::new(format!("{name}={value}")));
        let env = env.collect::<Result<_, _>>().map_err(invalid)?;
        let directory = request.cwd.as_ref().map_or(Path::new("/"), as_path);
        let directory = c_path(directory).tried("enter", directory)?;
        Ok(Plan { programs, argv, env, directory, account })
    }

    /// The command is the first process of its own, and everything it starts ends when it does.
    fn run(&self, request: &RunRequest) -> Result<u8, Trouble> {
        let program = Path::new(request.argv.first().map_or("", String::as_str));
        // SAFETY: no pointers.
        check(unsafe { libc::unshare(libc::CLONE_NEWPID) }).tried("run", program)?;
        // SAFETY: this process has one thread, so that its copy may do whatever it could do.
        let child = check(unsafe { libc::fork() }).tried("run", program)?;
        if child == 0 {
            let code = self.become_program(request, program);
            // SAFETY: the copy ends here and runs nothing of what the original has yet to do.
            unsafe { libc::_exit(i32::from(code)) };
        }
        let mut status = 0;
        loop {
            // SAFETY: the kernel writes one number.
            match check(unsafe { libc::waitpid(child, &raw mut status, 0) }) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).tried("wait for", program),
            }
        }
        let code = match libc::WIFSIGNALED(status) {
            true => 128 + libc::WTERMSIG(status),
            false => libc::WEXITSTATUS(status),
        };
        Ok(u8::try_from(code).unwrap_or(u8::MAX))
    }

    /// Returns only when the program could not be run: with the exit code that says so, once said.
    fn become_program(&self, request: &RunRequest, program: &Path) -> u8 {
        let (error, code) = match self.enter(request) {
            Err(trouble) => (trouble.to_string(), guest_link::tool::EXIT_TOOL),
            Ok(()) => {
                let (argv, env) = (pointers(&self.argv), pointers(&self.env));
                let mut error = io::Error::from_raw_os_error(libc::ENOENT);
                for path in &self.programs {
                    // SAFETY: all pointers are C strings in arrays that end with a null pointer.
                    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
                    match io::Error::last_os_error() {
                        // Not here; look further, as a shell does.
                        next if matches!(next.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {}
                        next => {
                            let elsewhere = next.raw_os_error() == Some(libc::EACCES);
                            error = next;
                            if !elsewhere {
                                break;
                            }
                        }
                    }
                }
                let missing = error.raw_os_error() == Some(libc::ENOENT);
                let code = if missing { EXIT_NOT_FOUND } else { EXIT_NOT_EXECUTABLE };
                (format!("could not run {}: {}", program.display(), reason(&error)), code)
            }
        };
        // Whoever does not listen cannot be told.
        let _ = writeln!(io::stderr(), "{error}");
        code
    }

    /// Everything that has to be done by the process that becomes the program.
    fn enter(&self, request: &RunRequest) -> Result<(), Trouble> {
        let proc = Path::new("/proc");
        mounts::mount(c"proc", proc, c"proc", PLAIN, c"").tried("mount", proc)?;
        let Account { uid, gid, groups, .. } = &self.account;
        let user = Path::new(request.user.as_deref().unwrap_or("root"));
        // SAFETY: the kernel reads as many groups as there are; the other calls have no pointers.
        unsafe {
            libc::umask(0o022);
            check(libc::setgroups(groups.len(), groups.as_ptr())).tried("become", user)?;
            check(libc::setresgid(*gid, *gid, *gid)).tried("become", user)?;
            check(libc::setresuid(*uid, *uid, *uid)).tried("become", user)?;
            // After the user has changed, which would undo it: nothing may outlive the process that waits for us.
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)).tried("become", user)?;
        }
        let directory = request.cwd.as_ref().map_or(Path::new("/"), as_path);
        // SAFETY: the path is a C string.
        check(unsafe { libc::chdir(self.directory.as_ptr()) }).tried("enter", directory)?;
        // The standard library ignores this one, and ignoring is inherited.
        // SAFETY: no pointers; there are no handlers.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        Ok(())
    }
}
