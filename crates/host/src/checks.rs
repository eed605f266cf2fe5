//! Everything the host is asked to do before it is trusted with machines. Each check really tries; none alters the host.

mod cgroup;
mod cpu_clock;
mod guest_kernel;
pub(crate) mod huge_pages;
mod limits;
mod loop_device;
mod memory;
mod namespaces;
mod network;
mod reflink;
mod resources;
mod seccomp;
pub(crate) mod tools;

use std::path::PathBuf;
use std::time::Duration;

use crate::check::Check;
use crate::probe::KernelTrial;
use crate::programs::Programs;
use crate::qemu::{QemuBinary, QemuError};

/// How long any program a check starts may take. They answer in milliseconds; a busy disk can make it seconds.
const TRIAL_DEADLINE: Duration = Duration::from_secs(30);

/// For what only root, on the host itself rather than in a container, may do.
const BECOME_ROOT: &str = "sudo pandastack doctor";
/// For what the running kernel lacks.
const NEWER_KERNEL: &str = "apt-get install -y linux-image-amd64 && reboot";

/// What is being checked.
pub(crate) struct Site<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) data_directory: PathBuf,
    pub(crate) guest_kernel: Option<PathBuf>,
    /// How it did when it was booted; absent without a usable QEMU.
    pub(crate) trial: Option<&'a KernelTrial>,
    pub(crate) qemu: Result<&'a QemuBinary, &'a QemuError>,
}

/// Runs all checks, one after another.
pub(crate) fn run(site: &Site<'_>) -> Vec<Check> {
    let mut checks = vec![limits::root()];
    checks.extend(tools::all(site));
    checks.push(guest_kernel::check(site));
    checks.push(reflink::check(site));
    checks.push(namespaces::check(site));
    checks.push(network::tap());
    checks.push(network::veth(site));
    checks.push(network::nftables(site));
    checks.push(cgroup::check());
    checks.push(memory::userfaultfd());
    checks.push(memory::pagemap_scan());
    checks.push(seccomp::check());
    checks.push(cpu_clock::check());
    checks.push(resources::disk(&site.data_directory));
    checks.push(resources::memory());
    checks.push(resources::processors());
    checks.push(limits::open_files());
    checks.push(limits::processes());
    checks.push(limits::namespaces());
    checks
}
