//! Disks from trees that this crate did not install: an image's, a tarball's, a build's context.
//!
//! Such trees come from strangers. They are changed only through [`Tree`], which no link leads out of, and read only by `mke2fs`, which
//! follows none.

use std::io;
use std::path::Path;

use super::certificates::Authorities;
use super::customise::{HOSTNAME, HOSTS, RESOLVERS, remove_identity};
use super::ext4::{self, Ext4, Journal};
use super::spec::DiskSize;
use super::tree::{Access, Tree};
use crate::digest::Digest;
use crate::error::ImageError;

/// What a guest mounts over, and where programs expect room. Those that are there keep their mode.
const FOLDERS: [(&str, u32); 7] = [
    ("/dev", 0o755),
    ("/proc", 0o555),
    ("/run", 0o755),
    ("/sys", 0o555),
    ("/tmp", 0o1777),
    ("/etc", 0o755),
    ("/root", 0o700),
];

/// A tree that no guest could be made from.
#[derive(Debug, thiserror::Error)]
#[error("`{path}` in the tree is in the way")]
pub struct PrepareError {
    /// A path of the guest.
    pub path: String,
    /// Why it could not be put right.
    #[source]
    pub source: io::Error,
}

/// Gives a tree what a guest needs, whatever system is in it: places to mount, and files that the guest program writes as plain files.
/// Nothing that identifies one machine stays, and further authorities are trusted. Blocks.
///
/// # Errors
/// When something in the tree is in the way, or the host's disk is full.
pub fn prepare_guest_tree(root: &Path, authorities: &Authorities) -> Result<(), PrepareError> {
    let failed = |path: &str| {
        let path = path.to_owned();
        move |source| PrepareError { path, source }
    };
    let tree = Tree::open(root).map_err(failed("/"))?;
    for (path, mode) in FOLDERS {
        // A system may have its settings elsewhere and a link here, which the guest follows too.
        if path == "/etc" && tree.list(path).is_ok_and(|names| !names.is_empty()) {
            continue;
        }
        tree.ensure_dir(path, mode).map_err(failed(path))?;
    }
    remove_identity(&tree).map_err(failed("/etc/machine-id"))?;
    let plain = Access::root(0o644);
    let hostname = format!("{HOSTNAME}\n");
    for (path, content) in
        [("/etc/hostname", hostname.as_str()), ("/etc/hosts", HOSTS), ("/etc/resolv.conf", RESOLVERS)]
    {
        tree.write(path, content, plain).map_err(failed(path))?;
    }
    authorities.install(&tree).map_err(|(path, error)| failed(path)(error))
}

/// A disk to make from a tree.
#[derive(Debug, Clone, Copy)]
pub struct TreeDisk<'a> {
    /// Everything below it becomes the content; owners and modes as they are.
    pub root: &'a Path,
    /// The disk image, which is not there yet. Sparse.
    pub file: &'a Path,
    /// How large a guest sees it.
    pub size: DiskSize,
    /// Identifiers of the file system are derived from this text: the same tree and text give the same ones.
    pub identity: &'a str,
    /// How many files there are; there is room for as many again, and for the usual number.
    pub files: u64,
    /// Whether it has a journal.
    pub journal: Journal,
}

impl TreeDisk<'_> {
    /// Writes the disk. After an error, or when the future is dropped, a part of it may be there.
    ///
    /// # Errors
    /// [`ImageError::Spec`] with [`super::SpecError::DiskTooSmall`] when the tree does not fit.
    pub async fn write(&self) -> Result<(), ImageError> {
        let ext4 = Ext4 {
            root: self.root,
            file: self.file,
            size: self.size,
            key: &Digest::of_bytes(self.identity.as_bytes()),
            files_min: self.files.saturating_mul(2),
            journal: self.journal,
            lock: None,
        };
        ext4.write().await
    }
}

