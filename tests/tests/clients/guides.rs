//! Everything that the documentation tells people to type, typed: each block of each document against a real server.
//!
//! Blocks of one document share a directory, a server and, within a language, their variables. See `document.rs` for what blocks
//! there are. `reference.rs` makes the reference from the sources and compares it with the one that is kept.

mod clients;
mod command_line;
mod document;
mod follower;
mod http;
mod language;
mod links;
mod reference;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use image::template::{TemplateSpec, base, code_interpreter};
use tests::api::KEY;
use tests::api::serve_process::ServeProcess;
use tests::{Lab, LabSettings, run_for};

use crate::guides::clients::{Clients, tree};
use crate::guides::document::{Kind, blocks, fits, program};
use crate::guides::follower::Follower;
use crate::guides::language::Language;

/// How long one document may take; the first run makes images of more than a gigabyte.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Blocks that are shown and not run: the document, how the block begins, why.
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("README.md", "curl -fsSL", "installs a release on the host; tests/release does that from a directory"),
    (
        "README.md",
        "sudo scripts/setup",
        "builds and installs on the host; tests/release does that into a directory",
    ),
    ("README.md", "sudo scripts/demo", "changes the host, and is longer than a test"),
    ("README.md", "python3 -m venv", "installs the tree's client; tests/release does that"),
    (
        "docs/install.md",
        "curl -fsSL",
        "installs a release on the host; tests/release does that from a directory",
    ),
    ("docs/install.md", "sudo sh install", "the same, and removes it"),
    ("docs/install.md", "pip install", "installs the clients; tests/release does that"),
    ("docs/install.md", "sudo scripts/setup", "changes the host"),
    ("docs/install.md", "pandastack --version", "what doctor finds depends on the host"),
    (
        "docs/guides/local.md",
        "id=$(pandastack local create)",
        "owns the data directory, which the server of the test does",
    ),
    (
        "docs/operate/uninstall.md",
        "systemctl stop",
        "removes the data directory that the other documents use",
    ),
    (
        "docs/operate/uninstall.md",
        "pandastack gc",
        "looks at every instance of the host, also at those of other tests",
    ),
    (
        "docs/operate/backup.md",
        "pandastack sandbox hibernate",
        "stops the server that the other documents use",
    ),
    ("docs/operate/backup.md", "pandastack restore", "starts a second server"),
    ("docs/operate/configuration.md", "data_dir", "a file, not a program"),
    ("docs/operate/monitoring.md", "scrape_configs:", "a file, not a program"),
    ("docs/operate/monitoring.md", "groups:", "a file, not a program"),
    ("docs/operate/sizing.md", "systemctl stop pandastack", "stops a service of the host"),
    ("docs/operate/systemd.md", "sudo systemctl enable", "starts a service of the host"),
    ("docs/operate/systemd.md", "journalctl -u pandastack", "reads the journal of the host"),
    ("docs/operate/tls.md", "[serve]", "a file, not a program"),
    ("docs/operate/tls.md", "upstream pandastack", "a file, not a program"),
    ("docs/operate/tls.md", "ssl_certificate", "a file, not a program"),
    ("docs/operate/tls.md", "sandboxes.example.org {", "a file, not a program"),
    (
        "docs/operate/troubleshooting.md",
        "sudo pandastack serve --prepare",
        "the server of the test runs already",
    ),
    ("docs/operate/troubleshooting.md", "sudo pandastack serve --uplink", "opens a network of the host"),
    ("docs/operate/troubleshooting.md", "pandastack sandbox events", "needs a sandbox that died"),
    ("docs/operate/upgrade.md", "sudo sh install", "installs a release on the host; tests/release does that"),
    ("docs/operate/upgrade.md", "sudo apt-mark hold", "changes the host"),
    ("docs/operate/upgrade.md", "error: open the database", "needs a database of a newer version"),
    ("docs/operate/upgrade.md", "sudo ./pandastack-new serve", "starts a second server"),
    (
        "docs/quickstart.md",
        "sudo scripts/setup",
        "changes the host; tests/release builds and installs into a directory",
    ),
    (
        "docs/quickstart.md",
        "export PANDASTACK_API=",
        "the server of the test is elsewhere and has another key",
    ),
    ("docs/quickstart.md", "sudo pandastack serve --uplink", "opens a network of the host"),
    ("docs/quickstart.md", "python3 -m venv", "installs the tree's client; tests/release does that"),
    ("docs/quickstart.md", "npm install", "installs the tree's client; tests/release does that"),
    ("docs/cli.md", "pandastack auth login", "asks for a key on a terminal"),
    ("docs/cli.md", "{", "a file, not a program"),
    ("docs/cli.md", "pandastack sandbox ssh $id", "needs a terminal"),
    ("docs/cli.md", "pandastack sandbox ssh-config", "needs ssh here and a template with an SSH server"),
    ("docs/cli.md", "pandastack sandbox port-forward", "runs until Ctrl-C"),
    ("docs/cli.md", "pandastack fs watch", "runs until Ctrl-C"),
    ("docs/cli.md", "pandastack template build", "needs a registry and images of the reader's"),
    ("docs/guides/templates.md", "pandastack template build", "needs a registry and images of the reader's"),
    ("docs/guides/hosts.md", "pandastack doctor", "what doctor finds depends on the host"),
    (
        "docs/guides/hosts.md",
        "pandastack serve --cgroups",
        "starts a second server, with control groups of the host",
    ),
    ("docs/guides/hosts.md", "pandastack serve --kernel", "needs a kernel of the reader's"),
    ("docs/guides/hosts.md", "pandastack setup", "downloads; tests/setup does that from a server of its own"),
    ("docs/guides/hosts.md", "sysctl -w vm.nr_hugepages", "takes memory of the host for good"),
    (
        "docs/guides/managed-agents.md",
        "export ANTHROPIC_ENVIRONMENT_ID",
        "needs an account at Anthropic; tests/large_templates does that with a scripted server, where PANDASTACK_TEST_TEMPLATES names claude-agent",
    ),
    (
        "docs/guides/managed-agents.md",
        "from pandastack.cma",
        "needs that account too, and runs until a signal ends it",
    ),
    ("docs/guides/managed-agents.md", "pandastack serve", "opens a network of the host"),
    ("docs/guides/mcp.md", "claude mcp add", "changes the settings of another program"),
    ("docs/guides/mcp.md", "{", "a file, not a program"),
    ("docs/guides/networking.md", "pandastack serve", "opens a network of the host"),
    ("docs/guides/networking.md", "id=$(pandastack sandbox create --network all", "needs an uplink"),
    (
        "docs/guides/ports-and-ssh.md",
        "pandastack sandbox ssh-config",
        "needs ssh here and a template with an SSH server",
    ),
    ("docs/guides/ports-and-ssh.md", "code --remote", "starts another program"),
    ("docs/guides/previews.md", "pandastack serve", "needs a domain"),
];

