//! Names in files: host name, machine id, SSH host keys, name servers.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use guest_link::message::HostKey;

use super::files::{Files, KEY_FILES};
use super::mapped::{MAPPED_BYTES, overwrite};
use crate::kernel::check;

/// Longest host name the kernel takes.
const HOSTNAME_BYTES_MAX: usize = 64;

/// The address under which Debian knows a host's own name.
const OWN_ADDRESS: &str = "127.0.1.1";

/// A hosts file for a guest that has none.
pub(super) const PLAIN_HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";

/// Where a guest's files come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Straight from a template: they are as they were noted before it was saved, and the disk holds no others.
    Template,
    /// They may have been changed since, and SSH installed.
    Used,
}

pub(super) fn set_hostname(files: &Files, name: &str, origin: Origin) -> io::Result<()> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if name.is_empty() || name.len() > HOSTNAME_BYTES_MAX || !name.bytes().all(usable) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the kernel reads `name.len()` bytes.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })?;
    let known = origin == Origin::Template;
    if !(known && files.hostname.store(name.as_bytes())) {
        files.hostname.overwrite(format!("{name}\n").as_bytes())?;
    }
    if known && files.hosts.store(name.as_bytes()) {
        return Ok(());
    }
    let mut hosts = vec![0; MAPPED_BYTES];
    let count = files.hosts.read(&mut hosts)?;
    if count == MAPPED_BYTES {
        return Ok(());
    }
    match renamed_hosts(&String::from_utf8_lossy(&hosts[..count]), name) {
        Some(text) => files.hosts.overwrite(text.as_bytes()),
        None => Ok(()),
    }
}

pub(super) fn set_machine_id(files: &Files, id: &[u8; 16], origin: Origin) -> io::Result<()> {
    let mut text = [b'\n'; 33];
    for (index, byte) in id.iter().enumerate() {
        text[2 * index] = hexadecimal(byte >> 4);
        text[2 * index + 1] = hexadecimal(byte & 15);
    }
    if origin == Origin::Template && files.machine_id.store(&text[..32]) {
        return Ok(());
    }
    files.machine_id.overwrite(&text)
}

fn hexadecimal(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit & 15)]
}

/// Replaces the host keys; `false` where the guest has no SSH.
pub(super) fn set_ssh_host_key(files: &Files, key: &HostKey, origin: Origin) -> io::Result<bool> {
    // In the order of `KEY_FILES`.
    let halves = [&key.private, &key.public];
    for (contents, file) in halves.into_iter().zip(&files.ssh_keys) {
        if !(origin == Origin::Template && file.store(contents)) {
            file.overwrite(contents)?;
        }
    }
    let booted_with_ssh = !files.ssh_keys.is_empty();
    if origin == Origin::Template {
        return Ok(booted_with_ssh);
    }
    let directory = Path::new("/etc/ssh");
    if !directory.is_dir() {
        return Ok(booted_with_ssh);
    }
    let kept: &[(&str, u32)] = if booted_with_ssh { &KEY_FILES } else { &[] };
    remove_host_keys(directory, kept)?;
    if !booted_with_ssh {
        for (contents, (name, mode)) in halves.into_iter().zip(KEY_FILES) {
            replace(&directory.join(name), contents, mode)?;
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

/// Says whom to ask for names, unless the file already names somebody: then it is the user's, or that of the machine this one is
/// a copy of.
pub(super) fn set_resolver(servers: &[Ipv4Addr]) -> io::Result<()> {
    let path = Path::new("/etc/resolv.conf");
    let decided = |text: String| text.lines().any(|line| line.trim_start().starts_with("nameserver"));
    if fs::read_to_string(path).is_ok_and(decided) {
        return Ok(());
    }
    write_resolver(path, servers)
}

/// The network was opened or closed: says whom to ask for names from now on, unless the file is the user's. Where there is nobody to ask, a
/// name that is looked up is not found at once, instead of after many seconds of waiting for a server that cannot be reached.
pub(crate) fn change_resolver(servers: &[Ipv4Addr], before: &[Ipv4Addr]) -> io::Result<()> {
    let path = Path::new("/etc/resolv.conf");
    let found = fs::read_to_string(path).unwrap_or_default();
    match is_ours(&found, before) {
        true => write_resolver(path, servers),
        false => Ok(()),
    }
}

/// Whether a resolver's file names nobody, or those that were told before.
fn is_ours(text: &str, before: &[Ipv4Addr]) -> bool {
    let named = text.lines().filter(|line| line.trim_start().starts_with("nameserver"));
    named.clone().next().is_none() || named.eq(before.iter().map(|server| format!("nameserver {server}")))
}

fn write_resolver(path: &Path, servers: &[Ipv4Addr]) -> io::Result<()> {
    let mut text = String::new();
    if servers.is_empty() {
        text.push_str("# The network is closed: there is nobody to ask.\n");
    }
    for server in servers {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "nameserver {server}");
    }
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

/// Where in a hosts file our own name lies, if it has a line as we write it.
pub(super) fn own_name_in_hosts(text: &[u8]) -> Option<Range<usize>> {
    let mut start = 0;
    for line in text.split(|&byte| byte == b'\n') {
        let name = line.strip_prefix(OWN_ADDRESS.as_bytes()).and_then(|rest| rest.strip_prefix(b" "));
        if let Some(name) = name.filter(|name| !name.iter().any(u8::is_ascii_whitespace)) {
            return Some(start + line.len() - name.len()..start + line.len());
        }
        start += line.len() + 1;
    }
    None
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
    fn our_name_is_found_where_we_wrote_it() {
        let check = |text: &str, expected: Option<&str>| {
            let found = own_name_in_hosts(text.as_bytes());
            assert_eq!(found.map(|place| &text[place]), expected, "{text:?}");
        };
        check("127.0.0.1 localhost\n127.0.1.1 me\n::1 six\n", Some("me"));
        check("127.0.1.1 me", Some("me"));
        check("127.0.1.1\tme\n", None);
        check("127.0.1.1 me me.lan\n", None);
        check("127.0.1.10 me\n", None);
        check("", None);
    }

    #[test]
    fn a_users_own_name_servers_are_left_alone() {
        let told = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
        assert!(is_ours("# nothing\n", &told));
        assert!(is_ours("nameserver 192.0.2.1\nnameserver 192.0.2.2\n", &told));
        assert!(!is_ours("nameserver 192.0.2.1\n", &told));
        assert!(!is_ours("nameserver 10.0.0.1\n", &told));
        assert!(!is_ours("  nameserver 10.0.0.1\n", &[]));
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