/// Makes a disk larger that this crate made and that no guest has ever mounted.
///
/// # Errors
/// When the host's disk is full, or the program that does it is missing.
pub async fn grow_disk(file: &Path, size: DiskSize) -> Result<(), ImageError> {
    ext4::grow(file, size).await
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_guest_finds_what_it_needs_in_any_tree() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("hosts"), "host").unwrap();
        symlink(outside.join("hosts"), root.join("etc/hosts")).unwrap();
        symlink("/run/resolv.conf", root.join("etc/resolv.conf")).unwrap();
        symlink(&outside, root.join("tmp")).unwrap();
        fs::write(root.join("proc"), "a file").unwrap();
        prepare_guest_tree(&root, &Authorities::none()).unwrap();
        prepare_guest_tree(&root, &Authorities::none()).unwrap();
        for (folder, _) in FOLDERS {
            assert!(fs::symlink_metadata(root.join(&folder[1..])).unwrap().is_dir(), "{folder}");
        }
        assert_eq!(fs::metadata(root.join("tmp")).unwrap().permissions().mode() & 0o7777, 0o1777);
        for file in ["hosts", "resolv.conf", "hostname", "machine-id"] {
            assert!(fs::symlink_metadata(root.join("etc").join(file)).unwrap().is_file(), "{file}");
        }
        assert_eq!(fs::read(root.join("etc/machine-id")).unwrap(), b"");
        assert_eq!(fs::read(outside.join("hosts")).unwrap(), b"host");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("etc/hosts/sub")).unwrap();
        assert_eq!(prepare_guest_tree(dir.path(), &Authorities::none()).unwrap_err().path, "/etc/hosts");
        let other = tempfile::tempdir().unwrap();
        symlink("/nowhere", other.path().join("etc")).unwrap();
        prepare_guest_tree(other.path(), &Authorities::none()).unwrap();
        assert!(fs::symlink_metadata(other.path().join("etc")).unwrap().is_dir());
    }

    fn inspect(disk: &Path, question: &str) -> String {
        let output = Command::new("/sbin/debugfs").args(["-R", question]).arg(disk).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[tokio::test]
    async fn a_tree_becomes_a_disk_that_can_grow() {
        let dir = tempfile::tempdir().unwrap();
        let (root, file) = (dir.path().join("root"), dir.path().join("disk"));
        fs::create_dir(&root).unwrap();
        fs::write(root.join("name"), "content").unwrap();
        let size = DiskSize::from_bytes(256 << 20).unwrap();
        let (identity, journal) = ("one", Journal::Kept);
        let disk = TreeDisk { root: &root, file: &file, size, identity, files: 40_000, journal };
        disk.write().await.unwrap();
        assert_eq!(inspect(&file, "cat /name"), "content");
        let stats = inspect(&file, "stats -h");
        let inodes = stats.lines().find_map(|line| line.strip_prefix("Inode count:")).unwrap();
        assert!(inodes.trim().parse::<u64>().unwrap() >= 80_000, "{inodes}");
        grow_disk(&file, DiskSize::from_bytes(512 << 20).unwrap()).await.unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), 512 << 20);
        assert_eq!(inspect(&file, "cat /name"), "content");
        let check = Command::new("/sbin/e2fsck").args(["-fn"]).arg(&file).output().unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    }

    #[tokio::test]
    async fn a_tree_that_does_not_fit_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let (root, file) = (dir.path().join("root"), dir.path().join("disk"));
        fs::create_dir(&root).unwrap();
        fs::write(root.join("large"), vec![1; 300 << 20]).unwrap();
        let size = DiskSize::from_bytes(256 << 20).unwrap();
        let journal = Journal::None;
        let disk = TreeDisk { root: &root, file: &file, size, identity: "one", files: 1, journal };
        let error = disk.write().await.unwrap_err();
        assert!(
            matches!(error, ImageError::Spec(super::super::SpecError::DiskTooSmall { mib: 256 })),
            "{error}"
        );
    }
}
