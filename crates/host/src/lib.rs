//! What this host can really do, found out by trying it.
//!
//! [`probe()`] boots a tiny guest of our own under KVM and under TCG, [`classify`] and [`choose`] judge what came of
//! it, and [`examine`] adds everything else a host must be able to do. Nothing here believes a device file, and
//! nothing says ok about what was not tried. All of it blocks: call it from a thread that may.

mod check;
mod checks;
mod cpu;
mod engine;
mod facts;
mod probe;
mod program;
mod programs;
mod qemu;
mod render;
mod report;
mod throwaway;
mod tsc;
mod virtualization;

pub use check::{Check, Status};
pub use cpu::{CpuIdentity, CpuIdentityError, cpu_identity};
pub use engine::{
    Accelerator, Engine, EngineChoice, EngineSetting, FirecrackerFound, FirecrackerStatus, choose,
    firecracker_status,
};
pub use facts::{HostFacts, host_facts};
pub use probe::{
    Boot, BootOutcome, Deadlines, Freshness, GuestKernel, KernelFile, KernelTrial, KvmDevice, Probe,
    ProbeSettings, Probed, probe,
};
pub use programs::Programs;
pub use qemu::{QEMU_VERSION_MIN, QemuBinary, QemuError, QemuVersion};
pub use render::{Style, render_human};
pub use report::{Report, Settings, examine};
pub use tsc::{Tsc, TscSource, tsc_khz};
pub use virtualization::{Finding, Virtualization, classify};
