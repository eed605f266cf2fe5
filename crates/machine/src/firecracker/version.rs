//! Which releases of Firecracker can be used.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The first release that can be used: older ones were never tried with this engine.
pub const VERSION_MIN: Version = Version { major: 1, minor: 15, patch: 0 };
/// The newest release the conformance suite was run with. Newer ones are used, and a warning is logged.
pub const VERSION_NEWEST_TESTED: Version = Version { major: 1, minor: 15, patch: 1 };
/// The release that `release.rs` describes, for hosts that have none.
pub const VERSION_INSTALLED: Version = VERSION_NEWEST_TESTED;
/// Releases whose guests hear nothing on a virtio socket any more once they were paused: resuming makes the device wait for an
/// answer to a question it did not ask.
const VERSIONS_BROKEN: std::ops::RangeInclusive<Version> =
    Version { major: 1, minor: 16, patch: 0 }..=Version { major: 1, minor: 16, patch: 1 };

/// How long a program may take to tell its version; it is killed then.
const TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);
/// As much as is read of what it says.
const SAID_BYTES_MAX: u64 = 4096;

/// A release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Why a program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// It could not be started.
    #[error("could not start {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It did not tell its version.
    #[error("{} did not tell its version: {said}", program.display())]
    Unknown {
        /// The program.
        program: PathBuf,
        /// What it said.
        said: String,
    },
    /// Too old.
    #[error("Firecracker {found} is too old: {VERSION_MIN} or newer is needed")]
    TooOld {
        /// Its version.
        found: Version,
    },
    /// It has a defect that this engine cannot work around.
    #[error(
        "Firecracker {found} cannot be used: its guests cannot be reached after they were paused; use {VERSION_NEWEST_TESTED}, or one newer than {}",
        VERSIONS_BROKEN.end()
    )]
    Broken {
        /// Its version.
        found: Version,
    },
}

/// Asks a program for its version and tells whether it can be used.
pub fn usable_version(program: &Path) -> Result<Version, VersionError> {
    let said = ask(program).map_err(|source| VersionError::Start { program: program.to_owned(), source })?;
    let said = String::from_utf8_lossy(&said);
    let first = said.lines().next().unwrap_or_default();
    let found = parse(first).ok_or_else(|| VersionError::Unknown {
        program: program.to_owned(),
        said: first.chars().take(200).collect(),
    })?;
    check(found).map(|()| found)
}

/// What the program says; nothing when it says nothing in time.
fn ask(program: &Path) -> io::Result<Vec<u8>> {
    let mut child = Command::new(program)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let until = Instant::now() + TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Ok(Vec::new());
        }
        std::thread::sleep(POLL);
    }
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(SAID_BYTES_MAX).read_to_end(&mut said)?;
    }
    Ok(said)
}

fn check(found: Version) -> Result<(), VersionError> {
    if found < VERSION_MIN {
        return Err(VersionError::TooOld { found });
    }
    if VERSIONS_BROKEN.contains(&found) {
        return Err(VersionError::Broken { found });
    }
    Ok(())
}

/// `Firecracker v1.15.1`, or with `-dev` at its end.
fn parse(line: &str) -> Option<Version> {
    let text = line.strip_prefix("Firecracker v")?;
    let mut numbers = text.split(['.', '-', ' ']).map(str::parse::<u32>);
    let mut next = || numbers.next()?.ok();
    Some(Version { major: next()?, minor: next()?, patch: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let version = |major, minor, patch| Some(Version { major, minor, patch });
        assert_eq!(parse("Firecracker v1.15.1"), version(1, 15, 1));
        assert_eq!(parse("Firecracker v1.17.0-dev"), version(1, 17, 0));
        assert_eq!(parse("QEMU emulator version 10.0.2"), None);
        assert_eq!(parse("Firecracker v1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn programs_are_asked() {
        let asked = |program: &str| usable_version(Path::new(program));
        assert!(matches!(asked("/bin/true"), Err(VersionError::Unknown { .. })));
        assert!(matches!(asked("/nonexistent/firecracker"), Err(VersionError::Start { .. })));
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("firecracker");
        std::fs::write(&program, "#!/bin/sh\necho Firecracker v1.15.1; echo; echo more").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(usable_version(&program).unwrap().to_string(), "1.15.1");
    }

    #[test]
    fn what_is_installed_can_be_used() {
        assert!(check(VERSION_INSTALLED).is_ok());
    }

    #[test]
    fn old_and_broken_releases_are_refused() {
        let outcome = |line: &str| check(parse(line).unwrap());
        assert!(matches!(outcome("Firecracker v1.14.4"), Err(VersionError::TooOld { .. })));
        assert!(matches!(outcome("Firecracker v1.16.1"), Err(VersionError::Broken { .. })));
        assert!(outcome("Firecracker v1.15.0").is_ok());
        assert!(outcome("Firecracker v1.16.2").is_ok());
        assert!(outcome("Firecracker v1.17.0-dev").is_ok());
    }
}
