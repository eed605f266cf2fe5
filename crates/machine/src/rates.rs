//! How fast a machine may use its disks and its network.
//!
//! Rates belong to the node, not to what is saved: every machine gets those of the node that starts it or takes charge of it.

use std::num::NonZeroU64;

/// What each disk, and the network card, of every machine may carry. `None`: as much as the host can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// Bytes a second that are read from and written to a disk.
    pub disk_bytes: Option<NonZeroU64>,
    /// Reads and writes of a disk a second.
    pub disk_operations: Option<NonZeroU64>,
    /// Bytes a second in each direction of the network card.
    pub network_bytes: Option<NonZeroU64>,
}

impl Rates {
    /// Whether anything is limited.
    pub fn limit_anything(&self) -> bool {
        *self != Self::default()
    }
}
