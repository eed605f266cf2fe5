//! What an engine is opened with, whichever it is.

use std::sync::Arc;

use machine::Engine;
use machine::firecracker::{FirecrackerConfig, FirecrackerEngine};
use machine::qemu::{QemuConfig, QemuEngine};

use crate::OpenError;

/// The configuration of the engine that was chosen.
#[derive(Debug, Clone)]
pub enum EngineConfig {
    /// QEMU, with or without KVM.
    Qemu(QemuConfig),
    /// Firecracker.
    Firecracker(FirecrackerConfig),
}

impl EngineConfig {
    /// Examines the program and makes the root its processes will live in.
    pub fn open(self) -> Result<Arc<dyn Engine>, OpenError> {
        Ok(match self {
            EngineConfig::Qemu(config) => Arc::new(QemuEngine::open(config).map_err(OpenError::Qemu)?),
            EngineConfig::Firecracker(config) => {
                Arc::new(FirecrackerEngine::open(config).map_err(OpenError::Firecracker)?)
            }
        })
    }
}
