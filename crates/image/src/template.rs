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

/// What a data analyst's cells import, and what runs JavaScript and TypeScript. SciPy and a compiler come with matplotlib.
const INTERPRETER_PACKAGES: [&str; 11] = [
    "fonts-dejavu-core",
    "node-typescript",
    "nodejs",
    "python3-bs4",
    "python3-ipython",
    "python3-matplotlib",
    "python3-numpy",
    "python3-openpyxl",
    "python3-pandas",
    "python3-pylsp",
    "python3-requests",
];

/// For code contexts: Python with numpy, pandas, matplotlib and SciPy, Node.js with TypeScript, a Python language server.
pub fn code_interpreter() -> TemplateSpec {
    // Draws once: matplotlib looks for fonts at its first figure and keeps what it found.
    let python = "import asyncio, json, subprocess\n\
        import numpy, pandas\n\
        import matplotlib; matplotlib.use('Agg')\n\
        import matplotlib.pyplot as plt, io\n\
        plt.plot([1, 2]); plt.savefig(io.BytesIO(), format='png', bbox_inches='tight')\n\
        pandas.DataFrame({'a': [1]})._repr_html_()";
    let node =
        "require('inspector'); require('vm'); require('util').inspect({ a: 1 }); require('typescript')";
    let mut packages = [&BASE_PACKAGES[..], &INTERPRETER_PACKAGES[..]].concat();
    packages.sort_unstable();
    TemplateSpec {
        name: "code-interpreter".to_owned(),
        rootfs: debian(&packages, DiskSize::gib(8)),
        vcpus: 1,
        memory_mib: 1024,
        warm: commands(&[
            &["/bin/bash", "-lc", "ls / && cat /etc/hostname && uname -r"],
            &["/usr/bin/python3", "-c", python],
            &["/usr/bin/node", "-e", node],
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

/// Other names for templates that come with PandaStack: what clients ask for when they are not told otherwise.
const ALIASES: [(&str, &str); 2] = [("ubuntu-24.04", "base"), ("code-interpreter-v1", "code-interpreter")];

/// All templates that come with PandaStack.
pub fn catalogue() -> Vec<TemplateSpec> {
    vec![base(), code_interpreter(), minimal()]
}

/// Finds a template that comes with PandaStack by its name or another one. What is found carries its own name.
pub fn find(name: &str) -> Option<TemplateSpec> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, target)| target);
    catalogue().into_iter().find(|template| template.name == name)
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
        for template in catalogue() {
            template.rootfs.check().unwrap();
            assert!(template.warm.iter().all(|command| command[0].starts_with('/')));
            let text = serde_json::to_string(&template).unwrap();
            assert_eq!(serde_json::from_str::<TemplateSpec>(&text).unwrap(), template);
        }
    }
    #[test]
    fn every_name_leads_to_one_template() {
        for template in catalogue() {
            assert_eq!(find(&template.name), Some(template));
        }
        for (alias, name) in ALIASES {
            assert_eq!(find(alias).unwrap().name, name);
        }
        assert_eq!(find("no-such-template"), None);
    }
}
