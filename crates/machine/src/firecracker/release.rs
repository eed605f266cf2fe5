//! The release of Firecracker that is installed on a host that has none: its archive's name, what is taken out of it, and the
//! digest it must have. Fetches nothing.

use super::version::{VERSION_INSTALLED, Version};

/// Where the project publishes its releases; below it each has a directory of its own.
pub const RELEASES: &str = "https://github.com/firecracker-microvm/firecracker/releases/download";

/// SHA-256 of the published archives of [`VERSION_INSTALLED`]. A new version needs new ones.
const DIGESTS: [(&str, &str); 2] = [
    ("x86_64", "d4a32ab2322d887ca1bc4a4e7afa9cc35393e6362dfc2b3becb389d362e4275a"),
    ("aarch64", "00654ac1e702a22744121ea9f10a4f792ebd7c3a744cba587dfac9fcb79b41a5"),
];

/// A published release for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// Which one.
    pub version: Version,
    architecture: &'static str,
    /// SHA-256 of its archive, in hexadecimal.
    pub digest: &'static str,
}

impl Release {
    /// The one to install on this host; nothing where none is published for its architecture.
    pub fn of_this_host() -> Option<Self> {
        Self::of(std::env::consts::ARCH)
    }

    fn of(architecture: &str) -> Option<Self> {
        let (architecture, digest) = DIGESTS.into_iter().find(|(name, _)| *name == architecture)?;
        Some(Self { version: VERSION_INSTALLED, architecture, digest })
    }

    fn name(&self) -> String {
        format!("v{}-{}", self.version, self.architecture)
    }

    /// Its archive, below where releases are.
    pub fn archive(&self) -> String {
        format!("v{}/firecracker-{}.tgz", self.version, self.name())
    }

    /// The program in its archive.
    pub fn program(&self) -> String {
        let name = self.name();
        format!("release-{name}/firecracker-{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_named_as_they_are_published() {
        let release = Release::of("x86_64").unwrap();
        assert_eq!(release.archive(), "v1.15.1/firecracker-v1.15.1-x86_64.tgz");
        assert_eq!(release.program(), "release-v1.15.1-x86_64/firecracker-v1.15.1-x86_64");
        assert_eq!(
            Release::of("aarch64").unwrap().program(),
            "release-v1.15.1-aarch64/firecracker-v1.15.1-aarch64"
        );
        assert_eq!(Release::of("riscv64"), None);
    }

    #[test]
    fn digests_are_those_of_sha256() {
        for (_, digest) in DIGESTS {
            assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
        }
    }
}
