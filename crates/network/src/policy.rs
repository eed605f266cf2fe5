//! Connects a sandbox's network to the host's, and cuts it off again.
//!
//! Closed means: both ends of the veth pair are down, so there is no route on either side, and no interface of the
//! namespace forwards. Where an open sandbox may go is decided by the host's firewall table.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    address::Slot,
    namespace,
    netlink::{InterfaceAddress, LinkChange, Netlink, Route},
    sysctl,
    tap::TAP,
    wire::{NAMESPACE_VETH, Site, Step, WireError},
};

/// What a sandbox's guest can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Nothing at all.
    Closed,
    /// What lies behind the uplink; never the host, another guest or a link-local address.
    Open,
}

/// The host's end of every veth pair. Each pair is a link of its own, so all can use the same two addresses.
const HOST_END: Ipv4Addr = Ipv4Addr::new(169, 254, 201, 1);
/// The namespace's end; no interface carries it, it only names the neighbour in the host's route.
const NAMESPACE_END: Ipv4Addr = Ipv4Addr::new(169, 254, 201, 2);

/// A link that does not carry packets this long after both its ends came up never will.
const RUNNING_TIMEOUT: Duration = Duration::from_secs(5);
const RUNNING_POLL: Duration = Duration::from_micros(200);

/// Applies a policy. Blocks, and leaves the calling thread in the sandbox's namespace.
///
/// After an error on the way to `Open` apply `Closed` before trusting that nothing passes.
pub(crate) fn apply(site: &Site, slot: Slot, policy: Policy) -> Result<(), WireError> {
    let name = &site.tag.namespace(slot);
    let mut host = Netlink::open().step("reach the host", name)?;
    match policy {
        Policy::Open => {
            prepare_host_end(&site.tag.veth(slot)).step("set up the host's end", name)?;
            namespace::enter(name).step("enter the inside", name)?;
            let mut inside = Netlink::open().step("reach the inside", name)?;
            open_inside(&mut inside, site, slot, name)?;
            open_host(&mut host, site, slot, name)?;
            await_running(&mut host, &site.tag.veth(slot), name)?;
            await_running(&mut inside, NAMESPACE_VETH, name)
        }
        Policy::Closed => {
            cut_off(&mut host, site, slot, name)?;
            namespace::enter(name).step("enter the inside", name)?;
            close_inside(name)
        }
    }
}

/// Settings of the host's end, made while it is down.
fn prepare_host_end(veth: &str) -> std::io::Result<()> {
    sysctl::set_if_present(&format!("ipv6/conf/{veth}/disable_ipv6"), "1")?;
    for (setting, value) in [
        ("rp_filter", "1"),
        ("accept_redirects", "0"),
        ("send_redirects", "0"),
        ("accept_source_route", "0"),
        ("arp_ignore", "1"),
        ("log_martians", "0"),
        ("forwarding", "1"),
    ] {
        sysctl::set(&format!("ipv4/conf/{veth}/{setting}"), value)?;
    }
    Ok(())
}

fn open_inside(inside: &mut Netlink, site: &Site, slot: Slot, name: &str) -> Result<(), WireError> {
    let host_mac = site.addresses(slot).host_veth_mac();
    let index = inside.link_index(NAMESPACE_VETH).step("find the veth", name)?;
    inside.change_link(NAMESPACE_VETH, LinkChange::Up).step("start the veth", name)?;
    inside.set_neighbour(index, HOST_END, host_mac).step("set the host's hardware address", name)?;
    inside
        .set_route(&Route { destination: Ipv4Addr::UNSPECIFIED, prefix: 0, via: HOST_END, index })
        .step("set the default route", name)?;
    set_forwarding("1", name)
}

fn open_host(host: &mut Netlink, site: &Site, slot: Slot, name: &str) -> Result<(), WireError> {
    let (veth, addresses) = (&site.tag.veth(slot), site.addresses(slot));
    let index = host.link_index(veth).step("find the host's end", name)?;
    host.set_address(InterfaceAddress { index, ip: HOST_END, prefix: 32 })
        .step("set the host's address", name)?;
    host.change_link(veth, LinkChange::Up).step("start the host's end", name)?;
    host.set_neighbour(index, NAMESPACE_END, addresses.namespace_veth_mac())
        .step("set the hardware address", name)?;
    host.set_route(&Route {
        destination: addresses.network(),
        prefix: addresses.prefix,
        via: NAMESPACE_END,
        index,
    })
    .step("set the host's route", name)
}

/// Waits until a link whose ends are both up carries packets: the kernel finishes that work a moment later, and drops
/// what is sent before.
fn await_running(netlink: &mut Netlink, link: &str, name: &str) -> Result<(), WireError> {
    let start = Instant::now();
    while !netlink.link(link).step("look at the veth", name)?.is_some_and(|link| link.is_running) {
        if start.elapsed() > RUNNING_TIMEOUT {
            return Err(WireError::NotRunning { namespace: name.to_owned(), link: link.to_owned() });
        }
        std::thread::sleep(RUNNING_POLL);
    }
    Ok(())
}

/// Closes the host's end. This alone cuts the guest off; `close_inside` makes sure it stays cut.
pub(crate) fn cut_off(host: &mut Netlink, site: &Site, slot: Slot, name: &str) -> Result<(), WireError> {
    let veth = site.tag.veth(slot);
    host.change_link(&veth, LinkChange::Down).step("stop the host's end", name)?;
    sysctl::set(&format!("ipv4/conf/{veth}/forwarding"), "0").step("set up the host's end", name)
}

/// Closes the namespace the thread is in, and makes sure that it is closed.
pub(crate) fn close_inside(name: &str) -> Result<(), WireError> {
    set_forwarding("0", name)?;
    let mut inside = Netlink::open().step("reach the inside", name)?;
    inside.change_link(NAMESPACE_VETH, LinkChange::Down).step("stop the veth", name)?;
    check_closed(name)
}

/// The general switch stays off: turning it back would bring accepted redirects with it.
fn set_forwarding(value: &str, name: &str) -> Result<(), WireError> {
    for interface in [TAP, NAMESPACE_VETH] {
        sysctl::set(&format!("ipv4/conf/{interface}/forwarding"), value).step("set the forwarding", name)?;
    }
    Ok(())
}

/// Makes sure that the namespace the thread is in is closed.
pub(crate) fn check_closed(name: &str) -> Result<(), WireError> {
    let not_closed =
        |setting: String, value: String| WireError::NotClosed { namespace: name.to_owned(), setting, value };
    for setting in ["ip_forward", "conf/tap0/forwarding", "conf/veth0/forwarding"] {
        let value = sysctl::get(&format!("ipv4/{setting}")).step("read the forwarding", name)?;
        if value != "0" {
            return Err(not_closed(setting.to_owned(), value));
        }
    }
    let mut inside = Netlink::open().step("reach the inside", name)?;
    match inside.link(NAMESPACE_VETH).step("find the veth", name)? {
        Some(veth) if veth.is_up => Err(not_closed(veth.name, "up".to_owned())),
        _ => Ok(()),
    }
}