/// Follows a document, which may use these templates and `minimal`.
fn follow(name: &'static str, templates: &[TemplateSpec]) -> Result<()> {
    run_for(TIMEOUT, async || {
        let text = std::fs::read_to_string(tree().join(name)).with_context(|| format!("read {name}"))?;
        let blocks = blocks(&text).with_context(|| name)?;
        if blocks.iter().all(|block| block.kind == Kind::NotRun) {
            return Ok(());
        }
        let clients = Clients::get().await?;
        let mut lab = Lab::prepare(LabSettings::with_templates("guides", templates)).await?;
        let server = ServeProcess::start(&mut lab, &[]).await?;
        let directory = lab.data_dir().join("reader");
        std::fs::create_dir(&directory)?;
        let environment = [
            ("PATH", clients.path()?),
            ("HOME", directory.display().to_string()),
            ("PYTHONPATH", clients.python_source.display().to_string()),
            ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
            ("PANDASTACK_API", format!("http://{}", server.address())),
            // For commands of the operator that ask the server of a data directory.
            ("PANDASTACK_DATA_DIR", lab.data_dir().display().to_string()),
            ("PANDASTACK_API_KEY", KEY.to_owned()),
        ];
        let mut followers = Vec::new();
        for language in Language::ALL {
            if let Some(program) = program(&blocks, language) {
                let follower = Follower::start(language, &program, &directory, clients, &environment);
                followers.push((language, follower.await.with_context(|| format!("{name}, {language:?}"))?));
            }
        }
        for (number, block) in blocks.iter().enumerate() {
            let Kind::Run(language) = block.kind else { continue };
            let place = || format!("{name}, line {}", block.line);
            let found = followers.iter_mut().find(|(of, _)| *of == language);
            let (_, follower) = found.with_context(place)?;
            let said = follower.turn(number).await.with_context(place)?;
            if let Some(expected) = &block.expected {
                ensure!(fits(expected, &said), "{}: it wrote\n{said}\nand not\n{expected}", place());
            }
        }
        for (language, follower) in followers {
            follower.end().await.with_context(|| format!("{name}, {language:?}"))?;
        }
        server.client().delete_everything().await?;
        server.stop().await?;
        lab.remove()
    })
}

