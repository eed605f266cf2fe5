//! The reference, made from the sources and compared with the one that is kept.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tests::published::{self, output};
use tests::run_for;
use tokio::process::Command;

use crate::guides::clients::{Clients, tree};
use crate::guides::{command_line, http};

/// Set to `1`, the kept pages are written anew.
const UPDATE: &str = "PANDASTACK_UPDATE_REFERENCE";
const TIMEOUT: Duration = Duration::from_secs(600);

/// Holds a page against the kept one.
fn check(name: &str, made: &str) -> Result<()> {
    let kept = tree().join("docs/reference").join(name);
    if std::env::var(UPDATE).is_ok_and(|value| value == "1") {
        std::fs::write(&kept, made).with_context(|| format!("write {name}"))?;
    }
    let kept = std::fs::read_to_string(&kept).with_context(|| format!("read {name}"))?;
    let differs = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
    let line = differs.map_or(kept.lines().count().min(made.lines().count()), |line| line) + 1;
    ensure!(
        kept == made,
        "docs/reference/{name} is not what the sources say, from line {line} on: run this test with {UPDATE}=1"
    );
    Ok(())
}

#[test]
fn http_is_as_the_document_says() -> Result<()> {
    let document = std::fs::read(tree().join("docs/openapi.json")).context("read docs/openapi.json")?;
    check("http.md", &http::reference(&serde_json::from_slice(&document)?)?)
}

#[test]
fn the_command_line_is_as_the_program_says() -> Result<()> {
    run_for(TIMEOUT, async || {
        let program = tokio::task::block_in_place(tests::program::path)?;
        check("cli.md", &command_line::reference(program).await?)
    })
}

#[test]
fn python_is_as_the_source_says() -> Result<()> {
    run_for(TIMEOUT, async || {
        let python = published::python("requirements-sdk.txt").await?;
        let mut script = Command::new(python.join("python"));
        script.arg("scripts/reference.py").current_dir(tree().join("sdk/python"));
        check("python.md", &output(script.env("PYTHONDONTWRITEBYTECODE", "1"), TIMEOUT).await?)
    })
}

#[test]
fn typescript_is_as_the_source_says() -> Result<()> {
    run_for(TIMEOUT, async || {
        let clients = Clients::get().await?;
        let mut script = Command::new("node");
        script.arg("scripts/reference.mjs").current_dir(&clients.typescript);
        check("typescript.md", &output(&mut script, TIMEOUT).await?)
    })
}
