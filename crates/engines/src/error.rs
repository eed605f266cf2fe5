//! Why a host has no engine.

use machine::cgroup::CgroupError;
use machine::{firecracker, qemu};

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is nothing to probe this host with.
    #[error("could not find a QEMU to probe this host with")]
    Probe(#[source] host::QemuError),
    /// Nothing that runs machines works, or the one demanded does not.
    #[error("no engine works on this host: {reason}")]
    NoneWorks {
        /// What was tried and why it failed, for people.
        reason: String,
    },
    /// A snapshot belongs to a CPU, and this one could not be told from others.
    #[error("could not identify the CPU")]
    Cpu(#[source] host::CpuIdentityError),
    /// A program or a file that the engine needs is not there.
    #[error("could not find {name}")]
    Missing {
        /// What it is called.
        name: &'static str,
    },
    /// Machine processes are to be limited, and cannot be.
    #[error("could not hold machine processes to their share of this host")]
    Cgroups(#[source] CgroupError),
    /// A limit that only Firecracker has.
    #[error(
        "QEMU cannot limit how fast machines use their network: leave that limit out, or have Firecracker run them"
    )]
    NetworkRate,
    /// Memory as only Firecracker has it.
    #[error("QEMU has no huge pages for machines: turn them off, or have Firecracker run machines")]
    HugePages,
    /// QEMU was chosen and cannot be used.
    #[error("could not open the QEMU engine")]
    Qemu(#[source] qemu::OpenError),
    /// Firecracker was chosen and cannot be used.
    #[error("could not open the Firecracker engine")]
    Firecracker(#[source] firecracker::OpenError),
}
