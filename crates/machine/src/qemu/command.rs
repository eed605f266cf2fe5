//! QEMU's command line: the machine every guest sees.
//!
//! Device order, names and options are part of every snapshot. Whoever changes what a guest can notice raises [`MACHINE`].

use std::os::fd::RawFd;

use domain::MachineShape;

use super::Accelerator;
use crate::engine::{DriveMode, VOLUMES_MAX};

/// Version of the machine below; snapshots of another one are refused.
pub(super) const MACHINE: &str = "microvm-5";
/// Name of the guest link's port, as the guest finds it in `/sys/class/virtio-ports`.
pub const LINK_PORT_NAME: &str = "pandastack.link";
/// The descriptor set that holds the root disk.
const DISK_SET: u32 = 1;
/// The descriptor set that holds `/dev/kvm`.
const KVM_SET: u32 = 2;
/// The descriptor set of the first volume; the others follow.
const VOLUME_SET: u32 = 16;
/// Last bytes of the guest's console that are kept; older ones are overwritten, so a guest cannot fill anything by talking.
const CONSOLE_BYTES: u32 = 64 * 1024;

/// A disk that fails or is full is the guest's to hear of. QEMU would otherwise stop the whole machine when the host has no space,
/// and to its user that machine would just hang.
const ON_ERROR: &str = "werror=report,rerror=report";

/// How the network card differs from QEMU's own idea of one. It has no queue for commands: alone on its wire it filters nothing, and
/// its guest changes its address without waiting for an answer.
pub const NETWORK_CARD: &str = "mac=06:00:00:00:00:02,guest_announce=off,ctrl_vq=off,ctrl_rx=off,ctrl_rx_extra=off,\
    ctrl_vlan=off,ctrl_mac_addr=off,ctrl_guest_offloads=off";

/// The open files a QEMU is started with.
#[derive(Debug)]
pub(super) struct Descriptors {
    pub(super) control: RawFd,
    pub(super) link: RawFd,
    pub(super) disk: RawFd,
    pub(super) volumes: Vec<(RawFd, DriveMode)>,
    pub(super) tap: Option<RawFd>,
    pub(super) kvm: Option<RawFd>,
}

impl Descriptors {
    pub(super) fn all(&self) -> Vec<RawFd> {
        let volumes = self.volumes.iter().map(|(volume, _)| *volume);
        [self.control, self.link, self.disk]
            .into_iter()
            .chain(volumes)
            .chain(self.tap)
            .chain(self.kvm)
            .collect()
    }
}

/// How the guest comes to be.
#[derive(Debug)]
pub(super) enum Origin<'a> {
    /// From a kernel, with memory shared with its file.
    Boot { kernel_arguments: &'a str },
    /// From saved devices that arrive later, with memory mapped privately.
    Restore,
    /// The same with memory that is empty and comes on demand.
    LazyMemory,
}

