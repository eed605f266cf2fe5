//! What makes a restored guest a machine of its own. On the path of every create: one message there, one back.

use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::bytes;

/// Random bytes that a guest is given: twice what its kernel's generator holds.
pub const ENTROPY_BYTES: usize = 64;

/// Who a guest is from now on.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Long-lived identity, for a guest that must differ from the one it was copied from; absent when a machine wakes as itself.
    pub fresh: Option<FreshIdentity>,
    /// Host name, a DNS label. Set together with what is `fresh`: a machine that wakes keeps the name it has.
    pub hostname: String,
    /// Fresh random bytes for the guest's kernel.
    #[serde(with = "bytes")]
    pub entropy: [u8; ENTROPY_BYTES],
    /// The time, in nanoseconds of Unix time.
    pub unix_time_ns: u64,
    /// The network, if the guest has one. Absent, too, when a machine wakes with the one it had: then only connections are reset.
    pub network: Option<Network>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Entropy and private keys stay out of logs.
        f.debug_struct("Identity")
            .field("fresh", &self.fresh.is_some())
            .field("hostname", &self.hostname)
            .field("unix_time_ns", &self.unix_time_ns)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

/// What must never be shared by two machines.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreshIdentity {
    /// For `/etc/machine-id`.
    #[serde(with = "bytes")]
    pub machine_id: [u8; 16],
    /// Replaces every `/etc/ssh/ssh_host_*`, where the guest has `/etc/ssh`.
    pub ssh_host_key: HostKey,
}

/// An SSH host key (Ed25519), as the two files that `sshd` reads.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostKey {
    /// Contents of `ssh_host_ed25519_key`.
    #[serde(with = "bytes")]
    pub private: Vec<u8>,
    /// Contents of `ssh_host_ed25519_key.pub`, which everyone may read.
    #[serde(with = "bytes")]
    pub public: Vec<u8>,
}

/// Lengths of the two files of a usual host key, private and public: Ed25519, with `root@sandbox` as its comment. A guest takes others
/// too, but these at less cost.
pub const USUAL_KEY_BYTES: [usize; 2] = [399, 94];

/// Length of a usual host name: `sandbox-` and six letters. A guest takes others too, but these at less cost.
pub const USUAL_HOST_NAME_BYTES: usize = 14;

/// Default gateway of every guest. It is the same everywhere, so that the route to it is made once, when a guest boots.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// The guest's one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Whether the guest may have had another address before.
    pub past: NetworkPast,
    /// Its hardware address.
    #[serde(with = "bytes")]
    pub mac: [u8; 6],
    /// Its address. There is nobody else in its network, so it has no neighbours but [`GATEWAY`].
    pub address: Ipv4Addr,
    /// For `/etc/resolv.conf`, which is left alone when this is empty or a server is named there.
    pub dns: Vec<Ipv4Addr>,
}

/// What a guest may remember of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkPast {
    /// It never had an address, so no connection either: it comes straight from a template.
    None,
    /// It may have addresses and connections, all of which are void now.
    Possible,
}

/// What the guest did. Every step that the request asked for was done, or there is no confirmation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityConfirmed {
    /// The guest's clock after it was set.
    pub unix_time_ns: u64,
    /// Drawn from the kernel's generator after it was reseeded. Equal samples from two guests mean the reseeding failed.
    #[serde(with = "bytes")]
    pub random_sample: [u8; 16],
    /// Stale TCP connections that were reset.
    pub connections_reset: u32,
    /// Whether SSH host keys were replaced; `false` where the guest has no `/etc/ssh`.
    pub ssh_host_keys: bool,
}

/// A step of becoming a machine of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdentityStep {
    /// Adding entropy and reseeding.
    Entropy,
    /// Setting the clock.
    Clock,
    /// Host name, `/etc/hostname`, `/etc/hosts`.
    Hostname,
    /// `/etc/machine-id`.
    MachineId,
    /// `/etc/ssh/ssh_host_*`.
    SshHostKeys,
    /// Finding the interface and removing its old addresses.
    Interface,
    /// Resetting stale TCP connections.
    Connections,
    /// Hardware address, address and route.
    Address,
    /// `/etc/resolv.conf`.
    Resolver,
}

impl fmt::Display for IdentityStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdentityStep::Entropy => "entropy",
            IdentityStep::Clock => "clock",
            IdentityStep::Hostname => "hostname",
            IdentityStep::MachineId => "machine-id",
            IdentityStep::SshHostKeys => "ssh-host-keys",
            IdentityStep::Interface => "interface",
            IdentityStep::Connections => "connections",
            IdentityStep::Address => "address",
            IdentityStep::Resolver => "resolver",
        })
    }
}
