//! What an identity is written to, opened at boot and so part of every snapshot.
//!
//! A restored guest runs on an emulator or an engine that has forgotten all it ever translated or cached: every kernel function
//! called for the first time costs again. Opening files by name and changing them on a journalled disk calls thousands. So the
//! small files that make a machine somebody live in memory, bound over their names in `/etc`, stay open and are mapped: what
//! is as long as its predecessor is stored without any system call (`mapped.rs`).

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use guest_link::message::{USUAL_HOST_NAME_BYTES, USUAL_KEY_BYTES};

use super::connections::Connections;
use super::mapped::Mapped;
use super::names;
use super::netlink::{Interface, Netlink};
use crate::kernel::check;

/// Where the files are.
const DIRECTORY: &str = "/run/pandastack";
/// The interface every machine has.
const INTERFACE: &str = "eth0";
/// As long as the name of a sandbox that was given none, so that the first real name changes no file's length.
const PLACEHOLDER_NAME: &str = "template-guest";
const _: () = assert!(PLACEHOLDER_NAME.len() == USUAL_HOST_NAME_BYTES);
const PLACEHOLDER_MACHINE_ID: &str = "00000000000000000000000000000000\n";
pub(super) const KEY_FILES: [(&str, u32); 2] =
    [("ssh_host_ed25519_key", 0o600), ("ssh_host_ed25519_key.pub", 0o644)];

/// Everything an identity is written to.
pub(super) struct Files {
    pub(super) hostname: Mapped,
    pub(super) hosts: Mapped,
    pub(super) machine_id: Mapped,
    /// In the order of [`KEY_FILES`]; none where the guest has no SSH.
    pub(super) ssh_keys: Vec<Mapped>,
    pub(super) random: File,
    /// `None` where the kernel does not tell.
    connections: Option<Connections>,
    /// `None` where the machine has no network card.
    pub(super) interface: Option<Interface>,
}

impl Files {
    /// Resets connections whose other ends are not this machine's any more; tells how many there were.
    pub(super) fn reset_connections(&self) -> io::Result<u32> {
        match &self.connections {
            Some(connections) => connections.reset_stale(),
            // Says why not, or can by now.
            None => Connections::open()?.reset_stale(),
        }
    }
}

static FILES: OnceLock<Files> = OnceLock::new();

/// The files, if this program booted the machine.
pub(super) fn files() -> io::Result<&'static Files> {
    FILES.get().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Makes and opens everything. Once, at boot.
pub(crate) fn prepare() -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(DIRECTORY)?;
    let etc = Path::new("/etc");
    // A disk may begin with nothing on it.
    let _ = DirBuilder::new().mode(0o755).create(etc);
    let hosts = fs::read_to_string(etc.join("hosts")).unwrap_or_else(|_| names::PLAIN_HOSTS.to_owned());
    let hosts = names::renamed_hosts(&hosts, PLACEHOLDER_NAME).unwrap_or(hosts);
    let ssh = etc.join("ssh");
    let mut ssh_keys = Vec::new();
    if ssh.is_dir() {
        names::remove_host_keys(&ssh, &[])?;
        for ((name, mode), bytes) in KEY_FILES.into_iter().zip(USUAL_KEY_BYTES) {
            ssh_keys.push(in_memory(&ssh.join(name), &vec![b'\n'; bytes], mode)?);
        }
    }
    let files = Files {
        hostname: in_memory(&etc.join("hostname"), format!("{PLACEHOLDER_NAME}\n").as_bytes(), 0o644)?,
        hosts: in_memory(&etc.join("hosts"), hosts.as_bytes(), 0o644)?,
        machine_id: in_memory(&etc.join("machine-id"), PLACEHOLDER_MACHINE_ID.as_bytes(), 0o444)?,
        ssh_keys,
        random: OpenOptions::new().write(true).open("/dev/urandom")?,
        connections: Connections::open().ok(),
        interface: raise_interface()?,
    };
    FILES.set(files).map_err(|_| io::Error::from_raw_os_error(libc::EALREADY))
}

/// Notes where values can be stored, because a snapshot is about to be taken. What changes the files afterwards has not been
/// noted, so only a guest that comes straight from a template may rely on it.
pub(crate) fn note_places() {
    let Ok(files) = files() else { return };
    if let Some(interface) = &files.interface {
        interface.make_route();
    }
    let whole_line = |text: &[u8]| Some(0..text.len().checked_sub(1)?);
    files.hostname.note(whole_line);
    files.machine_id.note(whole_line);
    files.hosts.note(names::own_name_in_hosts);
    for key in &files.ssh_keys {
        key.note(|text| Some(0..text.len()));
    }
}

/// A file in memory, seen under the name of one in `/etc`.
fn in_memory(place: &Path, contents: &[u8], mode: u32) -> io::Result<Mapped> {
    let name = place.file_name().unwrap_or_default();
    let source = Path::new(DIRECTORY).join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&source)?;
    file.write_all_at(contents, 0)?;
    match fs::symlink_metadata(place) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => fs::remove_file(place)?,
        Err(_) => {}
    }
    // What the name is bound over; it only has to exist.
    OpenOptions::new().append(true).create(true).mode(mode).open(place)?;
    let path = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).map_err(io::Error::other);
    let (source, target) = (path(&source)?, path(place)?);
    // SAFETY: both paths are C strings; a bind mount needs no more.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), ptr::null(), libc::MS_BIND, ptr::null()) })?;
    Mapped::new(file)
}

/// The network card, up and without an address: raising it fills its queues, which is too much for the path of a create.
fn raise_interface() -> io::Result<Option<Interface>> {
    if !Path::new("/sys/class/net").join(INTERFACE).exists() {
        return Ok(None);
    }
    // The network around a guest is IPv4; without this every change of the card's address starts IPv6's machinery.
    let ipv6 = Path::new("/proc/sys/net/ipv6/conf").join(INTERFACE).join("disable_ipv6");
    if ipv6.exists() {
        fs::write(ipv6, "1")?;
    }
    let mut interface = Interface::find(INTERFACE, Netlink::open(libc::NETLINK_ROUTE)?)?;
    interface.raise()?;
    interface.make_route();
    Ok(Some(interface))
}
