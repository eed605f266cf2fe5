//! KeyedMutex a freshly installed Debian into one that serves as a guest: nothing in it may identify one machine, because
//! every sandbox of a template starts from the same copy.

use std::io;
use std::path::Path;

use super::spec::RootfsSpec;
use super::tree::{Access, Tree};
use super::{exclude, users};

/// The name before a sandbox gets its own.
pub(super) const HOSTNAME: &str = "sandbox";

pub(super) const HOSTS: &str = "127.0.0.1\tlocalhost\n127.0.1.1\tsandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n\
                     ff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n";

/// A plain file, never a link: the guest program writes the sandbox's own servers into it.
pub(super) const RESOLVERS: &str = "# Written when the sandbox starts.\n";

/// No service manager runs in a guest, so packages installed there must not try to start their services.
const POLICY: &str = "#!/bin/sh\n# Services are started by their user, not by package scripts.\nexit 101\n";

const ENVIRONMENT: &str =
    "PATH=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\nLANG=C.UTF-8\n";

/// Settings that served the installation only; proxies of the host may be among them.
const BUILD_SETTINGS: [&str; 2] = ["/etc/apt/apt.conf.d/99mmdebstrap", "/etc/dpkg/dpkg.cfg.d/99mmdebstrap"];

pub(super) fn apply(root: &Path, spec: &RootfsSpec) -> io::Result<()> {
    exclude::remove(root, &spec.excludes, &spec.includes)?;
    let tree = Tree::open(root)?;
    remove_identity(&tree)?;
    remove_leftovers(&tree)?;

    let plain = Access::root(0o644);
    tree.write("/etc/hostname", format!("{HOSTNAME}\n"), plain)?;
    tree.write("/etc/hosts", HOSTS, plain)?;
    tree.write("/etc/resolv.conf", RESOLVERS, plain)?;
    tree.write("/etc/fstab", "/dev/vda / ext4 defaults 0 0\n", plain)?;
    tree.write("/etc/environment", ENVIRONMENT, plain)?;
    tree.write("/etc/default/locale", "LANG=C.UTF-8\n", plain)?;
    tree.write("/usr/sbin/policy-rc.d", POLICY, Access::root(0o755))?;

    for user in &spec.users {
        users::add(&tree, user)?;
    }
    for folder in &spec.dirs {
        tree.make_dir(folder.as_str(), Access::root(0o755))?;
    }
    for file in &spec.files {
        tree.write(file.path.as_str(), &file.content, Access::root(file.mode & 0o7777))?;
    }
    Ok(())
}

/// Takes away what would make all machines of a template the same one.
pub(super) fn remove_identity(tree: &Tree) -> io::Result<()> {
    // Empty, not absent: programs then know that it is not decided yet.
    tree.write("/etc/machine-id", "", Access::root(0o444))?;
    tree.remove("/var/lib/dbus/machine-id")?;
    tree.remove("/var/lib/systemd/random-seed")?;
    for name in tree.list("/etc/ssh")? {
        if name.starts_with("ssh_host_") && (name.ends_with("_key") || name.ends_with("_key.pub")) {
            tree.remove(&format!("/etc/ssh/{name}"))?;
        }
    }
    Ok(())
}

fn remove_leftovers(tree: &Tree) -> io::Result<()> {
    for path in BUILD_SETTINGS {
        tree.remove(path)?;
    }
    for folder in ["/var/cache/debconf", "/var/lib/dpkg"] {
        for name in tree.list(folder)?.iter().filter(|name| name.ends_with("-old")) {
            tree.remove(&format!("{folder}/{name}"))?;
        }
    }
    for name in ["pkgcache.bin", "srcpkgcache.bin", "archives/lock"] {
        tree.remove(&format!("/var/cache/apt/{name}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn nothing_that_identifies_a_machine_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for folder in ["etc/ssh", "etc/apt/apt.conf.d", "var/lib/dbus", "usr/sbin", "run"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["etc/ssh/ssh_host_rsa_key", "etc/ssh/ssh_host_rsa_key.pub", "etc/ssh/sshd_config"] {
            fs::write(root.join(file), "x").unwrap();
        }
        fs::write(root.join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
        fs::write(root.join("var/lib/dbus/machine-id"), "x").unwrap();
        fs::write(root.join("etc/apt/apt.conf.d/99mmdebstrap"), "Acquire::http::Proxy \"http://x\";")
            .unwrap();
        std::os::unix::fs::symlink("/run/resolv.conf", root.join("etc/resolv.conf")).unwrap();

        let spec = crate::template::base().rootfs;
        apply(root, &spec).unwrap();
        assert_eq!(fs::read(root.join("etc/machine-id")).unwrap(), b"");
        assert!(!root.join("var/lib/dbus/machine-id").exists());
        assert_eq!(Tree::open(root).unwrap().list("/etc/ssh").unwrap(), ["sshd_config"]);
        assert!(!root.join("etc/apt/apt.conf.d/99mmdebstrap").exists());
        assert!(!root.join("etc/resolv.conf").is_symlink());
        assert!(root.join("workspace").is_dir());
    }
}
