//! Programs of the host that the harness runs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

/// Runs a program to its end; an exit code other than 0 is an error that holds what it said.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<Output> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} ended with {}: {}", output.status, said.trim());
    Ok(output)
}

/// Copies files and directories into a directory, holes as holes.
pub fn copy_into(sources: &[&Path], directory: &Path) -> Result<()> {
    let mut arguments: Vec<&OsStr> = ["-a", "--sparse=always", "--reflink=auto", "-t"].map(OsStr::new).into();
    arguments.push(directory.as_os_str());
    arguments.extend(sources.iter().map(|source| source.as_os_str()));
    run("/usr/bin/cp", &arguments).map(drop)
}
