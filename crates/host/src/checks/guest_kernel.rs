//! Is there a kernel for guests, or a place to get one?

use std::io::Read;
use std::path::Path;

use super::{Site, TRIAL_DEADLINE};
use crate::check::{Check, Subject};
use crate::probe::KernelTrial;
use crate::program::Program;

const GUEST_KERNEL: Subject = Subject { name: "guest_kernel", title: "Kernel for guests" };
const PACKAGE: &str = "linux-image-cloud-amd64";

pub(super) fn check(site: &Site<'_>) -> Check {
    if let Some(trial) = site.trial {
        return tried(trial);
    }
    if let Some(path) = &site.guest_kernel {
        return GUEST_KERNEL.not_tried(match is_kernel(path) {
            Ok(true) => format!("{} is a kernel; there is no QEMU to boot it with", path.display()),
            Ok(false) => format!("{} is not a Linux kernel", path.display()),
            Err(error) => format!("{} could not be read: {error}", path.display()),
        });
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

/// A kernel of the operator's serves when it boots under what will run guests: KVM where it does, TCG otherwise.
fn tried(trial: &KernelTrial) -> Check {
    let path = trial.file.path.display();
    for (boot, accelerator) in [(&trial.kvm, "KVM"), (&trial.tcg, "TCG")] {
        if boot.passed() {
            let time = boot.elapsed_ms;
            return GUEST_KERNEL
                .ok(format!("{path} boots to its first program under {accelerator} in {time} ms"));
        }
    }
    GUEST_KERNEL.problem(
        format!("{path} does not boot under TCG: {}; under KVM: {}", trial.tcg.detail, trial.kvm.detail),
        "leave out --kernel to have Debian's, or supply a kernel for x86-64 with CONFIG_PVH, CONFIG_BLK_DEV_INITRD and \
         CONFIG_SERIAL_8250_CONSOLE built in",
    )
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
