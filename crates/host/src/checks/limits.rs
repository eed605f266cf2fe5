//! Is this process allowed enough: privileges, open files, processes, namespaces?

use rustix::process::{Resource, geteuid, getrlimit};

use super::BECOME_ROOT;
use crate::check::{Check, Subject};
use crate::facts::kernel_text;

const ROOT: Subject = Subject { name: "root", title: "Running as root" };
const OPEN_FILES: Subject = Subject { name: "open_files", title: "Open files allowed" };
const PROCESSES: Subject = Subject { name: "processes", title: "Processes allowed" };
const NAMESPACE_COUNT: Subject = Subject { name: "namespace_count", title: "Network namespaces allowed" };

/// A machine takes about a dozen descriptors of the node's; this is for a thousand machines.
const OPEN_FILES_WARNING: u64 = 16_384;
/// A VMM is a process of half a dozen threads; this is for a thousand machines and the rest of the host.
const PROCESSES_WARNING: u64 = 32_768;
/// One per machine, and some prepared ahead.
const NAMESPACES_WARNING: u64 = 2_048;

pub(super) fn root() -> Check {
    match geteuid().as_raw() {
        0 => ROOT.ok("the effective user is root"),
        user => ROOT.problem(
            format!("the effective user is {user}; jails, mounts and networks need root"),
            BECOME_ROOT,
        ),
    }
}

pub(super) fn open_files() -> Check {
    // Without a hard limit the kernel answers none.
    match getrlimit(Resource::Nofile).maximum {
        Some(limit) if limit < OPEN_FILES_WARNING => {
            OPEN_FILES.warning(format!("at most {limit}"), "prlimit --pid $$ --nofile=1048576:1048576")
        }
        Some(limit) => OPEN_FILES.ok(format!("up to {limit}")),
        None => OPEN_FILES.ok("without limit"),
    }
}

pub(super) fn processes() -> Check {
    let read = |name: &str| kernel_text(format!("/proc/sys/kernel/{name}")).parse::<u64>().ok();
    let (Some(ids), Some(threads)) = (read("pid_max"), read("threads-max")) else {
        return PROCESSES.not_tried("the kernel did not say");
    };
    let detail = format!("{ids} process ids, {threads} threads");
    if ids < PROCESSES_WARNING {
        PROCESSES.warning(detail, "sysctl -w kernel.pid_max=4194304")
    } else if threads < PROCESSES_WARNING {
        PROCESSES.warning(detail, "sysctl -w kernel.threads-max=131072")
    } else {
        PROCESSES.ok(detail)
    }
}

pub(super) fn namespaces() -> Check {
    match kernel_text("/proc/sys/user/max_net_namespaces").parse::<u64>() {
        Ok(count) if count < NAMESPACES_WARNING => {
            NAMESPACE_COUNT.warning(format!("at most {count}"), "sysctl -w user.max_net_namespaces=65536")
        }
        Ok(count) => NAMESPACE_COUNT.ok(format!("up to {count}")),
        Err(_) => NAMESPACE_COUNT.not_tried("the kernel did not say"),
    }
}
