//! What a saved machine depends on besides its own files.
//!
//! A snapshot is resumed only where all of this is the same. Anything else is refused before the engine sees it: a guest
//! resumed on other hardware does not fail at once, it fails minutes later.

use serde::{Deserialize, Serialize};

/// Two measurements of one clock differ by less than this many parts in a million.
const TSC_TOLERANCE_PPM: u64 = 1_000;

/// The engine and hardware a machine runs on, as far as its saved state depends on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineFingerprint {
    /// Engine and accelerator, such as `qemu-tcg`.
    pub engine: String,
    /// The engine's exact version.
    pub version: String,
    /// Machine type and the devices in it; changes when our own device list changes.
    pub machine: String,
    /// The CPU the guest sees.
    pub cpu: String,
    /// Frequency of the time-stamp counter that the guest's kernel was told.
    pub tsc_khz: u64,
}

/// The first thing that differs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it was saved with {what} `{saved}`, this host has `{here}`")]
pub struct Mismatch {
    /// Which part differs.
    pub what: &'static str,
    /// The value when the machine was saved.
    pub saved: String,
    /// The value on this host.
    pub here: String,
}

impl EngineFingerprint {
    /// What has to be exactly the same. The clock is not in it: where it is measured, no two measurements agree to the last digit.
    pub fn kind(&self) -> String {
        let Self { engine, version, machine, cpu, tsc_khz: _ } = self;
        format!("{:?}", (engine, version, machine, cpu))
    }

    /// Whether state saved with `self` can be resumed on `here`.
    pub fn fits(&self, here: &EngineFingerprint) -> Result<(), Mismatch> {
        let differs = |what, saved: &str, here: &str| {
            Err(Mismatch { what, saved: saved.to_owned(), here: here.to_owned() })
        };
        if self.engine != here.engine {
            return differs("engine", &self.engine, &here.engine);
        }
        if self.version != here.version {
            return differs("engine version", &self.version, &here.version);
        }
        if self.machine != here.machine {
            return differs("machine type", &self.machine, &here.machine);
        }
        if self.cpu != here.cpu {
            return differs("CPU", &self.cpu, &here.cpu);
        }
        let apart = self.tsc_khz.abs_diff(here.tsc_khz);
        if apart.saturating_mul(1_000_000) > self.tsc_khz.saturating_mul(TSC_TOLERANCE_PPM) {
            return differs("TSC kHz", &self.tsc_khz.to_string(), &here.tsc_khz.to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint() -> EngineFingerprint {
        EngineFingerprint {
            engine: "qemu-tcg".into(),
            version: "10.0.2".into(),
            machine: "microvm-1".into(),
            cpu: "max".into(),
            tsc_khz: 2_793_436,
        }
    }

    #[test]
    fn same_host_fits_with_a_slightly_different_clock() {
        let here = EngineFingerprint { tsc_khz: 2_793_400, ..fingerprint() };
        assert_eq!(fingerprint().fits(&here), Ok(()));
        assert_eq!(fingerprint().kind(), here.kind());
    }

    #[test]
    fn each_difference_is_named() {
        let check = |here: EngineFingerprint, what| {
            assert_eq!(fingerprint().fits(&here).map_err(|mismatch| mismatch.what), Err(what));
        };
        check(EngineFingerprint { engine: "firecracker".into(), ..fingerprint() }, "engine");
        check(EngineFingerprint { version: "10.0.3".into(), ..fingerprint() }, "engine version");
        check(EngineFingerprint { machine: "microvm-2".into(), ..fingerprint() }, "machine type");
        check(EngineFingerprint { cpu: "host".into(), ..fingerprint() }, "CPU");
        check(EngineFingerprint { tsc_khz: 2_100_000, ..fingerprint() }, "TSC kHz");
    }
}
