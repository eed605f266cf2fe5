//! A place for one machine: its directory, network and user id. Everything a machine holds on the host besides its process.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use machine::Place;
use network::{GuestAddresses, Lease, Network, Rest, Slot};

use crate::error::NodeError;
use crate::paths::{make_directory, remove_directory};

/// The directory and network of a machine. Explicitly kept or given up: a machine outlives the process that made its resources, so
/// nothing happens on drop.
#[derive(Debug)]
pub(crate) struct MachineResources {
    pub(crate) directory: PathBuf,
    pub(crate) slot: Slot,
    pub(crate) addresses: GuestAddresses,
    /// The network card, until a machine process has it.
    pub(crate) tap: Option<OwnedFd>,
    /// The name servers that its guest was told, if that is known.
    pub(crate) told: Option<Vec<Ipv4Addr>>,
}

/// Where a sandbox that sleeps left its network, and what its guest was told.
#[derive(Debug)]
pub(crate) struct Resting {
    rest: Rest,
    told: Option<Vec<Ipv4Addr>>,
}

/// Names and user ids of this node's machine processes.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// Distinguishes this data directory from others on the host.
    pub(crate) tag: String,
    pub(crate) uid_base: u32,
}

impl Names {
    /// User ids lie far above those of people and services; each data directory has a range of its own.
    pub(crate) fn new(tag: &str) -> Self {
        const FIRST_UID: u32 = 1_000_000_000;
        const UIDS_PER_NODE: u32 = 16_384;
        let number = u32::from_str_radix(tag, 16).unwrap_or(0) % 60_000;
        Self { tag: tag.to_owned(), uid_base: FIRST_UID + number * UIDS_PER_NODE }
    }

    /// The start of every process name of this node.
    pub(crate) fn prefix(&self) -> String {
        format!("pandastack-{}-", self.tag)
    }

    pub(crate) fn place(&self, directory: &Path, slot: Slot) -> Place {
        Place {
            directory: directory.to_owned(),
            name: format!("{}{slot}", self.prefix()),
            instance: self.tag.clone(),
            uid: self.uid_base + slot.get() % 16_384,
        }
    }
}

impl MachineResources {
    /// Makes the directory, or uses one that is there, and takes a network.
    pub(crate) async fn take(network: &Network, directory: PathBuf) -> Result<Self, NodeError> {
        let lease = network.acquire().await?;
        let made = make_directory(&directory);
        let resources = Self::with(lease, directory);
        if let Err(error) = made {
            resources.leave(network).await;
            return Err(NodeError::host("make a machine's directory")(error));
        }
        Ok(resources)
    }

    fn with(lease: Lease, directory: PathBuf) -> Self {
        let Lease { slot, addresses, tap, .. } = lease;
        Self { directory, slot, addresses, tap: Some(tap), told: None }
    }

    /// Takes the network that a sandbox left when it fell asleep, if it is still there. Its guest knows all about it.
    pub(crate) fn take_again(network: &Network, directory: PathBuf, resting: Resting) -> Option<Self> {
        let lease = network.acquire_again(resting.rest)?;
        Some(Self { told: resting.told, ..Self::with(lease, directory) })
    }

    /// Gives up the network only, such that the sandbox may find it again. Its machine process is gone.
    pub(crate) fn rest(self, network: &Network) -> Resting {
        Resting { rest: network.rest(self.slot), told: self.told }
    }

    /// Gives up the network and removes the directory.
    pub(crate) async fn remove(self, network: &Network) {
        self.leave(network).await;
        if let Err(error) = remove_directory(&self.directory) {
            tracing::warn!(%error, "a machine's directory stays until the next start");
        }
    }

    /// Gives up the network only: the directory holds a sandbox that goes on without a machine.
    pub(crate) async fn leave(&self, network: &Network) {
        if let Err(error) = network.release(self.slot).wait().await {
            tracing::warn!(slot = self.slot.get(), %error, "network slot {} could not be given back", self.slot);
        }
    }
}

impl Resting {
    /// Its sandbox will not come back to it.
    pub(crate) fn forget(self, network: &Network) {
        network.forget(self.rest);
    }
}

/// Opens a machine's disk for it.
pub(crate) fn open_disk(path: &Path) -> Result<File, NodeError> {
    File::options().read(true).write(true).open(path).map_err(NodeError::host("open a disk"))
}
