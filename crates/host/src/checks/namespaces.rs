//! Can processes be given namespaces of their own?

use super::{BECOME_ROOT, Site, TRIAL_DEADLINE};
use crate::check::{Check, Subject};
use crate::program::Program;

const NAMESPACES: Subject = Subject { name: "namespaces", title: "Namespaces (mount, pid, net, ipc, uts)" };
const KINDS: [(&str, &str); 5] =
    [("--mount", "mnt"), ("--pid", "pid"), ("--net", "net"), ("--ipc", "ipc"), ("--uts", "uts")];

pub(super) fn check(site: &Site<'_>) -> Check {
    let (Some(unshare), Some(readlink)) = (site.programs.find("unshare"), site.programs.find("readlink"))
    else {
        return NAMESPACES.problem(
            "`unshare` is missing, so it could not be tried",
            "apt-get install -y util-linux coreutils",
        );
    };
    let mut refused = Vec::new();
    for (option, kind) in KINDS {
        let link = format!("/proc/self/ns/{kind}");
        let ours = std::fs::read_link(&link).map(|target| target.display().to_string()).unwrap_or_default();
        let child = Program::new(&unshare, TRIAL_DEADLINE)
            .args([option, "--fork", "--"].map(std::ffi::OsString::from))
            .args([readlink.as_os_str(), link.as_ref()])
            .output();
        match child {
            Ok(theirs) if theirs.trim().is_empty() => refused.push(format!("{kind}: no answer")),
            Ok(theirs) if theirs.trim() == ours => refused.push(format!("{kind}: it stayed in ours")),
            Ok(_) => {}
            Err(error) => refused.push(format!("{kind}: {error}")),
        }
    }
    if refused.is_empty() {
        NAMESPACES.ok("a process was started in a fresh one of each kind")
    } else {
        let detail = refused.join("; ");
        NAMESPACES.problem(detail, BECOME_ROOT)
    }
}
