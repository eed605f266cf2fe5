//! Namespaces, taps, addresses and the firewall around guests.
//!
//! Every sandbox has a network namespace of its own, with a tap for its guest and a veth pair to the host:
//!
//! ```text
//!  guest ── tap fd ──► tap0  (namespace ps-<tag>-<slot>)  veth0 ◄──► p<tag>v<slot>  (host) ──► nftables ──► uplink
//!  10.201.0.2          10.201.0.1                                    169.254.201.1
//! ```
//!
//! A fresh namespace is [`Policy::Closed`]: it forwards nothing, both ends of its veth are down and it has no
//! default route. [`Policy::Open`] connects it, through one firewall table per instance. Names carry the
//! [`InstanceTag`], so an instance finds and removes exactly its own leftovers after it was killed.
//!
//! A sandbox that sleeps can leave its wire at [rest](Network::rest): closed, with a new tap, under the same addresses.
//!
//! This crate does not start guests and does not decide who may go where; it only makes wires and cuts them.
#![allow(unsafe_code)]

mod address;
mod tag;

mod slots;

mod netlink;
mod sysctl;
mod tap;
mod thread;

mod namespace;
mod policy;
mod wire;

mod firewall;
mod reserve;
mod uplink;

mod network;
mod recovery;

mod neighbours;

pub use address::{AddressPool, GATEWAY, GuestAddresses, MacAddress, ParsePoolError, Slot};
pub use firewall::FirewallError;
pub use neighbours::{Conflict, Instance, Neighbours, NeighboursError, Removed, remove_remains};
pub use netlink::NetlinkError;
pub use network::{
    AcquireError, CloseError, EnterError, Lease, Network, NetworkConfig, OpenError, Release, ReleaseError,
    Rest, SetPolicyError, Stats,
};
pub use policy::Policy;
pub use recovery::{Adopted, Broken, Damage, OpenReport};
pub use sysctl::HostChange;
pub use tag::{InstanceTag, ParseTagError};
pub use thread::ThreadError;
pub use uplink::{InterfaceName, ParseInterfaceNameError, Uplink, UplinkError};
pub use wire::WireError;
