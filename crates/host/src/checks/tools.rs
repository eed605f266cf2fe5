//! Are the programs there that PandaStack uses, and do they run?

use super::{Site, TRIAL_DEADLINE};
use crate::check::{Check, Subject};
use crate::facts::os_release;
use crate::program::{Ended, Program, first_lines};
use crate::programs::Programs;
use crate::qemu::{QEMU_VERSION_MIN, QemuBinary};

/// A program, the package that brings it, and how it is asked for its version.
struct Tool {
    subject: Subject,
    program: &'static str,
    package: &'static str,
    version_option: &'static str,
}

const fn tool(
    name: &'static str,
    title: &'static str,
    program: &'static str,
    package: &'static str,
    version_option: &'static str,
) -> Tool {
    Tool { subject: Subject { name, title }, program, package, version_option }
}

const TOOLS: [Tool; 7] = [
    tool("mmdebstrap", "Builds Debian root file systems", "mmdebstrap", "mmdebstrap", "--version"),
    tool("mkfs_xfs", "Makes the reflink pool", "mkfs.xfs", "xfsprogs", "-V"),
    tool("mke2fs", "Makes root disks", "mke2fs", "e2fsprogs", "-V"),
    tool("nft", "Loads packet filters", "nft", "nftables", "--version"),
    tool("ip", "Shows and sets network devices", "ip", "iproute2", "-V"),
    tool("dpkg_deb", "Unpacks the guest kernel", "dpkg-deb", "dpkg", "--version"),
    tool("apt_get", "Downloads packages", "apt-get", "apt", "--version"),
];
const QEMU: Subject = Subject { name: "qemu", title: "Runs machines (QEMU)" };
const FIRMWARE: Subject = Subject { name: "firmware", title: "QEMU's microvm machine and its firmware" };

pub(super) fn all(site: &Site<'_>) -> Vec<Check> {
    let mut checks = vec![qemu(site), firmware(site)];
    checks.extend(TOOLS.iter().map(|tool| tool.check(site.programs)));
    checks
}

impl Tool {
    fn check(&self, programs: &Programs) -> Check {
        let install = format!("apt-get install -y {}", self.package);
        let Some(path) = programs.find(self.program) else {
            return self.subject.problem(format!("{} is missing", self.program), install);
        };
        let ran = Program::new(&path, TRIAL_DEADLINE).args([self.version_option]).run(|_, _| false);
        match ran {
            Ok(finished) if matches!(finished.ended, Ended::Exited(status) if status.success()) => {
                // Some say it on standard error.
                let said = if finished.stdout.is_empty() { &finished.stderr } else { &finished.stdout };
                let version = first_lines(said);
                let version = version.split(';').next().unwrap_or_default().trim();
                self.subject.ok(format!("{}: {version}", path.display()))
            }
            Ok(finished) => {
                let said = first_lines(&finished.stderr);
                let detail = format!("{} does not run ({:?}): {said}", path.display(), finished.ended);
                self.subject.problem(detail, format!("apt-get install --reinstall -y {}", self.package))
            }
            Err(error) => self.subject.problem(error.to_string(), install),
        }
    }
}

fn qemu(site: &Site<'_>) -> Check {
    match &site.qemu {
        Ok(found) if found.version >= QEMU_VERSION_MIN => {
            QEMU.ok(format!("{}: {}", found.path.display(), found.version_text))
        }
        Ok(found) => QEMU.problem(
            format!(
                "{} is {}; {QEMU_VERSION_MIN} or newer is needed to share a snapshot's memory without letting a machine change it",
                found.path.display(),
                found.version_text
            ),
            install_qemu(),
        ),
        Err(error) => QEMU.problem(error.to_string(), install_qemu()),
    }
}

/// Debian 12 has a QEMU that is too old, and a newer one in its backports, which the installer adds.
pub(crate) fn install_qemu() -> String {
    match os_release("VERSION_CODENAME").as_deref() {
        Some("bookworm") => {
            "sh install --packages-only (the release's script; scripts/install in a clone)".to_owned()
        }
        _ => "apt-get install -y qemu-system-x86".to_owned(),
    }
}

/// Sets up the machine that the engine uses, with QEMU's own firmware in it, and ends it before it runs.
fn firmware(site: &Site<'_>) -> Check {
    let path = match &site.qemu {
        Ok(QemuBinary { path, .. }) => path,
        Err(_) => return FIRMWARE.not_tried("there is no usable QEMU to try it with"),
    };
    let accelerator = ["-accel", "kvm", "-accel", "tcg"];
    let machine = ["-M", "microvm,pic=on,pit=on,rtc=on,isa-serial=on", "-m", "16", "-S"];
    let rest = ["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "stdio"];
    let ran = Program::new(path, TRIAL_DEADLINE)
        .args(machine)
        .args(accelerator)
        .args(rest)
        .input(b"quit\n")
        .output();
    match ran {
        Ok(_) => FIRMWARE.ok("the machine was set up with its firmware"),
        Err(error) => {
            FIRMWARE.problem(error.to_string(), "apt-get install --reinstall -y qemu-system-data seabios")
        }
    }
}
