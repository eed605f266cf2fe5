//! How big a machine is. Fixed when its template is baked: a bigger guest is a bigger template.

use serde::{Deserialize, Serialize};

/// Most virtual CPUs of one machine.
pub(crate) const VCPUS_MAX: u8 = 64;
/// Least memory a Linux guest boots and works in.
pub(crate) const MEMORY_MIB_MIN: u32 = 128;
/// Most memory of one machine.
pub(crate) const MEMORY_MIB_MAX: u32 = 256 * 1024;

/// CPU count and memory of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "UncheckedShape")]
pub struct MachineShape {
    vcpus: u8,
    memory_mib: u32,
}

/// Why a machine cannot have this shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidShape {
    /// No or too many CPUs.
    #[error("a machine has 1 to {VCPUS_MAX} CPUs, not {0}")]
    Vcpus(u8),
    /// Too little or too much memory.
    #[error("a machine has {MEMORY_MIB_MIN} to {MEMORY_MIB_MAX} MiB of memory, not {0}")]
    Memory(u32),
}

#[derive(Deserialize)]
struct UncheckedShape {
    vcpus: u8,
    memory_mib: u32,
}

impl TryFrom<UncheckedShape> for MachineShape {
    type Error = InvalidShape;
    fn try_from(shape: UncheckedShape) -> Result<Self, InvalidShape> {
        Self::new(shape.vcpus, shape.memory_mib)
    }
}

impl MachineShape {
    /// Checks that a machine can be this big.
    pub fn new(vcpus: u8, memory_mib: u32) -> Result<Self, InvalidShape> {
        if vcpus == 0 || vcpus > VCPUS_MAX {
            return Err(InvalidShape::Vcpus(vcpus));
        }
        if !(MEMORY_MIB_MIN..=MEMORY_MIB_MAX).contains(&memory_mib) {
            return Err(InvalidShape::Memory(memory_mib));
        }
        Ok(Self { vcpus, memory_mib })
    }

    /// Number of virtual CPUs.
    pub fn vcpus(self) -> u8 {
        self.vcpus
    }

    /// Memory in MiB.
    pub fn memory_mib(self) -> u32 {
        self.memory_mib
    }

    /// Memory in bytes.
    pub fn memory_bytes(self) -> u64 {
        u64::from(self.memory_mib) << 20
    }
}
