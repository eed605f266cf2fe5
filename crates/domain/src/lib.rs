//! Ids, names, shapes and lifecycle rules. Pure: no I/O, no clock, no async.
//!
//! Everything here is a value that was checked once, at the edge, and is trusted from then on.

mod error_chain;
mod fingerprint;
mod host_name;
mod id;
pub mod lifecycle;
mod shape;

pub use error_chain::ErrorChain;
pub use fingerprint::{EngineFingerprint, Mismatch};
pub use host_name::HostName;
pub use id::{BuildId, InvalidId, SandboxId, SnapshotId, TemplateName, TenantId, VolumeId};
pub use shape::{InvalidShape, MachineShape};
