//! Where unsafe code may be: the few files that talk to the kernel in its own terms. Tests may have some too; the compiler then
//! still asks for a permission in the file and a reason at each block.

use std::path::Path;

use crate::Findings;
use crate::shown;
use crate::source::{code_only, has_word};
use crate::tree::TextFile;

/// Files, and folders of which every file may.
const ALLOWED: [&str; 24] = [
    "bench/src/floor/firecracker/room.rs",
    // PID 1: all of it is system calls.
    "crates/guest/src",
    "crates/host/src/checks/loop_device.rs",
    "crates/host/src/checks/memory.rs",
    "crates/host/src/checks/network.rs",
    "crates/host/src/checks/seccomp.rs",
    "crates/host/src/probe/rom.rs",
    "crates/host/src/program.rs",
    "crates/host/src/throwaway.rs",
    "crates/host/src/tsc.rs",
    "crates/machine/src/firecracker/tap.rs",
    "crates/machine/src/jail/own.rs",
    "crates/machine/src/jail/spawn.rs",
    "crates/machine/src/process.rs",
    "crates/memory/src/capture/reading.rs",
    "crates/memory/src/capture/writing.rs",
    "crates/memory/src/changed.rs",
    "crates/memory/src/extents.rs",
    "crates/memory/src/pages/userfault.rs",
    "crates/network/src/lib.rs",
    "crates/network/src/namespace.rs",
    "crates/network/src/netlink.rs",
    "crates/network/src/tap.rs",
    "crates/storage/src/ioctl.rs",
];

const LIST: &str = "xtask/src/tidy/unsafe_code.rs";

pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    let allowed = ALLOWED.iter().any(|allowed| file.path.starts_with(Path::new(allowed)));
    if allowed || file.is_test() {
        return;
    }
    if let Some(line) = first_unsafe(&file.text) {
        let path = shown(&file.path);
        findings.errors.push(format!("{path}:{line}: unsafe code in a file that {LIST} does not name"));
    }
}

/// A list that names what is no longer there allows what nobody argued for.
pub(super) fn check_list(files: &[TextFile], findings: &mut Findings) {
    for allowed in ALLOWED {
        let mut named = files.iter().filter(|file| file.path.starts_with(allowed));
        if !named.any(|file| first_unsafe(&file.text).is_some()) {
            findings.errors.push(format!("{LIST}: names {allowed}, which holds no unsafe code"));
        }
    }
}

/// The first line with unsafe code, or with permission for it.
fn first_unsafe(text: &str) -> Option<usize> {
    let code = code_only(text);
    let found = code.lines().position(|line| {
        has_word(line, "unsafe") || (line.contains("allow(") && has_word(line, "unsafe_code"))
    });
    found.map(|line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn only_listed_files_and_tests_may() {
        for (path, text, errors) in [
            ("crates/node/src/a.rs", "unsafe { f() }", 1),
            ("crates/node/src/a.rs", "#![allow(unsafe_code)]", 1),
            ("crates/node/src/a.rs", "// unsafe is a word\nlet a = \"unsafe\";", 0),
            ("crates/node/tests/a.rs", "unsafe { f() }", 0),
            ("crates/guest/src/any/depth.rs", "unsafe { f() }", 0),
            ("crates/memory/src/changed.rs", "unsafe { f() }", 0),
            ("crates/memory/src/changed_more.rs", "unsafe { f() }", 1),
        ] {
            let mut findings = Findings::default();
            check(&file(path, text), &mut findings);
            assert_eq!(findings.errors.len(), errors, "{path} {text}");
        }
    }
}
