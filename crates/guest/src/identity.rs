//! Becoming a machine of its own after a restore. Runs on the event loop, on the path of every create: system calls only, in an
//! order in which no stale connection can send a byte from the new address.

mod connections;
mod files;
mod mapped;
mod names;
pub(crate) mod netlink;
mod random;

use std::io;

use guest_link::message::{Failure, Identity, IdentityConfirmed, IdentityStep, NetworkPast};

pub(crate) use self::files::{note_places, prepare};
use self::names::Origin;
pub(crate) use self::names::change_resolver;
use crate::kernel::{self, check, errno};

/// Does every step or tells which one failed.
pub(crate) fn assume(identity: &Identity) -> Result<IdentityConfirmed, Failure> {
    let failed =
        |step: IdentityStep| move |error: io::Error| Failure::Identity { step, errno: errno(&error) };
    let files = files::files().map_err(failed(IdentityStep::Entropy))?;
    random::reseed(&files.random, &identity.entropy).map_err(failed(IdentityStep::Entropy))?;
    set_clock(identity.unix_time_ns).map_err(failed(IdentityStep::Clock))?;
    let mut ssh_host_keys = false;
    // A machine that wakes as itself keeps its names.
    if let Some(fresh) = &identity.fresh {
        let template = identity.network.as_ref().is_some_and(|network| network.past == NetworkPast::None);
        let origin = if template { Origin::Template } else { Origin::Used };
        names::set_hostname(files, &identity.hostname, origin).map_err(failed(IdentityStep::Hostname))?;
        names::set_machine_id(files, &fresh.machine_id, origin).map_err(failed(IdentityStep::MachineId))?;
        ssh_host_keys = names::set_ssh_host_key(files, &fresh.ssh_host_key, origin)
            .map_err(failed(IdentityStep::SshHostKeys))?;
    }
    let mut connections_reset = 0;
    if identity.network.is_none() && identity.fresh.is_none() && files.interface.is_some() {
        // It wakes where it fell asleep. Its address is right, but the other ends of its connections have gone on.
        connections_reset = files.reset_connections().map_err(failed(IdentityStep::Connections))?;
    }
    if let Some(network) = &identity.network {
        let missing = || io::Error::from_raw_os_error(libc::ENODEV);
        let interface =
            files.interface.as_ref().ok_or_else(missing).map_err(failed(IdentityStep::Interface))?;
        if network.past == NetworkPast::Possible {
            interface.remove_addresses().map_err(failed(IdentityStep::Interface))?;
            connections_reset = files.reset_connections().map_err(failed(IdentityStep::Connections))?;
        }
        interface.configure(network).map_err(failed(IdentityStep::Address))?;
        if !network.dns.is_empty() {
            names::set_resolver(&network.dns).map_err(failed(IdentityStep::Resolver))?;
        }
    }
    let random_sample = random::sample().map_err(failed(IdentityStep::Entropy))?;
    Ok(IdentityConfirmed { unix_time_ns: kernel::unix_ns(), random_sample, connections_reset, ssh_host_keys })
}

fn set_clock(unix_time_ns: u64) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: (unix_time_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (unix_time_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the kernel reads one `timespec`.
    check(unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) })?;
    Ok(())
}
