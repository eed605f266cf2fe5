//! The QEMU program itself: which file, which version.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::program::{Program, ProgramError};

/// Oldest QEMU that maps a snapshot's memory privately from a file opened read-only.
pub const QEMU_VERSION_MIN: QemuVersion = QemuVersion { major: 8, minor: 2 };
/// `--version` is dominated by dynamic linking: tens of milliseconds, seconds when the disk is cold and busy.
const VERSION_DEADLINE: Duration = Duration::from_secs(20);

/// A QEMU release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QemuVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl std::fmt::Display for QemuVersion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// One QEMU program file. Two equal values mean the same program, so results about one hold for the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuBinary {
    /// Where it is.
    pub path: PathBuf,
    /// Its release.
    pub version: QemuVersion,
    /// All it says about its version, e.g. `10.0.2 (Debian 1:10.0.2+ds-2)`.
    pub version_text: String,
    /// Size of the file.
    pub size_bytes: u64,
    /// When the file was last written, in nanoseconds since 1970.
    pub modified_ns: i64,
}

/// Why a QEMU could not be identified.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// No such program.
    #[error("no qemu-system-x86_64 was found")]
    Missing,
    /// The file could not be looked at.
    #[error("could not look at {path}")]
    Stat {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The program did not say its version.
    #[error("{path} did not say its version: {reason}")]
    Version {
        /// The program.
        path: PathBuf,
        /// What it did instead.
        reason: String,
    },
}

impl QemuBinary {
    /// Looks at the file and asks the program for its version.
    pub fn identify(path: &Path) -> Result<QemuBinary, QemuError> {
        use std::os::unix::fs::MetadataExt;
        let found =
            std::fs::metadata(path).map_err(|source| QemuError::Stat { path: path.to_owned(), source })?;
        let unusable = |reason: String| QemuError::Version { path: path.to_owned(), reason };
        let said = Program::new(path, VERSION_DEADLINE)
            .args(["--version"])
            .output()
            .map_err(|error: ProgramError| unusable(error.to_string()))?;
        let (version, version_text) =
            parse_version(&said).ok_or_else(|| unusable(format!("it said {:?}", said.lines().next())))?;
        Ok(QemuBinary {
            path: path.to_owned(),
            version,
            version_text,
            size_bytes: found.size(),
            modified_ns: found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec()),
        })
    }
}

fn parse_version(said: &str) -> Option<(QemuVersion, String)> {
    let text = said.lines().next()?.strip_prefix("QEMU emulator version ")?.trim();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((QemuVersion { major, minor }, text.chars().take(100).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_and_compared() {
        let parse = |text: &str| parse_version(text).map(|(version, _)| version);
        let debian = parse("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright").unwrap();
        assert_eq!((debian.major, debian.minor), (10, 0));
        assert!(debian >= QEMU_VERSION_MIN);
        assert!(parse("QEMU emulator version 8.1.5").unwrap() < QEMU_VERSION_MIN);
        assert!(parse("QEMU emulator version 8.2.0-rc1").unwrap() >= QEMU_VERSION_MIN);
        assert_eq!(parse("bash: no such thing"), None);
        assert_eq!(parse(""), None);
    }
}
