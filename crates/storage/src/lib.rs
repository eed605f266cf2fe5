//! Reflink pool, snapshots and volumes on disk.
//!
//! One process owns a data directory ([`lock`]). In it lies a [`pool`]: a directory whose files can be cloned without
//! being copied. [`clone`] makes such clones, [`extents`] tells afterwards what two of them still share, and
//! [`snapshot`] keeps sets of files that are complete or absent whatever happens, [`volume`] file systems that outlive
//! their users. [`blobs`] keeps what is to outlive the host, [`chunks`] what this host needs of it. Nothing here knows what a VM is.

pub mod blobs;
pub mod chunks;
pub mod clone;
pub mod durable;
pub mod extents;
mod ioctl;
mod kill_point;
pub mod lock;
pub mod pool;
pub mod program;
mod random;
pub mod snapshot;
pub mod volume;

pub use blobs::{BlobAddress, BlobError, BlobKey, Blobs, BlobsConfig};
pub use chunks::{ChunkCache, fetch_file};
pub use clone::{CloneError, Cloned, clone_file};
pub use durable::{Durability, write_file};
pub use extents::{JointBytes, changed_ranges, unique_bytes};
pub use lock::{DataDir, LockError};
pub use pool::{Closed, Pool, PoolConfig, PoolError, PoolSize, Reflink};
pub use snapshot::{Damage, Manifest, Snapshot, SnapshotError, SnapshotStore, Staged};
pub use volume::{Volume, VolumeError, VolumeStore};

/// Whether an error says that a disk or a quota is full.
pub fn is_no_space(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod test_pool;
