//! Keeps a probe's result in a file for as long as all it depends on is the same.

use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::rom::ROM_VERSION;
use super::{KernelFile, KvmDevice, Probe, boot_id};
use crate::cpu::cpu_identity;
use crate::facts::kernel_text;
use crate::qemu::QemuBinary;

/// A kept result is a few kilobytes; a longer file is not one.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Everything a result depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    rom_version: u32,
    boot_id: String,
    kernel_release: String,
    cpu_model: String,
    cpu_flags_digest: String,
    user_id: u32,
    device: KvmDevice,
    qemu: QemuBinary,
    guest_kernel: Option<KernelFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: Key,
    probe: Probe,
}

/// Why a kept result cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("could not read it: {0}")]
    Read(std::io::Error),
    #[error("it is damaged: {0}")]
    Damaged(serde_json::Error),
    #[error("something it depends on has changed")]
    Stale,
}

impl Key {
    pub(crate) fn of(qemu: &QemuBinary, device: &KvmDevice, guest_kernel: Option<&KernelFile>) -> Key {
        let cpu = cpu_identity().ok();
        Key {
            rom_version: ROM_VERSION,
            boot_id: boot_id(),
            kernel_release: kernel_text("/proc/sys/kernel/osrelease"),
            cpu_model: cpu.as_ref().map(|cpu| cpu.model_name.clone()).unwrap_or_default(),
            cpu_flags_digest: cpu.map(|cpu| cpu.flags_digest).unwrap_or_default(),
            user_id: rustix::process::geteuid().as_raw(),
            device: device.clone(),
            qemu: qemu.clone(),
            guest_kernel: guest_kernel.cloned(),
        }
    }
}

pub(crate) fn load(path: &Path, key: &Key) -> Result<Probe, LoadError> {
    let mut text = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text))
        .map_err(LoadError::Read)?;
    let kept: Kept = serde_json::from_slice(&text).map_err(LoadError::Damaged)?;
    if kept.key == *key { Ok(kept.probe) } else { Err(LoadError::Stale) }
}

/// Replaces the file in one step; a reader sees the old result or the new one.
pub(crate) fn store(path: &Path, key: &Key, probe: &Probe) -> std::io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.ok_or(std::io::ErrorKind::InvalidInput)?;
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    serde_json::to_writer_pretty(&mut file, &Kept { key: key.clone(), probe: probe.clone() })?;
    file.flush()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tests::{FAILED, PASSED, probe};

    #[test]
    fn a_result_is_kept_until_something_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deeper/probe.json");
        let probe = probe(None, &["kvm_pvm"], FAILED, PASSED);
        let key = Key::of(&probe.qemu, &probe.device, None);
        assert!(matches!(load(&path, &key), Err(LoadError::Read(_))));
        store(&path, &key, &probe).unwrap();
        assert_eq!(load(&path, &key).unwrap(), probe);

        let stale = |change: fn(&mut Key)| {
            let mut other = key.clone();
            change(&mut other);
            assert!(matches!(load(&path, &other), Err(LoadError::Stale)));
        };
        stale(|key| key.boot_id.push('x'));
        stale(|key| key.kernel_release.push('x'));
        stale(|key| key.cpu_model.push('x'));
        stale(|key| key.qemu.modified_ns += 1);
        stale(|key| key.qemu.size_bytes += 1);
        stale(|key| key.qemu.version_text.push('x'));
        stale(|key| key.qemu.path.push("x"));
        stale(|key| key.device = KvmDevice::Absent);
        stale(|key| key.guest_kernel = Some(KernelFile::of(Path::new("/nonexistent"))));
        stale(|key| key.rom_version += 1);
    }

    #[test]
    fn a_damaged_file_is_not_believed_and_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("probe.json");
        let probe = probe(None, &[], FAILED, PASSED);
        let key = Key::of(&probe.qemu, &probe.device, None);
        store(&path, &key, &probe).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for damage in [&whole[..whole.len() / 2], b"", b"\xff\xfe", b"{\"key\":1}"] {
            std::fs::write(&path, damage).unwrap();
            assert!(matches!(load(&path, &key), Err(LoadError::Damaged(_))));
        }
        store(&path, &key, &probe).unwrap();
        assert_eq!(load(&path, &key).unwrap(), probe);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }
}
