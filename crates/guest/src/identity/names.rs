//! Names in files: host name, machine id, SSH host keys, name servers.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use guest_link::message::HostKeyFile;

use super::files::{Files, KEY_FILES, overwrite};
use crate::kernel::check;

/// Longest `/etc/hosts` that is kept up to date. A longer one is someone's own work and left alone.
const HOSTS_BYTES_MAX: usize = 4 * 1024;

/// Longest host name the kernel takes.
const HOSTNAME_BYTES_MAX: usize = 64;

/// The address under which Debian knows a host's own name.
const OWN_ADDRESS: &str = "127.0.1.1";

/// A hosts file for a guest that has none.
pub(super) const PLAIN_HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";

pub(super) fn set_hostname(files: &Files, name: &str) -> io::Result<()> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if name.is_empty() || name.len() > HOSTNAME_BYTES_MAX || !name.bytes().all(usable) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the kernel reads `name.len()` bytes.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })?;
    overwrite(&files.hostname, format!("{name}\n").as_bytes())?;
    let mut hosts = vec![0; HOSTS_BYTES_MAX];
    let count = files.hosts.read_at(&mut hosts, 0)?;
    if count == HOSTS_BYTES_MAX {
        return Ok(());
    }
    match renamed_hosts(&String::from_utf8_lossy(&hosts[..count]), name) {
        Some(text) => overwrite(&files.hosts, text.as_bytes()),
        None => Ok(()),
    }
}

pub(super) fn set_machine_id(files: &Files, id: &[u8; 16]) -> io::Result<()> {
    let mut text = String::with_capacity(33);
    for byte in id {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    overwrite(&files.machine_id, text.as_bytes())
}

/// Whether keys may lie on the disk that the guest did not boot with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeysOnDisk {
    /// No: it comes straight from a template.
    None,
    /// Yes: SSH may have been installed since.
    Possible,
}

/// Replaces the host keys; `false` where the guest has no SSH.
pub(super) fn set_ssh_host_keys(
    files: &Files,
    keys: &[HostKeyFile],
    on_disk: KeysOnDisk,
) -> io::Result<bool> {
    let known = |key: &HostKeyFile| KEY_FILES.iter().position(|(name, _)| *name == key.name);
    if keys.iter().any(|key| known(key).is_none()) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for (key, file) in keys.iter().filter_map(|key| Some((key, files.ssh_keys.get(known(key)?)?))) {
        overwrite(file, &key.contents)?;
    }
    let booted_with_ssh = !files.ssh_keys.is_empty();
    if on_disk == KeysOnDisk::None {
        return Ok(booted_with_ssh);
    }
    let directory = Path::new("/etc/ssh");
    if !directory.is_dir() {
        return Ok(booted_with_ssh);
    }
    let kept: &[(&str, u32)] = if booted_with_ssh { &KEY_FILES } else { &[] };
    remove_host_keys(directory, kept)?;
    if !booted_with_ssh {
        for (key, (_, mode)) in keys.iter().filter_map(|key| Some((key, KEY_FILES[known(key)?]))) {
            replace(&directory.join(&key.name), &key.contents, mode)?;
        }
    }
    Ok(true)
}

/// Removes host keys other than those `kept`: nobody else may know a machine's key.
pub(super) fn remove_host_keys(directory: &Path, kept: &[(&str, u32)]) -> io::Result<()> {
    for item in fs::read_dir(directory)? {
        let name = item?.file_name();
        let foreign = |name: &str| is_key_name(name) && !kept.iter().any(|(kept, _)| *kept == name);
        if name.to_str().is_some_and(foreign) {
            fs::remove_file(directory.join(&name))?;
        }
    }
    Ok(())
}

pub(super) fn set_resolver(servers: &[Ipv4Addr]) -> io::Result<()> {
    let mut text = String::new();
    for server in servers {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "nameserver {server}");
    }
    let path = Path::new("/etc/resolv.conf");
    // A link into a resolver that does not run would swallow it.
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) {
        fs::remove_file(path)?;
    }
    replace(path, text.as_bytes(), 0o644)
}

fn is_key_name(name: &str) -> bool {
    let middle = name
        .strip_suffix(".pub")
        .unwrap_or(name)
        .strip_prefix("ssh_host_")
        .and_then(|rest| rest.strip_suffix("_key"));
    middle.is_some_and(|middle| {
        !middle.is_empty() && middle.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// The hosts file with our own name in it; `None` when nothing changes.
pub(super) fn renamed_hosts(text: &str, name: &str) -> Option<String> {
    let own = |line: &str| line.split_ascii_whitespace().next() == Some(OWN_ADDRESS);
    let line = format!("{OWN_ADDRESS} {name}");
    if text.lines().any(|known| known == line) {
        return None;
    }
    let mut changed = String::with_capacity(text.len() + line.len() + 1);
    for known in text.lines().filter(|known| !own(known)) {
        changed.push_str(known);
        changed.push('\n');
    }
    changed.push_str(&line);
    changed.push('\n');
    Some(changed)
}

/// Makes the contents of the file of this name exactly `contents`.
fn replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(mode)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    overwrite(&file, contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_hosts(text: &str, expected: Option<&str>) {
        assert_eq!(renamed_hosts(text, "new").as_deref(), expected);
    }

    #[test]
    fn the_hosts_file_keeps_what_is_not_ours() {
        check_hosts("127.0.0.1 localhost\n", Some("127.0.0.1 localhost\n127.0.1.1 new\n"));
        check_hosts("127.0.1.1\told old.lan\n10.0.0.1 db\n", Some("10.0.0.1 db\n127.0.1.1 new\n"));
        check_hosts("127.0.1.1 new\n", None);
        check_hosts("", Some("127.0.1.1 new\n"));
    }

    #[test]
    fn only_host_keys_are_host_keys() {
        for (name, expected) in [
            ("ssh_host_ed25519_key", true),
            ("ssh_host_ed25519_key.pub", true),
            ("ssh_host__key", false),
            ("ssh_host_../../x_key", false),
            ("sshd_config", false),
        ] {
            assert_eq!(is_key_name(name), expected, "{name}");
        }
    }
}
