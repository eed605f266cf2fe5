//! Checks that keep the tree as it is meant to be, and its tests. Run as `cargo xtask <check>`; each exits 1 when something is
//! wrong.
//!
//! Reads the tree and what cargo says about it; writes only to the build directory.

mod licences;
mod source;
mod suites;
mod tidy;
mod tree;

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

const USAGE: &str = "usage: cargo xtask <check>

checks:
  tidy       direction of dependencies, sizes and openings of files, unfinished work, where unsafe code may be,
             one version for everything that is released, subjects of commits
  licences   licences, bans and sources of every dependency, by the lists in deny.toml
  test       builds and runs the everyday tests; --all everything; --since COMMIT what changes since then touch as
             well, as far as time allows, --spent SECONDS of it being gone
  budget     what the tests of the last run took, and whether the everyday ones fit";

/// What a check found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    /// What was found out, in the order to be read.
    lines: Vec<String>,
    /// Lines that make the check fail.
    errors: Vec<String>,
    /// Lines that only ask for attention.
    warnings: Vec<String>,
    /// What was looked at, for the closing line.
    looked_at: String,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let root = workspace_root();
    let checked = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::check(root),
        ["licences"] => licences::check(root),
        ["test", ..] => {
            suites::Options::parse(&arguments[1..]).and_then(|options| suites::test(root, &options))
        }
        ["budget"] => suites::budget(root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match checked.and_then(|findings| report(&arguments[0], &findings).context("write the report")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Says something while a check is under way. A reader that has gone does not stop it.
fn say(line: impl std::fmt::Display) {
    drop(writeln!(io::stdout(), "{line}"));
}

/// Writes the findings; whether all is well.
fn report(check: &str, findings: &Findings) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    for line in &findings.lines {
        writeln!(out, "{line}")?;
    }
    for line in &findings.warnings {
        writeln!(out, "warning: {line}")?;
    }
    for line in &findings.errors {
        writeln!(out, "error: {line}")?;
    }
    writeln!(
        out,
        "{check}: {}, {} errors, {} warnings",
        findings.looked_at,
        findings.errors.len(),
        findings.warnings.len()
    )?;
    Ok(findings.errors.is_empty())
}

/// This package lies in a folder of the workspace's root.
fn workspace_root() -> &'static Path {
    let here: &Path = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// A path as it is written in lists and reports: relative, with `/`.
fn shown(path: &Path) -> String {
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// A tree on disk for a test, removed with the guard.
#[cfg(test)]
fn small_tree(files: &[(&str, &str)]) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }
    let root = directory.path().to_owned();
    (directory, root)
}
