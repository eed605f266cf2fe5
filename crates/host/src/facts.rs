//! Plain facts about the host that a report carries, and reading them from the kernel.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::cpu::{CpuIdentity, cpu_identity};
use crate::tsc::{Tsc, tsc_khz};

/// Kernel files read here are short; a longer one is cut.
const TEXT_BYTES_MAX: u64 = 64 * 1024;

/// What the host is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Release of the running kernel.
    pub kernel_release: String,
    /// Name of the distribution.
    pub operating_system: String,
    /// The processor, unless the kernel describes it strangely.
    pub cpu: Option<CpuIdentity>,
    /// Processors this process may use.
    pub cpus: usize,
    /// All memory.
    pub memory_total_bytes: u64,
    /// Memory that could be used now without swapping.
    pub memory_available_bytes: u64,
    /// Frequency of the time-stamp counter.
    pub tsc: Tsc,
}

/// Reads the facts.
pub fn host_facts() -> HostFacts {
    let (memory_total_bytes, memory_available_bytes) = host_memory();
    HostFacts {
        kernel_release: kernel_text("/proc/sys/kernel/osrelease"),
        operating_system: os_release("PRETTY_NAME").unwrap_or_else(|| "unknown".to_owned()),
        cpu: cpu_identity().ok(),
        cpus: std::thread::available_parallelism().map_or(1, Into::into),
        memory_total_bytes,
        memory_available_bytes,
        tsc: tsc_khz(),
    }
}

/// A field of the distribution's description, unquoted.
pub(crate) fn os_release(field: &str) -> Option<String> {
    kernel_text("/etc/os-release").lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name == field).then(|| value.trim_matches('"').to_owned())
    })
}

/// All memory and what of it is available, in bytes; zeros when the kernel does not tell.
pub(crate) fn host_memory() -> (u64, u64) {
    let meminfo = kernel_text("/proc/meminfo");
    let bytes = |field| meminfo_bytes(&meminfo, field).unwrap_or(0);
    (bytes("MemTotal:"), bytes("MemAvailable:"))
}

fn meminfo_bytes(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The trimmed text of a small file; empty when it cannot be read.
pub(crate) fn kernel_text(path: impl AsRef<Path>) -> String {
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(TEXT_BYTES_MAX).read_to_end(&mut text));
    if read.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// The directory itself, or the nearest one above it that exists: where it would be made.
pub(crate) fn nearest_existing(directory: &Path) -> PathBuf {
    directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Now, in milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_there_and_plausible() {
        let facts = host_facts();
        assert!(!facts.kernel_release.is_empty());
        assert!(facts.cpus >= 1);
        assert!(facts.memory_total_bytes > 64 << 20);
        assert!(facts.memory_available_bytes <= facts.memory_total_bytes);
    }

    #[test]
    fn the_nearest_existing_directory_is_found() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(nearest_existing(&directory.path().join("a/b/c")), directory.path());
        assert_eq!(nearest_existing(directory.path()), directory.path());
    }
}
