//! From the kernel's first instruction for us to a served link: the initramfs loads drivers, mounts the root disk and becomes it.
//!
//! ```text
//! initramfs: /proc /sys /dev ─► modules ─► root disk ─► switch ─► runtime mounts ─► loopback ─► link ─► agent
//! ```
//!
//! What fails here is said on the console, and the machine stops: a guest without a link is of no use.

mod bus;
mod console;
mod link;
mod module;
mod mount;
mod quiet;
mod root;

use std::io;

pub(crate) use self::mount::{PLAIN, c_path};
pub(crate) use self::root::await_path;

use crate::agent::{Agent, Hangup};
use crate::identity::{self, netlink};
use crate::kernel::check;
use crate::process::defaults;
use crate::system::{disks, shutdown};

/// Open files a program may have: this one needs three per process and one per connection, others inherit it.
const OPEN_FILES: u64 = 16 * 1024;

/// Open files a program may ask for.
const OPEN_FILES_MAX: u64 = 512 * 1024;

/// What failed.
#[derive(Debug)]
struct BootError {
    step: &'static str,
    source: io::Error,
}

/// Adds what was being done to an error of the kernel.
trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, BootError>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &'static str) -> Result<T, BootError> {
        self.map_err(|source| BootError { step, source })
    }
}

/// Boots and serves. To be called as PID 1 of an initramfs.
pub fn run() -> ! {
    let error = match boot() {
        Ok(()) => BootError { step: "serve the link", source: io::Error::other("the agent ended") },
        Err(error) => error,
    };
    console::say(&format!("could not {}: {}", error.step, error.source));
    shutdown::stop()
}

fn boot() -> Result<(), BootError> {
    mount::early().step("mount /proc, /sys and /dev")?;
    console::adopt();
    module::load_all().step("read the list of modules")?;
    root::switch().step("switch to the root disk")?;
    disks::let_go_of_empty();
    mount::runtime().step("mount the runtime file systems")?;
    quiet::settle().step("quiet the kernel")?;
    netlink::raise_loopback().step("raise the loopback interface")?;
    identity::prepare().step("prepare for an identity")?;
    if let Err(error) = defaults::load() {
        console::say(&format!("the image's defaults for processes cannot be used: {error}"));
    }
    raise_limits().step("raise the limit of open files")?;
    let link = link::open().step("open the guest link")?;
    let agent = Agent::new(link, Hangup::Wait).step("start the agent")?;
    agent.run().step("serve the link")
}

fn raise_limits() -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: OPEN_FILES, rlim_max: OPEN_FILES_MAX };
    // SAFETY: the kernel reads one `rlimit64`.
    check(unsafe { libc::setrlimit64(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(())
}
