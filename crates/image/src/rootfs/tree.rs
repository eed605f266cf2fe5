//! Changes files inside an unpacked root file system. A link in it that points to `/etc` means the guest's `/etc`,
//! never the host's: every path is resolved by the kernel as if the tree were the root.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

/// No file that is read here is longer.
const READ_LENGTH_MAX: u64 = 16 << 20;

/// Who owns a file and who may use it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) mode: u32,
    /// User and group, which always have the same number here.
    pub(super) owner: u32,
}

impl Access {
    pub(super) const fn root(mode: u32) -> Self {
        Self { mode, owner: 0 }
    }
}

/// An unpacked root file system. Paths given to it are absolute paths of the guest.
pub(super) struct Tree {
    root: OwnedFd,
}

impl Tree {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: rustix::fs::openat(CWD, root, flags, Mode::empty())? })
    }

    /// Makes a folder and those above it. One that exists keeps what is in it and gets this owner and mode.
    pub(super) fn make_dir(&self, path: &str, access: Access) -> io::Result<()> {
        for (end, _) in path.match_indices('/').skip(1) {
            self.make_one(&path[..end])?;
        }
        self.make_one(path)?;
        set_access(&self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY)?, access)
    }

    /// Makes sure that a folder is there, in one that is. What else has its name is replaced; one that is there stays as it is.
    pub(super) fn ensure_dir(&self, path: &str, mode: u32) -> io::Result<()> {
        let (folder, name) = self.parent(path)?;
        match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => return Ok(()),
            Ok(_) => rustix::fs::unlinkat(&folder, name, AtFlags::empty())?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::fs::mkdirat(&folder, name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        set_access(&rustix::fs::openat(folder, name, flags, Mode::empty())?, Access::root(mode))
    }

    /// Writes a file, making the folders above it. Whatever had that name, a link included, is replaced.
    pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>, access: Access) -> io::Result<()> {
        for (end, _) in path.match_indices('/').skip(1) {
            self.make_one(&path[..end])?;
        }
        self.remove(path)?;
        let (folder, name) = self.parent(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(content.as_ref())?;
        set_access(&file, access)
    }

    /// Adds a line to a file, which keeps its owner and mode. A file that is not there is left so.
    pub(super) fn append_line(&self, path: &str, line: &str) -> io::Result<()> {
        let Some(content) = self.read(path)? else { return Ok(()) };
        let mut file = File::from(self.resolve(path, OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK)?);
        if content.last().is_some_and(|last| *last != b'\n') {
            file.write_all(b"\n")?;
        }
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// The content of a file, or `None` if it is not there.
    pub(super) fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => File::from(file?),
        };
        let mut content = Vec::new();
        file.take(READ_LENGTH_MAX).read_to_end(&mut content)?;
        Ok(Some(content))
    }

    /// The names in a folder, sorted; none if the folder is not there.
    pub(super) fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let folder = match self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            folder => folder?,
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes a symbolic link. What has that name is replaced.
    pub(super) fn link(&self, path: &str, target: &str) -> io::Result<()> {
        self.remove(path)?;
        let (folder, name) = self.parent(path)?;
        Ok(rustix::fs::symlinkat(target, folder, name)?)
    }

    /// Removes a file or link; one that is not there is fine.
    pub(super) fn remove(&self, path: &str) -> io::Result<()> {
        let (folder, name) = match self.parent(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            parent => parent?,
        };
        match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn make_one(&self, path: &str) -> io::Result<()> {
        let (folder, name) = self.parent(path)?;
        let made = rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(0o755));
        match made {
            // Whether it is a folder, the next step that goes through it will tell.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn parent<'a>(&self, path: &'a str) -> io::Result<(OwnedFd, &'a str)> {
        let (folder, name) = path
            .rsplit_once('/')
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a path of the guest is absolute"))?;
        let folder = if folder.is_empty() { "/" } else { folder };
        Ok((self.resolve(folder, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    fn resolve(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), inside)?)
    }
}

fn set_access(file: impl std::os::fd::AsFd, access: Access) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(access.owner), Gid::from_raw(access.owner));
    rustix::fs::fchown(&file, Some(user), Some(group))?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(access.mode))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn links_never_lead_out_of_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("file"), "host").unwrap();
        symlink(outside.join("file"), root.join("etc/resolv.conf")).unwrap();
        symlink(&outside, root.join("escape")).unwrap();
        symlink("../..", root.join("etc/up")).unwrap();
        let tree = Tree::open(&root).unwrap();

        tree.write("/etc/resolv.conf", "guest", Access::root(0o644)).unwrap();
        assert!(!root.join("etc/resolv.conf").is_symlink());
        assert!(tree.write("/escape/file", "guest", Access::root(0o644)).is_err());
        tree.write("/etc/up/top", "guest", Access::root(0o600)).unwrap();
        assert!(root.join("top").exists());
        assert_eq!(tree.read("/escape/file").unwrap(), None);
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"host");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn files_and_folders_get_the_access_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        tree.make_dir("/home/user/x", Access { mode: 0o750, owner: 1000 }).unwrap();
        let made = fs::metadata(dir.path().join("home/user/x")).unwrap();
        assert_eq!((made.mode() & 0o7777, made.uid(), made.gid()), (0o750, 1000, 1000));
        assert_eq!(fs::metadata(dir.path().join("home")).unwrap().uid(), 0);
        tree.write("/a/b", "1", Access::root(0o440)).unwrap();
        tree.write("/a/b", "2", Access::root(0o755)).unwrap();
        assert_eq!(tree.read("/a/b").unwrap().unwrap(), b"2");
        assert_eq!(tree.list("/a").unwrap(), ["b"]);
        assert!(tree.list("/absent").unwrap().is_empty());
        tree.remove("/a/b").unwrap();
        tree.remove("/a/b").unwrap();
        tree.remove("/absent/b").unwrap();
        assert_eq!(tree.read("/a/b").unwrap(), None);
    }
}
