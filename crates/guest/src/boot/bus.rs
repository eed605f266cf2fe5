//! The bus of virtual devices, before their drivers are there.

use std::fs;

/// What the bus says about a virtio socket.
pub(super) const SOCKET: &str = "0x0013";

/// What the bus says about a balloon, by which a guest gives back the memory it frees.
pub(super) const BALLOON: &str = "0x0005";

/// Whether the machine has a device of this kind. To be asked when the driver of the bus is there.
pub(super) fn has(kind: &str) -> bool {
    let Ok(devices) = fs::read_dir("/sys/bus/virtio/devices") else { return false };
    devices.flatten().any(|device| {
        fs::read_to_string(device.path().join("device")).is_ok_and(|found| found.trim_end() == kind)
    })
}
