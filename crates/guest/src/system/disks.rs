//! Disks besides the root disk: volumes of the sandbox.
//!
//! A machine has the devices of all the volumes it may ever have. Those that hold nothing are let go at boot, so that a snapshot
//! knows nothing of them; when a volume lies behind one, it is found like a new disk, with the size and mode it has then.
//!
//! A machine whose devices can neither be let go nor change their mode says so to the kernel ([`PAIRED`]): it has two devices for
//! each volume, one to write and one to read, and none of them is touched before it is known to be the one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::kernel::check;

/// The bus of virtual devices.
const BUS: &str = "/sys/bus/virtio/devices";
/// The driver of virtual disks.
const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_blk";
const FIFREEZE: libc::c_ulong = 0xc004_5877;
/// What the bus says about a disk.
const DISK_KIND: &str = "0x0002";
/// Argument of the kernel in a machine with two devices for each volume. Its value has a letter for each volume that is there at
/// boot: `w` for one to write, `r` for one to read.
const PAIRED: &str = "pandastack.volumes=";
/// Whether drivers take devices by themselves.
const AUTOPROBE: &str = "/sys/bus/virtio/drivers_autoprobe";

/// Loads the driver of disks. Where devices come in pairs, it takes the root disk and the volumes that are there and no other.
pub(crate) fn load_driver(load: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let Some(volumes) = paired() else { return load() };
    fs::write(AUTOPROBE, "0")?;
    let loaded = load().and_then(|()| {
        let disks = disks()?;
        bind(disks.first().ok_or(io::ErrorKind::NotFound)?)?;
        find(&volumes)
    });
    fs::write(AUTOPROBE, "1")?;
    loaded
}

/// For each volume that was there at boot whether it is read-only; `None` where devices do not come in pairs.
fn paired() -> Option<Vec<bool>> {
    let arguments = fs::read_to_string("/proc/cmdline").ok()?;
    let volumes = arguments.split_ascii_whitespace().find_map(|argument| argument.strip_prefix(PAIRED))?;
    Some(volumes.bytes().map(|letter| letter == b'r').collect())
}

/// Which of the machine's disks a volume is.
fn position(paired: bool, slot: usize, read_only: bool) -> usize {
    if paired { 1 + 2 * slot + usize::from(read_only) } else { 1 + slot }
}

/// Lets go of disks that hold nothing. One that cannot be let go stays as a disk of no size and does no harm.
pub(crate) fn let_go_of_empty() {
    if paired().is_some() {
        return;
    }
    let Ok(disks) = disks() else { return };
    for disk in disks.iter().filter(|disk| is_empty(disk)) {
        let _ = fs::write(Path::new(DRIVER).join("unbind"), disk);
    }
}

/// Makes sure that so many disks follow the root disk, in the order of their devices.
pub(crate) fn find(read_only: &[bool]) -> io::Result<()> {
    let disks = disks()?;
    let paired = paired().is_some();
    let wanted: Option<Vec<&String>> = read_only
        .iter()
        .enumerate()
        .map(|(slot, read_only)| disks.get(position(paired, slot, *read_only)))
        .collect();
    for disk in wanted.ok_or(io::ErrorKind::NotFound)? {
        if !Path::new(BUS).join(disk).join("driver").exists() {
            bind(disk)?;
        }
    }
    Ok(())
}

fn bind(disk: &str) -> io::Result<()> {
    fs::write(Path::new(DRIVER).join("bind"), disk)
}

/// Flushes the file systems on all disks but the root and freezes them: what is on the disk is then as if they were unmounted,
/// open files or not. Returns after trying all of them.
pub(crate) fn seal() -> io::Result<()> {
    super::sync();
    let mut outcome = Ok(());
    let mut sealed = Vec::new();
    for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
        let Some((device, place)) = volume_mount(line) else { continue };
        if !sealed.contains(&device) {
            sealed.push(device);
            outcome = freeze(&place).and(outcome);
        }
    }
    outcome
}

/// Where a disk is mounted: the first of its places.
pub(super) fn mounted_at(disk: &str) -> io::Result<Option<PathBuf>> {
    let number = fs::read_to_string(Path::new("/sys/block").join(disk).join("dev"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let places = mounts.lines().filter_map(volume_mount);
    let place = places.into_iter().find(|(device, _)| *device == number.trim_end());
    Ok(place.map(|(_, place)| place))
}

fn freeze(place: &Path) -> io::Result<()> {
    let directory = File::open(place)?;
    // SAFETY: `FIFREEZE` takes no argument.
    match check(unsafe { libc::ioctl(directory.as_raw_fd(), FIFREEZE, 0) }) {
        // Already frozen, or of a kind that has nothing to flush.
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EOPNOTSUPP)) => Err(error),
        _ => Ok(()),
    }
}

/// The device and the place of a mount, if it is of a volume.
fn volume_mount(line: &str) -> Option<(&str, PathBuf)> {
    let (mount, rest) = line.split_once(" - ")?;
    let source = rest.split(' ').nth(1)?;
    let disk = source.strip_prefix("/dev/vd")?;
    let mut fields = mount.split(' ').skip(2);
    let (device, place) = (fields.next()?, fields.nth(1)?);
    (!disk.starts_with('a')).then(|| (device, unescaped(place)))
}

/// The kernel writes white space and backslashes in paths as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (byte, code) {
            (b'\\', Some(code)) => {
                bytes.push(code);
                rest = &after[3..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_the_device_of_its_mode_where_there_are_two() {
        let of_four = |paired| [0, 1].map(|slot| [false, true].map(|mode| position(paired, slot, mode)));
        assert_eq!(of_four(true), [[1, 2], [3, 4]]);
        assert_eq!(of_four(false), [[1, 1], [2, 2]]);
    }

    #[test]
    fn mounts_of_volumes_are_told_from_others() {
        let check = |line: &str, expected: Option<(&str, &str)>| {
            let found = volume_mount(line);
            assert_eq!(found, expected.map(|(device, place)| (device, PathBuf::from(place))), "{line}");
        };
        check("30 1 254:16 / /mnt rw,relatime - ext4 /dev/vdb rw", Some(("254:16", "/mnt")));
        check("31 1 254:17 / /a\\040b\\134 rw shared:1 - ext4 /dev/vdc1 rw", Some(("254:17", "/a b\\")));
        check("29 1 254:0 / / rw - ext4 /dev/vda rw", None);
        check("32 1 0:5 / /dev rw - devtmpfs devtmpfs rw", None);
        check("broken", None);
    }
}
