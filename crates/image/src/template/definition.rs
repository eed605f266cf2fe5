//! A template's definition as it is written in `templates/`, and what becomes of it. Installs nothing itself.
//!
//! A definition may begin with a part that several share, or with another one (`from`): it then has all that the other
//! installs, and its own on top. Sizes, other names and what is baked are never inherited.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{TemplateSpec, WarmKernel};
use crate::rootfs::{
    DiskSize, ExactVersion, FileSpec, GuestPath, HostCertificates, NpmPackage, PackageName, PackageSources,
    PythonPackage, RootfsSpec, SpecError, SuiteName, UserSpec, host_suite,
};

/// Used where the host is not a Debian itself.
const DEFAULT_SUITE: &str = "bookworm";

/// Manuals and translations; and the file with which Debian keeps `pip` from installing into the system, which is what
/// a sandbox is for.
const EXCLUDES: [&str; 6] = [
    "/usr/share/doc/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/man/*",
    "/usr/share/lintian/*",
    "/usr/lib/python3*/EXTERNALLY-MANAGED",
];

/// Licences stay.
const INCLUDES: [&str; 2] = ["/usr/share/doc/*/copyright", "/usr/share/locale/locale.alias"];

/// Made in every template, with their users: where people work, and as whom if not as root.
const FOLDER: &str = "/workspace";
const USER: &str = "user";
const USER_ID: u32 = 1000;

/// Why a definition cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// It is not written as definitions are.
    #[error("the definition of `{name}` cannot be read")]
    Syntax {
        /// The template.
        name: String,
        /// What is wrong, and where.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// It asks for something impossible.
    #[error("the definition of `{name}` asks for something impossible")]
    Spec {
        /// The template.
        name: String,
        /// What.
        #[source]
        source: SpecError,
    },
    /// It begins with a template that is not defined before it.
    #[error("`{name}` begins with `{from}`, which is not defined before it")]
    UnknownStart {
        /// The template.
        name: String,
        /// What it begins with.
        from: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    summary: String,
    from: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    vcpus: u32,
    memory_mib: u32,
    disk_gib: u64,
    install: Install,
    #[serde(default)]
    bake: Bake,
}

/// What is on the disk.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Install {
    debian: Vec<PackageName>,
    node: Option<ExactVersion>,
    go: Option<ExactVersion>,
    python: Vec<PythonPackage>,
    npm: Vec<NpmPackage>,
    folders: Vec<GuestPath>,
    files: Vec<TextFile>,
    users: Vec<UserSpec>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextFile {
    path: GuestPath,
    #[serde(default = "TextFile::usual_mode")]
    mode: u32,
    text: String,
}

impl TextFile {
    const fn usual_mode() -> u32 {
        0o644
    }
}

/// What is in memory.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Bake {
    warm: Vec<Vec<String>>,
    kernels: Vec<WarmKernel>,
}

/// What several definitions begin with, and nobody is given by itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    install: Install,
}

/// Reads parts and definitions, each of a name and a text. What one begins with must come before it.
pub(super) fn parse_all(
    parts: &[(&str, &str)],
    definitions: &[(&str, &str)],
) -> Result<Vec<TemplateSpec>, DefinitionError> {
    let suite = host_suite().or_else(|| SuiteName::parse(DEFAULT_SUITE).ok());
    let mut installs: BTreeMap<&str, Install> = BTreeMap::new();
    for (name, text) in parts {
        installs.insert(name, read::<Part>(name, text)?.install);
    }
    let mut templates = Vec::new();
    for (name, text) in definitions {
        let impossible = |source| DefinitionError::Spec { name: (*name).to_owned(), source };
        let definition: Definition = read(name, text)?;
        let install = match &definition.from {
            None => definition.install,
            Some(from) => {
                let start = installs.get(from.as_str()).ok_or_else(|| DefinitionError::UnknownStart {
                    name: (*name).to_owned(),
                    from: from.clone(),
                })?;
                start.clone().with(definition.install)
            }
        };
        let suite = suite.clone().ok_or_else(|| {
            impossible(SpecError::BadName { kind: "name of a suite", text: DEFAULT_SUITE.to_owned() })
        })?;
        let rootfs = install.clone().rootfs(suite, definition.disk_gib).map_err(impossible)?;
        rootfs.check().map_err(impossible)?;
        installs.insert(name, install);
        templates.push(TemplateSpec {
            name: (*name).to_owned(),
            summary: definition.summary,
            aliases: definition.aliases,
            rootfs,
            vcpus: definition.vcpus,
            memory_mib: definition.memory_mib,
            warm: definition.bake.warm,
            kernels: definition.bake.kernels,
        });
    }
    Ok(templates)
}

