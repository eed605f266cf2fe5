//! Is there a kernel for guests, or a place to get one?

use std::io::Read;
use std::path::Path;

use super::{Site, TRIAL_DEADLINE};
use crate::check::{Check, Subject};
use crate::program::Program;

const GUEST_KERNEL: Subject = Subject { name: "guest_kernel", title: "Kernel for guests" };
const PACKAGE: &str = "linux-image-cloud-amd64";

pub(super) fn check(site: &Site<'_>) -> Check {
    if let Some(path) = &site.guest_kernel {
        match is_kernel(path) {
            Ok(true) => return GUEST_KERNEL.ok(format!("{} is a kernel", path.display())),
            Ok(false) => {
                let detail = format!("{} is not a Linux kernel", path.display());
                return GUEST_KERNEL.problem(detail, format!("rm {}", path.display()));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let detail = format!("{} could not be read: {error}", path.display());
                return GUEST_KERNEL.problem(detail, format!("ls -l {}", path.display()));
            }
        }
    }
    let Some(apt_cache) = site.programs.find("apt-cache") else {
        return GUEST_KERNEL
            .problem("there is none yet, and no apt-cache to find one with", "apt-get install -y apt");
    };
    match Program::new(&apt_cache, TRIAL_DEADLINE).args(["policy", PACKAGE]).output() {
        Ok(said) => match candidate(&said) {
            Some(version) => GUEST_KERNEL.not_tried(format!(
                "there is none yet; the package sources offer {PACKAGE} {version}, to be downloaded when it is first needed"
            )),
            None => GUEST_KERNEL
                .problem(format!("there is none yet, and the package sources offer no {PACKAGE}"), "apt-get update"),
        },
        Err(error) => GUEST_KERNEL.problem(error.to_string(), "apt-get update"),
    }
}

fn candidate(said: &str) -> Option<&str> {
    let version = said.lines().find_map(|line| line.trim().strip_prefix("Candidate:"))?.trim();
    (!version.is_empty() && version != "(none)").then_some(version)
}

/// An uncompressed kernel (ELF) or a boot image.
fn is_kernel(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    std::fs::File::open(path)?.take(0x206).read_to_end(&mut start)?;
    Ok(start.starts_with(b"\x7fELF") || start.get(0x202..0x206) == Some(b"HdrS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_found() {
        assert_eq!(candidate("linux:\n  Installed: (none)\n  Candidate: 6.1.2-1\n"), Some("6.1.2-1"));
        assert_eq!(candidate("linux:\n  Installed: (none)\n  Candidate: (none)\n"), None);
        assert_eq!(candidate(""), None);
    }

    #[test]
    fn kernels_are_told_from_other_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernel");
        for (content, expected) in [(&b"\x7fELF\x02"[..], true), (b"text", false), (b"", false)] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(is_kernel(&path).unwrap(), expected);
        }
    }
}
