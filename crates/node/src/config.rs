//! Settings of a node.

use std::path::PathBuf;
use std::time::Duration;

use image::{Authorities, KernelSource};
use network::{AddressPool, Uplink};
use storage::PoolSize;

use crate::archive::ArchiveConfig;
use crate::name_servers::NameServers;

/// How many machine processes without a guest are kept ready. As many as were asked for at once lately, within these bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrestartedVmms {
    /// For each template in use, at least. Where this is 0 there are none at all.
    pub least: usize,
    /// Of all templates together, unless that is less than the least of each.
    pub most: usize,
}

impl PrestartedVmms {
    /// Always so many for each template in use.
    pub fn always(count: usize) -> Self {
        Self { least: count, most: count }
    }
}

impl Default for PrestartedVmms {
    /// As many as take a thirty-second part of the host's memory.
    fn default() -> Self {
        /// What one takes, more or less, until it has a guest.
        const BYTES: u64 = 12 << 20;
        const MOST: u64 = 64;
        let host = rustix::system::sysinfo();
        let memory = u64::from(host.mem_unit) * host.totalram as u64;
        Self { least: 2, most: (memory / 32 / BYTES).min(MOST) as usize }
    }
}

/// What is done when another instance, or the host itself, has addresses of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressChoice {
    /// The range was named: this one or none.
    Fixed,
    /// The range of the last start, else this one, else a free one.
    Preferred,
}

/// Settings of a node. [`NodeConfig::new`] gives the usual ones.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Everything the node keeps is in this directory.
    pub data_dir: PathBuf,
    /// How large the pool image may grow where one is needed.
    pub pool_size: PoolSize,
    /// Where guests get their addresses from.
    pub addresses: AddressPool,
    /// Whether they may come from elsewhere.
    pub address_choice: AddressChoice,
    /// How guests with an open network reach the world.
    pub uplink: Uplink,
    /// What guests with an open network are told to ask for names.
    pub name_servers: NameServers,
    /// Where certificate authorities are that guests trust besides the public ones. `None`: they trust the public ones only.
    pub authorities: Option<PathBuf>,
    /// Where the snapshots that users keep lie besides this host. `None`: nowhere.
    pub archive: Option<ArchiveConfig>,
    /// The kernel that guests boot. Templates baked with another one are baked anew.
    pub kernel: KernelSource,
    /// Networks made ahead of need.
    pub prestarted_networks: u32,
    /// Machine processes without a guest kept ready.
    pub prestarted_vmms: PrestartedVmms,
    /// Restores under way at once; more wait their turn. Beyond the number of cores they only slow each other down.
    pub concurrent_restores: usize,
    /// How long a restored guest may take to confirm its identity.
    pub guest_patience: Duration,
    /// How long a guest may take to boot.
    pub boot_patience: Duration,
}

impl NodeConfig {
    /// The usual settings for a data directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            data_dir: data_dir.into(),
            pool_size: PoolSize::default(),
            addresses: AddressPool::DEFAULT,
            address_choice: AddressChoice::Fixed,
            uplink: Uplink::None,
            name_servers: NameServers::Host,
            authorities: Some(Authorities::HOST_FOLDER.into()),
            archive: None,
            kernel: KernelSource::default(),
            prestarted_networks: 4,
            prestarted_vmms: PrestartedVmms::default(),
            concurrent_restores: cores + 1,
            guest_patience: Duration::from_secs(30),
            boot_patience: Duration::from_secs(120),
        }
    }
}
