//! The program as a tool: an ordinary process of the guest that does what building templates needs where there may be no shell,
//! no `cp` and no `mount` ([`guest_link::tool`]). Never runs as PID 1, shares nothing with the agent and ends when it is done.

mod attributes;
mod command;
pub(crate) mod copy;
mod disk;
mod mounts;
mod place;

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;

use guest_link::GuestPath;
use guest_link::tool::{CopyRequest, EXIT_TOOL, ToolRequest};

use crate::file::{as_path, make_parents};
use crate::kernel::check;
use crate::process::account;

/// Why the tool could not do what it was asked, as a sentence for whoever asked.
#[derive(Debug)]
pub(crate) struct Trouble(String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Says what was tried when the kernel refused.
trait Tried<T> {
    fn tried(self, what: &str, path: &Path) -> Result<T, Trouble>;
}

impl<T> Tried<T> for io::Result<T> {
    fn tried(self, what: &str, path: &Path) -> Result<T, Trouble> {
        self.map_err(|error| Trouble(format!("could not {what} {}: {}", path.display(), reason(&error))))
    }
}

/// The kernel's words without their number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Reads a request from standard input and does it. The process's exit code.
#[must_use]
pub fn run() -> u8 {
    let done = read_request().and_then(perform);
    done.unwrap_or_else(|trouble| {
        // Whoever does not listen cannot be told.
        let _ = writeln!(io::stderr(), "{trouble}");
        EXIT_TOOL
    })
}

/// Takes exactly the request: what follows on standard input is for a command.
fn read_request() -> Result<ToolRequest, Trouble> {
    let malformed = || Trouble("the request could not be read".into());
    let mut input = kernel_stdin()?;
    let mut first = [0; 4];
    input.read_exact(&mut first).map_err(|_| malformed())?;
    let length = ToolRequest::length(first).ok_or_else(malformed)?;
    let mut message = Vec::new();
    Read::take(&mut input, length as u64).read_to_end(&mut message).map_err(|_| malformed())?;
    ToolRequest::decode(&message).filter(|_| message.len() == length).ok_or_else(malformed)
}

/// Standard input without a buffer of its own.
fn kernel_stdin() -> Result<std::fs::File, Trouble> {
    use std::os::fd::AsFd;
    let input = io::stdin().as_fd().try_clone_to_owned();
    input.map(Into::into).tried("read", Path::new("standard input"))
}

fn perform(request: ToolRequest) -> Result<u8, Trouble> {
    // Modes are what requests say.
    // SAFETY: no pointers.
    unsafe { libc::umask(0) };
    match request {
        ToolRequest::Mount(disks) => disk::mount_all(&disks)?,
        ToolRequest::Hold(path) => disk::hold(as_path(&path))?,
        ToolRequest::Copy(request) => {
            separate()?;
            copy_all(&request)?;
        }
        ToolRequest::MakeDirectory { path, owner } => {
            separate()?;
            make_directory(&path, owner.as_deref())?;
        }
        ToolRequest::Look(place) => {
            separate()?;
            if let Some(found) = place::look(&place)? {
                io::stdout().write_all(&found.encode()).tried("write", Path::new("standard output"))?;
            }
        }
        ToolRequest::Run(request) => {
            separate()?;
            return command::run(&request);
        }
    }
    Ok(0)
}

/// Mounts of our own, without `/run` in memory: what a template has there is on its disk.
fn separate() -> Result<(), Trouble> {
    let root = Path::new("/");
    // SAFETY: no pointers.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) }).tried("separate the mounts of", root)?;
    mounts::keep_to_ourselves().tried("separate the mounts of", root)?;
    mounts::detach(Path::new("/run")).tried("uncover", Path::new("/run"))
}

fn copy_all(request: &CopyRequest) -> Result<(), Trouble> {
    let owner = request.owner.as_deref().map(owner_ids).transpose()?;
    let mut copier = copy::Copier::new(owner, request.mode);
    for item in &request.items {
        let from = place::open(&item.from)?;
        let to = as_path(&item.to);
        if let Some(parent) = to.parent() {
            make_parents(parent, Some((0, 0))).tried("make", parent)?;
        }
        copier.copy(&from.path(), to, item.what)?;
    }
    Ok(())
}

fn make_directory(path: &GuestPath, owner: Option<&str>) -> Result<(), Trouble> {
    let owner = owner.map(owner_ids).transpose()?.unwrap_or((0, 0));
    let path = as_path(path);
    make_parents(path, Some(owner)).tried("make", path)
}

fn owner_ids(text: &str) -> Result<(u32, u32), Trouble> {
    account::owner_in_image(text).ok_or_else(|| Trouble(format!("there is no user or group `{text}`")))
}
