//! Engines that run virtual machines, and the jail they run in.
//!
//! An [`Engine`] boots, restores, saves and ends machines; it knows nothing of templates, sandboxes or the guest's messages.
//! [`qemu`] and [`firecracker`] are engines. Every engine keeps the promises written at the trait and passes the same conformance suite.

pub mod cgroup;
mod counters;
mod digest;
mod engine;
pub mod firecracker;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod huge_pages;
pub mod jail;
mod on_demand;
mod output;
mod process;
pub mod qemu;
mod rates;
mod waiting;

pub use counters::Counters;
pub use engine::{
    AttachError, BootPlan, ControlError, DriveMode, Engine, Exit, LazyMemory, MemoryOrigin, MemoryTarget,
    Place, Prepared, RestorePlan, SaveTarget, Saved, StartError, VOLUMES_MAX, Vm, VmRecord, VmState,
    VolumeDrive,
};
pub use huge_pages::{HugePages, HugePagesError};
pub use memory::WriteOut;
pub use process::{ProcessIdentity, VmProcess};
pub use rates::Rates;
