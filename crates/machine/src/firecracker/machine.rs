//! The machine every guest sees, as the requests that make it.
//!
//! Device order, names and options are part of every snapshot. Whoever changes what a guest can notice raises [`MACHINE`].

use domain::MachineShape;
use serde_json::{Value, json};

use super::{room, tap};
use crate::engine::{DriveMode, VOLUMES_MAX, VolumeDrive};
use crate::huge_pages::HugePages;

/// Version of the machine below; snapshots of another one are refused.
const MACHINE: &str = "firecracker-2";
/// Context id of every guest; each has a host of its own to talk to.
const GUEST_CID: u32 = 3;
/// Address of the network card until the guest is given its own.
const GUEST_MAC: &str = "06:00:00:00:00:02";

/// The network card.
pub(super) const NETWORK_CARD: &str = "net";
/// The root disk.
pub(super) const ROOT: &str = "root";
/// A snapshot fixes whether a disk can be written, and a device in use cannot be let go: a machine has two devices for each volume,
/// one to write and one to read. Whichever is not used holds nothing, and the guest does not touch it.
pub(super) const WRITABLE: [&str; VOLUMES_MAX] = ["write0", "write1", "write2", "write3"];
pub(super) const READABLE: [&str; VOLUMES_MAX] = ["read0", "read1", "read2", "read3"];

/// The machine's version, with the pages of its memory: Firecracker loads it with no others.
pub(super) fn machine(huge_pages: HugePages) -> String {
    match huge_pages {
        HugePages::Off => MACHINE.to_owned(),
        HugePages::TwoMib => format!("{MACHINE}+2m"),
    }
}

/// MiB of memory that a machine has in huge pages, by what its Firecracker says of it; `None` for any other.
pub(super) fn huge_memory_mib(config: &Value) -> Option<u64> {
    let size = config.get("machine-config")?;
    (size.get("huge_pages")?.as_str()? == "2M").then(|| size.get("mem_size_mib")?.as_u64()).flatten()
}

/// The file behind a drive, as Firecracker opens it.
pub(super) fn drive_path(name: &str) -> String {
    format!("/{}/{name}", room::NAME)
}

/// What the program opens or makes by name when it loads a snapshot. All of it is the same for every machine.
#[derive(Debug, Clone)]
pub struct Remembered {
    /// The root disk.
    pub root: String,
    /// Disks of volumes; those that are not used are empty.
    pub volumes: Vec<String>,
    /// The socket that leads to the guest.
    pub link: String,
}

/// For whoever loads a snapshot without this engine, to measure what the program needs by itself.
pub fn remembered() -> Remembered {
    let volumes = WRITABLE.iter().chain(&READABLE).map(|name| drive_path(name)).collect();
    Remembered { root: drive_path(ROOT), volumes, link: drive_path(room::LINK_SOCKET) }
}

/// The drive of a volume.
pub(super) fn volume_drive(slot: usize, mode: DriveMode) -> &'static str {
    match mode {
        DriveMode::ReadWrite => WRITABLE[slot],
        DriveMode::ReadOnly => READABLE[slot],
    }
}

/// The requests, in order, with their paths; the last one starts the guest.
pub(super) fn requests(
    shape: MachineShape,
    volumes: &[VolumeDrive],
    has_network: bool,
    huge_pages: HugePages,
) -> Vec<(String, Value)> {
    let boot = json!({
        "kernel_image_path": "/kernel",
        "initrd_path": "/initramfs",
        "boot_args": kernel_arguments(volumes),
    });
    let mut size = json!({ "vcpu_count": shape.vcpus(), "mem_size_mib": shape.memory_mib() });
    if huge_pages == HugePages::TwoMib {
        size["huge_pages"] = "2M".into();
    }
    let mut requests = vec![("/boot-source".to_owned(), boot), ("/machine-config".to_owned(), size)];
    let pairs = WRITABLE.iter().zip(&READABLE).flat_map(|(write, read)| [(*write, false), (*read, true)]);
    for (name, read_only) in std::iter::once((ROOT, false)).chain(pairs) {
        let drive = json!({
            "drive_id": name,
            "path_on_host": drive_path(name),
            "is_root_device": false,
            "is_read_only": read_only,
            "cache_type": "Writeback",
        });
        requests.push((format!("/drives/{name}"), drive));
    }
    if has_network {
        let card = json!({ "iface_id": NETWORK_CARD, "host_dev_name": tap::NAME, "guest_mac": GUEST_MAC });
        requests.push((format!("/network-interfaces/{NETWORK_CARD}"), card));
    }
    let link = json!({ "guest_cid": GUEST_CID, "uds_path": drive_path(room::LINK_SOCKET) });
    requests.push(("/vsock".to_owned(), link));
    requests.push(("/entropy".to_owned(), json!({})));
    requests.push(("/balloon".to_owned(), balloon()));
    requests.push(("/actions".to_owned(), json!({ "action_type": "InstanceStart" })));
    requests
}

/// A balloon that is never filled. By it the guest tells which memory it has freed, in pieces of 2 MiB and more, two seconds later.
fn balloon() -> Value {
    json!({
        "amount_mib": 0,
        "deflate_on_oom": true,
        "stats_polling_interval_s": 0,
        "free_page_reporting": true,
    })
}

/// The kernel's own arguments. What a sandbox has no use for is off, as in QEMU's machine. The last one tells the guest that disks
/// come in pairs, and which volumes there are.
fn kernel_arguments(volumes: &[VolumeDrive]) -> String {
    let letters: String = volumes
        .iter()
        .map(|volume| match volume.mode {
            DriveMode::ReadWrite => 'w',
            DriveMode::ReadOnly => 'r',
        })
        .collect();
    format!(
        "console=ttyS0 quiet reboot=t panic=-1 net.ifnames=0 psi=0 noautogroup audit=0 lsm=landlock nowatchdog \
         i8042.noaux i8042.nomux i8042.dumbkbd pandastack.volumes={letters}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_huge_pages_is_another_one_and_is_known_again() {
        let shape = MachineShape::new(1, 256).unwrap();
        let size = |huge_pages| requests(shape, &[], false, huge_pages).remove(1).1;
        assert_eq!(size(HugePages::Off), json!({ "vcpu_count": 1, "mem_size_mib": 256 }));
        assert_ne!(machine(HugePages::Off), machine(HugePages::TwoMib));
        assert_eq!(machine(HugePages::Off), MACHINE);
        let found = |size: Value| huge_memory_mib(&json!({ "machine-config": size }));
        assert_eq!(found(size(HugePages::TwoMib)), Some(256));
        assert_eq!(found(json!({ "mem_size_mib": 256, "huge_pages": "None" })), None);
        assert_eq!(huge_memory_mib(&json!({})), None);
    }

    #[test]
    fn a_machine_has_two_drives_for_each_volume_after_its_root() {
        let shape = MachineShape::new(1, 256).unwrap();
        let requests = requests(shape, &[], true, HugePages::Off);
        let drives: Vec<_> = requests.iter().filter_map(|(path, _)| path.strip_prefix("/drives/")).collect();
        assert_eq!(drives.len(), 1 + 2 * VOLUMES_MAX);
        assert_eq!(drives[..4], [ROOT, "write0", "read0", "write1"]);
        assert_eq!(requests.last().unwrap().0, "/actions");
        assert!(kernel_arguments(&[]).ends_with("pandastack.volumes="));
    }
}
