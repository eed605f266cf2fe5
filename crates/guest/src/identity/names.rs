//! Names in files: host name, machine id, SSH host keys, name servers. Written in place where the length rarely changes, which
//! is the cheapest change a file system knows.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use guest_link::message::HostKeyFile;

use crate::kernel::check;

/// Longest `/etc/hosts` that is kept up to date. A longer one is someone's own work and left alone.
const HOSTS_BYTES_MAX: u64 = 64 * 1024;

/// Longest host name the kernel takes.
const HOSTNAME_BYTES_MAX: usize = 64;

/// The address under which Debian knows a host's own name.
const OWN_ADDRESS: &str = "127.0.1.1";

pub(super) fn set_hostname(name: &str) -> io::Result<()> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if name.is_empty() || name.len() > HOSTNAME_BYTES_MAX || !name.bytes().all(usable) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the kernel reads `name.len()` bytes.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })?;
    overwrite(Path::new("/etc/hostname"), format!("{name}\n").as_bytes(), 0o644)?;
    let hosts = Path::new("/etc/hosts");
    match read(hosts)? {
        None => overwrite(
            hosts,
            format!("127.0.0.1 localhost\n::1 localhost\n{OWN_ADDRESS} {name}\n").as_bytes(),
            0o644,
        ),
        Some(text) => match renamed_hosts(&text, name) {
            Some(text) => overwrite(hosts, text.as_bytes(), 0o644),
            None => Ok(()),
        },
    }
}

pub(super) fn set_machine_id(id: &[u8; 16]) -> io::Result<()> {
    let mut text = String::with_capacity(33);
    for byte in id {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    overwrite(Path::new("/etc/machine-id"), text.as_bytes(), 0o444)
}

/// Replaces all host keys; `false` where the guest has no SSH.
pub(super) fn set_ssh_host_keys(keys: &[HostKeyFile]) -> io::Result<bool> {
    let directory = Path::new("/etc/ssh");
    let present = match fs::read_dir(directory) {
        Ok(present) => present,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !keys.iter().all(|key| is_key_name(&key.name)) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for item in present {
        let name = item?.file_name();
        let old =
            name.to_str().is_some_and(|name| is_key_name(name) && !keys.iter().any(|key| key.name == name));
        if old {
            fs::remove_file(directory.join(&name))?;
        }
    }
    for key in keys {
        let mode = if key.name.ends_with(".pub") { 0o644 } else { 0o600 };
        overwrite(&directory.join(&key.name), &key.contents, mode)?;
    }
    Ok(true)
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
    overwrite(path, text.as_bytes(), 0o644)
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
fn renamed_hosts(text: &str, name: &str) -> Option<String> {
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

fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::with_capacity(512);
    file.take(HOSTS_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Makes a file's contents exactly `contents`, touching as little as possible.
fn overwrite(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(mode)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    let metadata = file.metadata()?;
    file.write_all_at(contents, 0)?;
    if metadata.len() > contents.len() as u64 {
        file.set_len(contents.len() as u64)?;
    }
    if metadata.permissions().mode() & 0o7777 != mode {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    Ok(())
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
