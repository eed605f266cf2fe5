//! Settings of a node.

use std::path::PathBuf;
use std::time::Duration;

use image::{Authorities, KernelSource};
use network::{AddressPool, Uplink};
use storage::PoolSize;

use crate::archive::ArchiveConfig;
use crate::name_servers::NameServers;

/// Settings of a node. [`NodeConfig::new`] gives the usual ones.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Everything the node keeps is in this directory.
    pub data_dir: PathBuf,
    /// How large the pool image may grow where one is needed.
    pub pool_size: PoolSize,
    /// Where guests get their addresses from.
    pub addresses: AddressPool,
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
    pub networks_prepared: u32,
    /// Machine processes without a guest kept ready for each template in use.
    pub machines_waiting: usize,
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
            uplink: Uplink::None,
            name_servers: NameServers::Host,
            authorities: Some(Authorities::HOST_FOLDER.into()),
            archive: None,
            kernel: KernelSource::default(),
            networks_prepared: 4,
            machines_waiting: 2,
            concurrent_restores: cores + 1,
            guest_patience: Duration::from_secs(30),
            boot_patience: Duration::from_secs(120),
        }
    }
}