/// Arguments of a QEMU that will hold one machine.
pub(super) fn arguments(
    name: &str,
    shape: MachineShape,
    accelerator: Accelerator,
    descriptors: &Descriptors,
    origin: &Origin<'_>,
) -> Vec<String> {
    let mut line: Vec<String> = Vec::with_capacity(64);
    let mut add = |option: &str, value: String| {
        line.push(option.to_owned());
        line.push(value);
    };
    add("-name", format!("{name},debug-threads=off"));
    add("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny".into());
    add("-L", "/firmware".into());
    add("-bios", "/firmware/qboot.rom".into());
    add("-M", "microvm,pic=on,pit=on,rtc=on,isa-serial=on,auto-kernel-cmdline=off,memory-backend=ram".into());
    match (accelerator, descriptors.kvm) {
        (Accelerator::Kvm, Some(kvm)) => {
            add("-add-fd", format!("fd={kvm},set={KVM_SET}"));
            add("-accel", format!("kvm,device=/dev/fdset/{KVM_SET}"));
            add("-cpu", "host".into());
        }
        _ => {
            add("-accel", "tcg".into());
            add("-cpu", "max".into());
        }
    }
    add("-smp", shape.vcpus().to_string());
    add("-m", shape.memory_mib().to_string());
    let memory = format!("memory-backend-file,id=ram,size={}M,mem-path=/memory", shape.memory_mib());
    match origin {
        Origin::Boot { .. } => add("-object", format!("{memory},share=on")),
        Origin::Restore => add("-object", format!("{memory},share=off,readonly=on,rom=off")),
        Origin::LazyMemory => {
            add("-object", format!("memory-backend-ram,id=ram,size={}M", shape.memory_mib()));
        }
    }
    add("-chardev", format!("socket,id=control,fd={},server=on,wait=off", descriptors.control));
    add("-mon", "chardev=control,mode=control".into());
    add("-chardev", format!("ringbuf,id=console,size={CONSOLE_BYTES}"));
    add("-serial", "chardev:console".into());
    add("-chardev", format!("socket,id=link,fd={},server=on,wait=off", descriptors.link));
    add("-device", "virtio-serial-device,max_ports=2".into());
    add("-device", format!("virtserialport,chardev=link,name={LINK_PORT_NAME}"));
    add("-add-fd", format!("fd={},set={DISK_SET}", descriptors.disk));
    add(
        "-blockdev",
        format!(
            "driver=file,node-name={ROOT_NODE},filename=/dev/fdset/{DISK_SET},locking=off,discard=unmap,aio=threads"
        ),
    );
    add("-device", format!("virtio-blk-device,drive={ROOT_NODE},{ON_ERROR}"));
    for slot in 0..VOLUMES_MAX {
        let name = volume_node(slot);
        match descriptors.volumes.get(slot) {
            Some((volume, mode)) => {
                let set = VOLUME_SET + slot as u32;
                let read_only = if *mode == DriveMode::ReadOnly { "on" } else { "off" };
                add("-add-fd", format!("fd={volume},set={set}"));
                add(
                    "-blockdev",
                    format!(
                        "driver=file,node-name={name},filename=/dev/fdset/{set},read-only={read_only},locking=off,discard=unmap,aio=threads"
                    ),
                );
            }
            // A device cannot be added to a machine later, so it has all it may ever need; this one holds nothing yet.
            None => add("-blockdev", format!("driver=null-co,node-name={name},size=0,read-zeroes=on")),
        }
        add("-device", format!("virtio-blk-device,drive={name},{ON_ERROR}"));
    }
    if let Some(tap) = descriptors.tap {
        add("-netdev", format!("tap,id=net,fd={tap},vhost=off"));
        add("-device", format!("virtio-net-device,netdev=net,{NETWORK_CARD}"));
    }
    match origin {
        Origin::Boot { kernel_arguments } => {
            add("-kernel", "/kernel".into());
            add("-initrd", "/initramfs".into());
            add("-append", (*kernel_arguments).to_owned());
        }
        Origin::Restore | Origin::LazyMemory => {
            add("-incoming", "defer".into());
            add("-global", "migration.send-configuration=off".into());
            line.push("-S".into());
        }
    }
    for flag in ["-nodefaults", "-no-user-config", "-no-reboot"] {
        line.push(flag.into());
    }
    line.push("-display".into());
    line.push("none".into());
    line
}

/// What QEMU calls the root disk.
pub(super) const ROOT_NODE: &str = "disk";

/// What QEMU calls the volume in a slot.
pub(super) fn volume_node(slot: usize) -> String {
    format!("volume{slot}")
}

/// The kernel's own arguments. `tsc_early_khz` is required: calibrating the clock against an emulated timer fails on a busy host
/// and then hangs for ever. `tsc=reliable` keeps the kernel from distrusting that clock because the host was busy for a moment:
/// without it a guest ticks 250 times a second even when idle. What a sandbox has no use for is off, because a restored guest pays
/// again for all code it runs: of the security modules only Landlock has users, the others would look at every call without a
/// policy. An emulated CPU does not speculate, so it needs no mitigations; what checks every copy to and from programs is left to
/// guests that run on hardware.
pub(super) fn kernel_arguments(accelerator: Accelerator, tsc_khz: u64) -> String {
    let mitigations = match accelerator {
        Accelerator::Kvm => "",
        Accelerator::Tcg => " mitigations=off hardened_usercopy=off",
    };
    format!(
        "console=ttyS0 quiet reboot=t panic=-1 tsc_early_khz={tsc_khz} tsc=reliable net.ifnames=0 psi=0 noautogroup audit=0 lsm=landlock nowatchdog{mitigations}"
    )
}
