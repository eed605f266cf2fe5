//! What an instance's network is made of.

use std::path::PathBuf;

use crate::{address::AddressPool, tag::InstanceTag, uplink::Uplink};

/// Where Debian and its relatives keep the program.
pub(crate) const NFT: &str = "/usr/sbin/nft";
/// Ready wires cost a namespace each, so a few are kept; a burst beyond them makes its own.
const PREPARED_DEFAULT: u32 = 4;

/// Settings of one instance's network.
#[derive(Debug, Clone)]
pub struct NetworkConfig {
    /// Marks everything this instance makes on the host.
    pub tag: InstanceTag,
    /// The range guests get their addresses from. No host interface may have an address in it.
    pub pool: AddressPool,
    /// How open sandboxes reach the world.
    pub uplink: Uplink,
    /// How many wires are kept ready ahead of need, at most; a small pool keeps fewer.
    pub prepared: u32,
    /// Absolute path of the `nft` program.
    pub nft: PathBuf,
}

impl NetworkConfig {
    /// The usual settings: the default pool and no uplink.
    pub fn new(tag: InstanceTag) -> Self {
        Self {
            tag,
            pool: AddressPool::DEFAULT,
            uplink: Uplink::None,
            prepared: PREPARED_DEFAULT,
            nft: NFT.into(),
        }
    }
}
