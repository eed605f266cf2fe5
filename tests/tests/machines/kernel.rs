//! A kernel that the operator supplies: tried by `doctor`, and booted by guests. Debian's own stands in for it; one for software
//! virtualization is not to be had here.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use image::KernelSource;
use serde_json::Value;
use tests::baked::{Baked, template};
use tests::packed::Folder;
use tests::{Lab, LabSettings, program, run_for};

/// A kernel is tried twice where KVM does not run it, and emulated on a busy host.
const TIMEOUT: Duration = Duration::from_secs(400);
/// Who built Debian's kernels, as `/proc/version` tells, and somebody else with a name of that length.
const BUILDER: &[u8] = b"debian-kernel@lists.debian.org";
const OPERATOR: &[u8] = b"the-operator@hosts.example.org";

/// Debian's kernel, uncompressed, and its modules.
async fn debian() -> Result<(PathBuf, PathBuf)> {
    let kernels = Baked::base().await?.images().join("kernels");
    let mut found = std::fs::read_dir(&kernels)?.filter_map(|entry| Some(entry.ok()?.path()));
    let kernel = found.next().with_context(|| format!("no kernel in {}", kernels.display()))?;
    Ok((kernel.join("vmlinux"), kernel.join("modules")))
}

async fn doctor(folder: &Folder, kernel: &Path) -> Result<Value> {
    let mut command = tokio::process::Command::new(program::path()?);
    command.args(["doctor", "--output", "json", "--data-dir"]).arg(folder.path()).arg("--kernel").arg(kernel);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").kill_on_drop(true);
    let done = command.stdin(Stdio::null()).output().await?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    serde_json::from_slice(&done.stdout).with_context(|| format!("{}: {said}", done.status))
}

fn check<'a>(report: &'a Value, name: &str) -> Result<&'a Value> {
    let checks = report["checks"].as_array().context("a report has checks")?;
    checks.iter().find(|check| check["name"] == name).with_context(|| format!("no check {name}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn doctor_boots_it_and_says_what_is_missing() -> Result<()> {
    run_for(TIMEOUT, async || {
        let folder = Folder::new("kernel-doctor")?;
        let (vmlinux, _) = debian().await?;
        let report = doctor(&folder, &vmlinux).await?;
        let (engine, found) = (&report["engine"], &report["virtualization"]);
        let trial = &report["probe"]["guest_kernel"];
        ensure!(trial["file"]["path"] == vmlinux.to_str().context("a name")?, "{trial}");
        let kernel = check(&report, "guest_kernel")?;
        ensure!(kernel["status"] == "ok", "{kernel}");
        if found["kind"] == "pvm" && found["runs_guests"] == false {
            ensure!(trial["kvm"]["outcome"] != "passed" && trial["tcg"]["outcome"] == "passed", "{trial}");
            let reason = text(&found["reason"]);
            ensure!(
                reason.contains("did not boot under it") && reason.contains("CONFIG_PVM_GUEST"),
                "{reason}"
            );
            ensure!(reason.contains("though it boots under emulation"), "{reason}");
            ensure!(engine["engine"]["accel"] == "tcg" && engine["pvm"] == false, "{engine}");
            let fix = text(&check(&report, "engine")?["fix"]).to_owned();
            ensure!(fix.contains("--kernel FILE (or PANDASTACK_KERNEL)"), "{fix}");
        } else if found["runs_guests"] == true {
            ensure!(trial["kvm"]["outcome"] == "passed", "{trial}");
        } else {
            ensure!(text(&kernel["detail"]).contains("under TCG"), "{kernel}");
        }
        // Kept like the rest of what was found, for as long as the file is the same.
        if trial["kvm"]["outcome"] != "timed_out" {
            let again = doctor(&folder, &vmlinux).await?;
            ensure!(again["probe_from_cache"] == true && again["probe"]["guest_kernel"] == *trial, "{again}");
        }

        let other = folder.path().join("not-a-kernel");
        std::fs::write(&other, "text")?;
        let report = doctor(&folder, &other).await?;
        ensure!(report["probe_from_cache"] == false && report["ok"] == false);
        let kernel = check(&report, "guest_kernel")?;
        ensure!(kernel["status"] == "problem", "{kernel}");
        ensure!(text(&kernel["detail"]).contains("neither a vmlinux nor a bzImage"), "{kernel}");
        let missing = doctor(&folder, Path::new("/nonexistent")).await;
        ensure!(missing.is_err_and(|error| format!("{error:#}").contains("/nonexistent is not a file")));
        Ok(())
    })
}

/// A kernel as kernels are usually shipped: compressed, behind a sector of code for boot loaders and another that describes it.
fn packed(vmlinux: &[u8]) -> Result<Vec<u8>> {
    let mut payload = GzEncoder::new(Vec::new(), Compression::fast());
    payload.write_all(vmlinux)?;
    let mut payload = payload.finish()?;
    payload.extend(u32::try_from(vmlinux.len())?.to_le_bytes());
    let mut file = vec![0; 2 * 512];
    file[0x1f1] = 1;
    file[0x1fe..0x200].copy_from_slice(&0xaa55u16.to_le_bytes());
    file[0x202..0x206].copy_from_slice(b"HdrS");
    file[0x206..0x208].copy_from_slice(&0x020fu16.to_le_bytes());
    file[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len())?.to_le_bytes());
    file.extend(payload);
    Ok(file)
}

#[test]
fn guests_boot_it() -> Result<()> {
    run_for(TIMEOUT, async || {
        let folder = Folder::new("kernel-guests")?;
        let (vmlinux, modules) = debian().await?;
        // Debian's kernel, but one can tell that it is another file.
        let mut kernel = std::fs::read(&vmlinux)?;
        let mut changed = 0;
        let mut at = 0;
        while let Some(found) = kernel[at..].windows(BUILDER.len()).position(|window| window == BUILDER) {
            kernel[at + found..at + found + BUILDER.len()].copy_from_slice(OPERATOR);
            (at, changed) = (at + found, changed + 1);
        }
        ensure!(changed > 0, "Debian's kernel does not name its builder");
        let file = folder.path().join("vmlinuz");
        std::fs::write(&file, packed(&kernel)?)?;
        drop(kernel);

        let mut lab = Lab::prepare(LabSettings::new("kernel")).await?;
        let before = lab.template().clone();
        lab.config().kernel = KernelSource::File { vmlinux: file.clone(), modules: Some(modules) };
        let lab = lab.open().await?;
        let baked = lab.node().template(&template(), &|_| {}).await?;
        ensure!(baked != before, "a bake with another kernel was used");
        let guest = lab.create_from(&baked).await?;
        let version = guest.shell("cat /proc/version").await?;
        ensure!(version.contains(std::str::from_utf8(OPERATOR)?), "{version}");
        guest.remove().await?;
        lab.remove().await
    })
}
