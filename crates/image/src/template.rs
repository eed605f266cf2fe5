//! Templates that come with PandaStack, as data: what is installed, how large the machine is, what is run once before
//! the snapshot so that it is in memory afterwards.

use serde::{Deserialize, Serialize};

use crate::rootfs::{
    DiskSize, GuestPath, HostCertificates, PackageName, PackageSources, RootfsSpec, SuiteName, UserName,
    UserSpec, host_suite,
};

/// What a template is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateSpec {
    /// How users call it.
    pub name: String,
    /// Its disk.
    pub rootfs: RootfsSpec,
    /// How many processors its machines have. Fixed when the template is baked.
    pub vcpus: u32,
    /// How much memory its machines have. Fixed when the template is baked.
    pub memory_mib: u32,
    /// Programs to run once before the snapshot is taken, each a list of arguments.
    pub warm: Vec<Vec<String>>,
}

/// Used where the host is not a Debian itself.
const DEFAULT_SUITE: &str = "bookworm";

const BASE_PACKAGES: [&str; 24] = [
    "bash",
    "ca-certificates",
    "coreutils",
    "curl",
    "findutils",
    "git",
    "gzip",
    "iproute2",
    "iputils-ping",
    "less",
    "netbase",
    "openssh-client",
    "openssh-server",
    "procps",
    "python3",
    "python3-pip",
    "python3-venv",
    "sudo",
    "tar",
    "tzdata",
    "unzip",
    "util-linux",
    "wget",
    "xz-utils",
];

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

/// The template that everything else starts from: a shell, git, Python.
pub fn base() -> TemplateSpec {
    let python = "import json, os, re, subprocess, sys, urllib.request";
    TemplateSpec {
        name: "base".to_owned(),
        rootfs: debian(&BASE_PACKAGES, DiskSize::gib(4)),
        vcpus: 1,
        memory_mib: 256,
        warm: commands(&[
            &["/bin/sh", "-c", "true"],
            &["/bin/bash", "-lc", "ls / && cat /etc/hostname && uname -r"],
            &["/usr/bin/python3", "-c", python],
        ]),
    }
}

/// A small one that is made quickly: a shell and Python without most of its library.
pub fn minimal() -> TemplateSpec {
    TemplateSpec {
        name: "minimal".to_owned(),
        rootfs: debian(&["iproute2", "procps", "python3-minimal"], DiskSize::gib(1)),
        vcpus: 1,
        memory_mib: 256,
        warm: commands(&[&["/bin/sh", "-c", "true"], &["/usr/bin/python3", "-c", "import sys"]]),
    }
}

fn debian(packages: &[&str], size: DiskSize) -> RootfsSpec {
    let known = "names in this file are well-formed";
    RootfsSpec {
        suite: host_suite().unwrap_or_else(|| SuiteName::parse(DEFAULT_SUITE).expect(known)),
        sources: PackageSources::Host,
        packages: packages.iter().map(|name| PackageName::parse(name).expect(known)).collect(),
        size,
        dirs: vec![GuestPath::parse("/workspace").expect(known)],
        files: Vec::new(),
        users: vec![UserSpec { name: UserName::parse("user").expect(known), id: 1000, sudo: true }],
        excludes: EXCLUDES.map(str::to_owned).to_vec(),
        includes: INCLUDES.map(str::to_owned).to_vec(),
        host_certificates: HostCertificates::Inject,
    }
}

fn commands(lines: &[&[&str]]) -> Vec<Vec<String>> {
    lines.iter().map(|line| line.iter().map(|word| (*word).to_owned()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_within_bounds_and_survive_being_written_down() {
        for template in [base(), minimal()] {
            template.rootfs.check().unwrap();
            assert!(template.warm.iter().all(|command| command[0].starts_with('/')));
            let text = serde_json::to_string(&template).unwrap();
            assert_eq!(serde_json::from_str::<TemplateSpec>(&text).unwrap(), template);
        }
    }
}
