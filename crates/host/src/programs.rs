//! Where other programs are found.

use std::path::{Path, PathBuf};

/// Where programs are looked for, and those the operator named.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Directories searched in order, as `PATH` would be.
    pub search: Vec<PathBuf>,
    /// QEMU to use instead of the first `qemu-system-x86_64` found.
    pub qemu: Option<PathBuf>,
    /// Firecracker to use instead of the first `firecracker` found.
    pub firecracker: Option<PathBuf>,
    /// Firecracker to use when none is named and none is found.
    pub firecracker_installed: Option<PathBuf>,
}

impl Default for Programs {
    /// The directories Linux distributions use; nothing named by the operator.
    fn default() -> Programs {
        let search = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        Programs {
            search: search.iter().map(PathBuf::from).collect(),
            qemu: None,
            firecracker: None,
            firecracker_installed: None,
        }
    }
}

impl Programs {
    /// The first executable file called `name`.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.search.iter().map(|directory| directory.join(name)).find(|path| is_executable(path))
    }

    /// The QEMU to use, if there is one.
    pub fn qemu(&self) -> Option<PathBuf> {
        named_or_found(self, self.qemu.as_deref(), "qemu-system-x86_64")
    }

    /// The Firecracker to use, if there is one.
    pub fn firecracker(&self) -> Option<PathBuf> {
        named_or_found(self, self.firecracker.as_deref(), "firecracker").or_else(|| {
            // One that was named and is not there is a mistake to be told of, not to be mended by another.
            let installed = self.firecracker_installed.as_ref().filter(|_| self.firecracker.is_none());
            installed.filter(|path| is_executable(path)).cloned()
        })
    }
}

fn named_or_found(programs: &Programs, named: Option<&Path>, name: &str) -> Option<PathBuf> {
    match named {
        Some(path) => is_executable(path).then(|| path.to_owned()),
        None => programs.find(name),
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.is_absolute()
        && path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_files_on_absolute_paths_are_programs() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("firecracker"), "not executable").unwrap();
        std::fs::create_dir(directory.path().join("qemu-system-x86_64")).unwrap();
        let programs = Programs { search: vec![directory.path().to_owned()], ..Programs::default() };
        assert_eq!(programs.firecracker(), None);
        assert_eq!(programs.qemu(), None);
        assert_eq!(Programs { qemu: Some("bin/sh".into()), ..programs }.qemu(), None);
        assert!(Programs::default().find("sh").is_some());
    }

    #[test]
    fn what_was_installed_comes_last() {
        let sh = Programs::default().find("sh").unwrap();
        let bare =
            Programs { search: Vec::new(), firecracker_installed: Some(sh.clone()), ..Programs::default() };
        assert_eq!(bare.firecracker(), Some(sh.clone()));
        assert_eq!(Programs { firecracker: Some("/nonexistent".into()), ..bare.clone() }.firecracker(), None);
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&sh, directory.path().join("firecracker")).unwrap();
        let found = Programs { search: vec![directory.path().to_owned()], ..bare };
        assert_eq!(found.firecracker(), Some(directory.path().join("firecracker")));
    }
}