fn read<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> Result<T, DefinitionError> {
    toml::from_str(text)
        .map_err(|error| DefinitionError::Syntax { name: name.to_owned(), source: Box::new(error) })
}

impl Install {
    /// This and more.
    fn with(mut self, more: Self) -> Self {
        self.debian.extend(more.debian);
        self.debian.sort();
        self.debian.dedup();
        self.node = more.node.or(self.node);
        self.go = more.go.or(self.go);
        self.python.extend(more.python);
        self.npm.extend(more.npm);
        self.folders.extend(more.folders);
        self.files.extend(more.files);
        self.users.extend(more.users);
        self
    }

    fn rootfs(self, suite: SuiteName, disk_gib: u64) -> Result<RootfsSpec, SpecError> {
        let mut dirs = vec![GuestPath::parse(FOLDER)?];
        dirs.extend(self.folders);
        let mut users = vec![UserSpec { name: crate::UserName::parse(USER)?, id: USER_ID, sudo: true }];
        users.extend(self.users);
        let files = self.files.into_iter();
        let files =
            files.map(|file| FileSpec { path: file.path, mode: file.mode, content: file.text.into_bytes() });
        Ok(RootfsSpec {
            suite,
            sources: PackageSources::Host,
            packages: self.debian,
            node: self.node,
            go: self.go,
            python: self.python,
            npm: self.npm,
            size: DiskSize::from_bytes(disk_gib.saturating_mul(1 << 30))?,
            dirs,
            files: files.collect(),
            users,
            excludes: EXCLUDES.map(str::to_owned).to_vec(),
            includes: INCLUDES.map(str::to_owned).to_vec(),
            host_certificates: HostCertificates::Inject,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str =
        "summary = 'small'\nvcpus = 1\nmemory_mib = 256\ndisk_gib = 1\n[install]\ndebian = ['git']\n";

    fn refused(text: &str) -> String {
        let error = parse_all(&[], &[("a", SMALL), ("b", text)]).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {source}")
    }

    #[test]
    fn a_definition_adds_to_what_it_begins_with() {
        let text = "summary = 'more'\nfrom = 'a'\nvcpus = 2\nmemory_mib = 512\ndisk_gib = 2\n\
            [install]\ndebian = ['curl', 'git']\nnpm = ['x@1.0.0']\n\
            [[install.files]]\npath = '/etc/x'\ntext = 'hi'\n\
            [[bake.kernels]]\nlanguage = 'python'\npreload = 'import numpy'\n";
        let small = format!("from = 'p'\n{SMALL}");
        let both = parse_all(&[("p", "[install]\ngo = '1.2.3'\n")], &[("a", &small), ("b", text)]).unwrap();
        assert!(both[1].rootfs.go.is_some() && both.len() == 2);
        let names: Vec<_> = both[1].rootfs.packages.iter().map(|name| name.as_str()).collect();
        assert_eq!(names, ["curl", "git"]);
        assert_eq!((both[1].vcpus, both[1].rootfs.size.mib()), (2, 2048));
        assert_eq!(both[1].rootfs.files[0].mode, 0o644);
        assert_eq!(both[1].kernels[0].language, "python");
        assert!(both[0].kernels.is_empty());
    }

    #[test]
    fn mistakes_are_told() {
        let with = |line: &str| format!("{line}\n{SMALL}");
        assert!(refused(&with("from = 'nobody'")).contains("`nobody`, which is not defined before it"));
        assert!(refused(&with("size = 3")).contains("unknown field `size`"));
        let range = SMALL.replace("debian = ['git']", "npm = ['typescript@latest']");
        assert!(refused(&range).contains("`typescript@latest` is not a npm package with an exact version"));
        let large = SMALL.replace("disk_gib = 1", "disk_gib = 1000000");
        assert!(refused(&large).contains("is not between"), "{}", refused(&large));
    }
}
