//! One sandbox's network: namespace, tap and veth pair. Makes it closed, renews it and removes it.
//!
//! Everything here blocks and moves its thread between namespaces: call it only on a thread of its own
//! (`thread::run`).

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use crate::{
    address::{AddressPool, GATEWAY, GuestAddresses, Slot},
    namespace,
    netlink::{InterfaceAddress, LinkChange, Netlink, NetlinkError, VethPair},
    policy, sysctl,
    tag::InstanceTag,
    tap,
};

/// Name of the veth's end inside every namespace.
pub(crate) const NAMESPACE_VETH: &str = "veth0";

/// What names and numbers an instance's wires.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) tag: InstanceTag,
    pub(crate) pool: AddressPool,
}

impl Site {
    /// Addresses of a slot that was taken from this site's pool.
    pub(crate) fn addresses(&self, slot: Slot) -> GuestAddresses {
        self.pool.addresses(slot).expect("slots in use were checked against the pool")
    }
}

/// A wire that waits for its guest. The tap is there as long as the descriptor is open.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) slot: Slot,
    pub(crate) tap: OwnedFd,
}

/// Why a sandbox's network could not be made, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// A system call failed.
    #[error("could not {step} of network namespace `{namespace}`")]
    System {
        /// What was being done.
        step: &'static str,
        /// To which namespace.
        namespace: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A change to the network configuration failed.
    #[error("could not {step} of network namespace `{namespace}`")]
    Netlink {
        /// What was being done.
        step: &'static str,
        /// To which namespace.
        namespace: String,
        /// Why not.
        #[source]
        source: NetlinkError,
    },
    /// The veth pair was connected but carries nothing.
    #[error("link `{link}` of network namespace `{namespace}` did not start")]
    NotRunning {
        /// Which namespace.
        namespace: String,
        /// Which end.
        link: String,
    },
    /// The namespace did not take a setting that keeps it closed.
    #[error("`{setting}` of network namespace `{namespace}` is {value} after it was closed")]
    NotClosed {
        /// Which namespace.
        namespace: String,
        /// Which setting.
        setting: String,
        /// What it is.
        value: String,
    },
}

/// Adds to an error what was being done and to which namespace.
pub(crate) trait Step<T> {
    fn step(self, step: &'static str, namespace: &str) -> Result<T, WireError>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &'static str, namespace: &str) -> Result<T, WireError> {
        self.map_err(|source| WireError::System { step, namespace: namespace.to_owned(), source })
    }
}

impl<T> Step<T> for Result<T, NetlinkError> {
    fn step(self, step: &'static str, namespace: &str) -> Result<T, WireError> {
        self.map_err(|source| WireError::Netlink { step, namespace: namespace.to_owned(), source })
    }
}

/// Makes a closed wire. After an error some of it may be left: `remove` it.
pub(crate) fn make(site: &Site, slot: Slot) -> Result<Wire, WireError> {
    let name = &site.tag.namespace(slot);
    let addresses = site.addresses(slot);
    let mut host = Netlink::open().step("reach the host", name)?;

    let handle = namespace::leave_host().step("make the namespace", name)?;
    harden().step("set up the kernel settings", name)?;
    let mut inside = Netlink::open().step("reach the inside", name)?;
    let tap = add_tap(&mut inside, &addresses, name)?;
    host.add_veth(&VethPair {
        name: &site.tag.veth(slot),
        mac: addresses.host_veth_mac(),
        peer_name: NAMESPACE_VETH,
        peer_mac: addresses.namespace_veth_mac(),
        peer_namespace: handle.as_fd(),
    })
    .step("make the veth pair", name)?;
    policy::check_closed(name)?;

    // The name comes last: a process killed before this leaves nothing at all, because the namespace dies with the
    // thread and takes both ends of the veth pair along.
    namespace::publish(name).step("publish the name", name)?;
    Ok(Wire { slot, tap })
}

/// Closes a wire and gives it a new tap, as `make` does. After an error it is not to be used: `remove` it.
///
/// What is left of the earlier tap goes, with every frame that waits in it, also if a process still holds it.
pub(crate) fn renew(site: &Site, slot: Slot) -> Result<Wire, WireError> {
    let name = &site.tag.namespace(slot);
    let mut host = Netlink::open().step("reach the host", name)?;
    policy::cut_off(&mut host, site, slot, name)?;
    namespace::enter(name).step("enter the inside", name)?;
    let mut inside = Netlink::open().step("reach the inside", name)?;
    inside.remove_link(tap::TAP).step("remove the earlier tap", name)?;
    let tap = add_tap(&mut inside, &site.addresses(slot), name)?;
    policy::close_inside(name)?;
    Ok(Wire { slot, tap })
}

/// Makes the tap in the namespace the thread is in, with all that a guest needs on the other side.
fn add_tap(inside: &mut Netlink, addresses: &GuestAddresses, name: &str) -> Result<OwnedFd, WireError> {
    let tap = tap::open().step("make the tap", name)?;
    let index = inside.link_index(tap::TAP).step("find the tap", name)?;
    inside.change_link(tap::TAP, LinkChange::JoinWire(addresses.gateway_mac)).step("start the tap", name)?;
    for (ip, prefix) in [(addresses.host, addresses.prefix), (GATEWAY, 32)] {
        inside.set_address(InterfaceAddress { index, ip, prefix }).step("set the host's addresses", name)?;
    }
    inside
        .set_neighbour(index, addresses.ip, addresses.mac)
        .step("set the guest's hardware address", name)?;
    Ok(tap)
}

/// Settings of the new namespace the thread is in, made before it has any interface.
fn harden() -> io::Result<()> {
    // A new namespace starts with the host's settings, which may be those of a router.
    sysctl::set("ipv4/ip_forward", "0")?;
    sysctl::set("ipv4/icmp_echo_ignore_all", "1")?;
    for scope in ["all", "default"] {
        for (setting, value) in [
            ("forwarding", "0"),
            ("rp_filter", "1"),
            ("accept_redirects", "0"),
            ("secure_redirects", "0"),
            ("send_redirects", "0"),
            ("accept_source_route", "0"),
            ("route_localnet", "0"),
            ("proxy_arp", "0"),
            ("arp_ignore", "1"),
            ("arp_announce", "2"),
            // A guest must not fill the host's log.
            ("log_martians", "0"),
        ] {
            sysctl::set(&format!("ipv4/conf/{scope}/{setting}"), value)?;
        }
        sysctl::set_if_present(&format!("ipv6/conf/{scope}/disable_ipv6"), "1")?;
    }
    Ok(())
}

/// Removes a wire, whatever is left of it. Safe to repeat.
///
/// Interfaces go first, so that whoever still holds the tap or the namespace holds something dead.
pub(crate) fn remove(site: &Site, slot: Slot) -> Result<(), WireError> {
    let name = &site.tag.namespace(slot);
    let mut host = Netlink::open().step("reach the host", name)?;
    match namespace::enter(name) {
        Ok(()) => {
            let mut inside = Netlink::open().step("reach the inside", name)?;
            inside.remove_wire().step("remove the tap and the veth pair", name)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).step("enter the inside", name),
    }
    // Gone already, unless the namespace was.
    host.remove_link(&site.tag.veth(slot)).step("remove the veth pair", name)?;
    namespace::remove(name).step("remove the name", name)
}
