//! Can files be cloned without copying? On the data directory itself, or on an XFS image mounted from it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::ioctl_ficlone;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::loop_device::LoopDevice;
use super::{Site, TRIAL_DEADLINE};
use crate::check::{Check, Subject};
use crate::facts::nearest_existing;
use crate::program::Program;
use crate::throwaway::in_fresh_mounts;

const REFLINK: Subject = Subject { name: "reflink", title: "Files cloned without copying" };
/// Size of the trial image. Sparse; XFS refuses less than 300 MiB.
const TRIAL_IMAGE_BYTES: u64 = 320 << 20;

pub(super) fn check(site: &Site<'_>) -> Check {
    let directory = nearest_existing(&site.data_directory);
    let here = match clone_in(&directory) {
        Ok(()) => return REFLINK.ok(format!("a file was cloned and changed in {}", directory.display())),
        Err(error) => error,
    };
    let Some(mkfs) = site.programs.find("mkfs.xfs") else {
        let detail = format!(
            "{} cannot clone files ({here}), and there is no mkfs.xfs for a pool image",
            directory.display()
        );
        return REFLINK.problem(detail, "apt-get install -y xfsprogs");
    };
    match clone_in_image(&mkfs, &directory) {
        Ok(()) => REFLINK.ok(format!(
            "{} cannot clone files ({here}), but an XFS image made there can: a pool image will be used",
            directory.display()
        )),
        Err(error) => {
            let detail = format!(
                "{} cannot clone files ({here}), and an XFS image there failed: {error}",
                directory.display()
            );
            REFLINK.problem(detail, "modprobe loop && modprobe xfs")
        }
    }
}

/// Clones a file, changes the clone, and looks whether the original stayed. Neither file ever has a name.
fn clone_in(directory: &Path) -> std::io::Result<()> {
    let content = vec![0x5a; 64 * 1024];
    let mut original = tempfile::tempfile_in(directory)?;
    original.write_all(&content)?;
    let mut clone = tempfile::tempfile_in(directory)?;
    ioctl_ficlone(&clone, &original)?;
    if read_all(&mut clone)? != content {
        return Err(std::io::Error::other("the clone differs from its original"));
    }
    clone.seek(SeekFrom::Start(0))?;
    clone.write_all(b"changed")?;
    if read_all(&mut original)? != content {
        return Err(std::io::Error::other("changing the clone changed its original"));
    }
    Ok(())
}

fn read_all(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(1 << 20).read_to_end(&mut content)?;
    Ok(content)
}

/// Makes an XFS image in a nameless file of `directory`, mounts it where only this thread sees it, and clones there.
fn clone_in_image(mkfs: &Path, directory: &Path) -> std::io::Result<()> {
    let image = tempfile::tempfile_in(directory)?;
    image.set_len(TRIAL_IMAGE_BYTES)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), image.as_raw_fd());
    Program::new(mkfs, TRIAL_DEADLINE)
        .args(["-q", "-f", "-m", "reflink=1", &path])
        .output()
        .map_err(std::io::Error::other)?;
    let device = LoopDevice::attach(&image)?;
    in_fresh_mounts(|| {
        // Over the data directory: it exists, and outside of this thread nothing changes.
        mount(device.path(), directory, "xfs", MountFlags::NOSUID | MountFlags::NODEV, None)?;
        let cloned = clone_in(directory);
        // Lazily, because another thread may just be starting a process, which holds what is open here for a moment.
        unmount(directory, UnmountFlags::DETACH)?;
        cloned
    })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Programs;

    #[test]
    fn this_host_can_clone_in_an_image_and_nothing_is_left() {
        let mkfs = Programs::default().find("mkfs.xfs").unwrap();
        let directory = tempfile::tempdir().unwrap();
        clone_in_image(&mkfs, directory.path()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(directory.path().to_str().unwrap()));
    }

    #[test]
    fn a_mkfs_that_fails_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let error = clone_in_image(Path::new("/bin/false"), directory.path()).unwrap_err();
        assert!(error.to_string().contains("/bin/false"), "{error}");
    }
}