/// A test for each document, and the list of them all.
macro_rules! documents {
    ($($test:ident: $name:literal, [$($template:expr),*];)*) => {
        const DOCUMENTS: &[&str] = &[$($name),*];
        $(#[test]
        fn $test() -> Result<()> {
            follow($name, &[$($template),*])
        })*
    };
}

documents! {
    readme: "README.md", [base()];
    quickstart: "docs/quickstart.md", [base()];
    install: "docs/install.md", [];
    configuration: "docs/operate/configuration.md", [];
    monitoring: "docs/operate/monitoring.md", [];
    sizing: "docs/operate/sizing.md", [];
    systemd: "docs/operate/systemd.md", [];
    tls: "docs/operate/tls.md", [];
    troubleshooting: "docs/operate/troubleshooting.md", [];
    upgrade: "docs/operate/upgrade.md", [];
    backup: "docs/operate/backup.md", [];
    tenants: "docs/operate/tenants.md", [];
    uninstall: "docs/operate/uninstall.md", [];
    cli: "docs/cli.md", [];
    coming_from_e2b: "docs/guides/coming-from-e2b.md", [base()];
    code_interpreter_guide: "docs/guides/code-interpreter.md", [code_interpreter()];
    files_and_processes: "docs/guides/files-and-processes.md", [];
    hibernation: "docs/guides/hibernation.md", [];
    hosts: "docs/guides/hosts.md", [];
    managed_agents: "docs/guides/managed-agents.md", [];
    mcp: "docs/guides/mcp.md", [];
    local: "docs/guides/local.md", [];
    networking: "docs/guides/networking.md", [];
    ports_and_ssh: "docs/guides/ports-and-ssh.md", [];
    previews: "docs/guides/previews.md", [base()];
    snapshots_and_forks: "docs/guides/snapshots-and-forks.md", [];
    templates: "docs/guides/templates.md", [];
    volumes: "docs/guides/volumes.md", [];
}

/// Documents of a folder of the tree.
fn documents_in(folder: &str) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(tree().join(folder)).with_context(|| format!("list {folder}"))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let named = |path: PathBuf| path.file_name().map(|name| format!("{folder}/{}", name.to_string_lossy()));
    Ok(paths.filter(|path| path.extension().is_some_and(|end| end == "md")).filter_map(named).collect())
}

#[test]
fn every_document_is_followed() -> Result<()> {
    // These describe the project itself and tell nobody to type anything.
    let described =
        ["docs/ARCHITECTURE.md", "docs/GLOSSARY.md", "docs/README.md", "docs/comparison.md", "docs/speed.md"];
    let folders = ["docs", "docs/guides", "docs/operate"];
    let found = folders.into_iter().map(documents_in).collect::<Result<Vec<_>>>()?.concat();
    for found in found {
        let known = DOCUMENTS.contains(&found.as_str()) || described.contains(&found.as_str());
        ensure!(known, "{found} is followed by no test");
    }
    Ok(())
}

#[test]
fn what_is_not_run_is_listed() -> Result<()> {
    let mut used = BTreeSet::new();
    for name in DOCUMENTS {
        let text = std::fs::read_to_string(tree().join(name)).with_context(|| format!("read {name}"))?;
        for block in blocks(&text).with_context(|| *name)?.iter().filter(|block| block.kind == Kind::NotRun) {
            let begins = |start: &str| block.lines.first().is_some_and(|line| line.starts_with(start));
            let listed = NOT_RUN.iter().position(|(of, start, _)| of == name && begins(start));
            used.insert(listed.with_context(|| format!("{name}, line {}: not in the list", block.line))?);
        }
    }
    let unused: Vec<_> = (0..NOT_RUN.len()).filter(|at| !used.contains(at)).map(|at| NOT_RUN[at]).collect();
    ensure!(unused.is_empty(), "listed and not there: {unused:?}");
    Ok(())
}
