//! What an earlier process left on the host: which wires still serve a running sandbox, and which are to be removed.

use std::{collections::BTreeSet, io, net::Ipv4Addr};

use crate::{
    address::Slot,
    namespace,
    netlink::{Netlink, NetlinkError},
    policy::{self, Policy},
    sysctl::{self, HostChange},
    tap::TAP,
    uplink::InterfaceName,
    wire::{NAMESPACE_VETH, Site, Step, WireError},
};

/// What opening the network found and did.
#[derive(Debug, Clone, Default)]
pub struct OpenReport {
    /// Claimed slots that are whole.
    pub adopted: Vec<Adopted>,
    /// Claimed slots that are not; they stay claimed until they are released.
    pub broken: Vec<Broken>,
    /// Slots nobody claimed, whose leftovers were removed.
    pub removed: Vec<Slot>,
    /// Slots nobody claimed, whose leftovers could not be removed; they are not handed out.
    pub stuck: Vec<Slot>,
    /// The interface open sandboxes leave by.
    pub uplink: Option<InterfaceName>,
    /// Settings of the host that were changed and stay so.
    pub host_changes: Vec<HostChange>,
}

/// A claimed slot whose wire is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adopted {
    /// The slot.
    pub slot: Slot,
    /// The policy found in force. One found half applied was closed.
    pub policy: Policy,
}

/// A claimed slot whose wire is not whole: its sandbox has no network any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// The slot.
    pub slot: Slot,
    /// What is wrong.
    pub damage: Damage,
}

/// What is wrong with a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// There is no namespace of its name, as after a reboot.
    NamespaceMissing,
    /// Nobody holds the tap: the VMM is gone.
    TapMissing,
    /// The veth pair is gone.
    VethMissing,
    /// The namespace has addresses of another pool than the configured one.
    ForeignAddress,
}

/// What is on the host under this instance's tag.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) leftovers: BTreeSet<Slot>,
    pub(crate) adopted: Vec<Adopted>,
    pub(crate) broken: Vec<Broken>,
}

/// Why the host could not be looked through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SurveyError {
    #[error("could not prepare the directory of network namespaces")]
    Directory(#[source] io::Error),
    #[error("could not list the network namespaces")]
    List(#[source] io::Error),
    #[error("could not list the network interfaces")]
    Netlink(#[from] NetlinkError),
    #[error("could not inspect a claimed network")]
    Inspect(#[source] WireError),
    #[error("`{interface}` already has {ip}")]
    PoolInUse { ip: Ipv4Addr, interface: String },
}

/// Looks through the host. Blocks. Changes nothing but half-applied policies, which it closes.
pub(crate) fn survey(site: &Site, claimed: &BTreeSet<Slot>) -> Result<Survey, SurveyError> {
    namespace::prepare_directory().map_err(SurveyError::Directory)?;
    let mut host = Netlink::open()?;
    let links = host.links()?;
    for address in host.addresses()? {
        let owner = links.iter().find(|link| link.index == address.index);
        if let Some(owner) = owner.filter(|_| site.pool.contains(address.ip)) {
            return Err(SurveyError::PoolInUse { ip: address.ip, interface: owner.name.clone() });
        }
    }

    let names = namespace::list().map_err(SurveyError::List)?;
    let namespaces = names.iter().filter_map(|name| site.tag.slot_of_namespace(name));
    let veths = links.iter().filter_map(|link| site.tag.slot_of_veth(&link.name));
    let found: BTreeSet<Slot> = namespaces.chain(veths).collect();

    let (mut adopted, mut broken) = (Vec::new(), Vec::new());
    for &slot in claimed {
        match on_own_thread(|| inspect(site, slot)).map_err(SurveyError::Inspect)? {
            Condition::Whole(policy) => adopted.push(Adopted { slot, policy }),
            Condition::HalfOpen => {
                on_own_thread(|| policy::apply(site, slot, Policy::Closed)).map_err(SurveyError::Inspect)?;
                adopted.push(Adopted { slot, policy: Policy::Closed });
            }
            Condition::Damaged(damage) => broken.push(Broken { slot, damage }),
        }
    }
    Ok(Survey { leftovers: found.difference(claimed).copied().collect(), adopted, broken })
}

/// Runs work that moves its thread into another namespace.
fn on_own_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let result = std::thread::scope(|scope| scope.spawn(work).join());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// How a claimed wire was found.
#[derive(Debug)]
enum Condition {
    Whole(Policy),
    /// Between the policies: the process was killed while it changed them.
    HalfOpen,
    Damaged(Damage),
}

/// Finds out how a wire is. Leaves the thread in its namespace.
fn inspect(site: &Site, slot: Slot) -> Result<Condition, WireError> {
    let name = &site.tag.namespace(slot);
    let expected = site.addresses(slot).host;
    let mut host = Netlink::open().step("reach the host", name)?;
    let host_end = host.link(&site.tag.veth(slot)).step("find the host's end", name)?;
    match namespace::enter(name) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Condition::Damaged(Damage::NamespaceMissing));
        }
        Err(error) => return Err(error).step("enter the inside", name),
    }
    let mut inside = Netlink::open().step("reach the inside", name)?;
    let Some(tap) = inside.link(TAP).step("find the tap", name)? else {
        return Ok(Condition::Damaged(Damage::TapMissing));
    };
    let (Some(host_end), Some(veth)) = (host_end, inside.link(NAMESPACE_VETH).step("find the veth", name)?)
    else {
        return Ok(Condition::Damaged(Damage::VethMissing));
    };
    let addresses = inside.addresses().step("read the addresses", name)?;
    if !addresses.iter().any(|address| address.index == tap.index && address.ip == expected) {
        return Ok(Condition::Damaged(Damage::ForeignAddress));
    }
    let forwards = sysctl::get("ipv4/conf/tap0/forwarding").step("read the forwarding", name)?;
    Ok(match (host_end.is_up, veth.is_up, forwards.as_str()) {
        (true, true, "1") => Condition::Whole(Policy::Open),
        (false, false, "0") => Condition::Whole(Policy::Closed),
        _ => Condition::HalfOpen,
    })
}
