//! TCP ports that something listens on, and who.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use guest_link::message::ListeningPort;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Ports that are reported; there are not more on two families.
const PORTS_MAX: usize = 2 * 65_536;

pub(crate) fn listening() -> io::Result<Vec<ListeningPort>> {
    let mut ports = Vec::new();
    let mut inodes: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // A kernel without IPv6 has no second file.
        let Ok(table) = fs::read_to_string(path) else { continue };
        for (port, inode) in table.lines().filter_map(parse).take(PORTS_MAX - ports.len()) {
            inodes.entry(inode).or_default().push(ports.len());
            ports.push(port);
        }
    }
    if !ports.is_empty() {
        name_owners(&mut ports, &inodes)?;
    }
    Ok(ports)
}

/// Finds the processes that hold the sockets. One that ends meanwhile stays unnamed.
fn name_owners(ports: &mut [ListeningPort], inodes: &BTreeMap<u64, Vec<usize>>) -> io::Result<()> {
    let mut unnamed = inodes.len();
    for process in fs::read_dir("/proc")? {
        let process = process?;
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        let mut program = None;
        for descriptor in descriptors.flatten() {
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let inode = target
                .to_str()
                .and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            let Some(found) = inode.and_then(|inode: u64| inodes.get(&inode)) else { continue };
            let program = program.get_or_insert_with(|| {
                fs::read_to_string(process.path().join("comm")).ok().map(|name| name.trim_end().to_owned())
            });
            for at in found {
                let port = &mut ports[*at];
                if port.pid.is_none() {
                    port.pid = Some(pid);
                    port.program.clone_from(program);
                    unnamed = unnamed.saturating_sub(1);
                }
            }
        }
        if unnamed == 0 {
            break;
        }
    }
    Ok(())
}

/// A line of `/proc/net/tcp`: the port if it listens, and the socket's inode.
fn parse(line: &str) -> Option<(ListeningPort, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let local = fields.next()?;
    let state = fields.nth(1)?;
    if state != LISTEN {
        return None;
    }
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((ListeningPort { address: parse_address(address)?, port, pid: None, program: None, uid }, inode))
}

/// Addresses are printed word by word in the machine's own byte order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (at, piece) in bytes.chunks_exact_mut(4).enumerate() {
                piece.copy_from_slice(&word(at * 8)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn finds_a_listener_and_its_owner() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).expect("loopback has a free port");
            let local = listener.local_addr().expect("a bound socket has an address");
            let ports = listening().expect("this machine has /proc");
            let found = ports.iter().find(|port| port.port == local.port() && port.address == local.ip());
            assert_eq!(found.and_then(|port| port.pid), Some(std::process::id()), "{local} in {ports:?}");
        }
    }

    #[test]
    fn garbage_is_no_port() {
        for line in
            ["", "  sl  local_address rem_address   st", "0: 0100007F:ZZZZ 0:0 0A 0 0 0 0 0 1", "0: é"]
        {
            assert_eq!(parse(line), None);
        }
    }
}
