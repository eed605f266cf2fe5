//! Disks besides the root disk: volumes of the sandbox.
//!
//! A machine has the devices of all the volumes it may ever have. Those that hold nothing are let go at boot, so that a snapshot
//! knows nothing of them; when a volume lies behind one, it is found like a new disk, with the size and mode it has then.

use std::fs;
use std::io;
use std::path::Path;

/// The bus of virtual devices.
const BUS: &str = "/sys/bus/virtio/devices";
/// The driver of virtual disks.
const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_blk";
/// What the bus says about a disk.
const DISK_KIND: &str = "0x0002";

/// Lets go of disks that hold nothing. One that cannot be let go stays as a disk of no size and does no harm.
pub(crate) fn let_go_of_empty() {
    let Ok(disks) = disks() else { return };
    for disk in disks.iter().filter(|disk| is_empty(disk)) {
        let _ = fs::write(Path::new(DRIVER).join("unbind"), disk);
    }
}

/// Makes sure that so many disks follow the root disk, in the order of their devices.
pub(crate) fn find(volumes: usize) -> io::Result<()> {
    let disks = disks()?;
    let wanted = disks.get(1..=volumes).ok_or(io::ErrorKind::NotFound)?;
    for disk in wanted.iter().filter(|disk| !Path::new(BUS).join(disk).join("driver").exists()) {
        fs::write(Path::new(DRIVER).join("bind"), disk)?;
    }
    Ok(())
}

/// Devices of disks in the order in which the machine has them, the root disk first.
fn disks() -> io::Result<Vec<String>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(BUS)? {
        let entry = entry?;
        let kind = fs::read_to_string(entry.path().join("device"))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("virtio")?.parse::<u32>().ok());
        if let Some(number) = number.filter(|_| kind.trim_end() == DISK_KIND) {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers.into_iter().map(|number| format!("virtio{number}")).collect())
}

fn is_empty(disk: &str) -> bool {
    let Ok(blocks) = fs::read_dir(Path::new(BUS).join(disk).join("block")) else { return false };
    let size = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("size"));
    blocks.flatten().all(|entry| size(entry).is_ok_and(|size| size.trim_end() == "0"))
}
