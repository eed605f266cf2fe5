//! The reference of the command line, from what the program says of itself.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tests::published::output;
use tokio::process::Command;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Options of every command, said once.
const EVERYWHERE: [&str; 4] = ["--output", "--help", "--version", "--context"];

/// The whole page.
pub(crate) async fn reference(program: &Path) -> Result<String> {
    let mut page = String::from(
        "# Command line reference\n\n<!-- Made from `pandastack --help` by tests/tests/clients/guides. Do not edit. -->\n\n\
         [The command line](../cli.md) explains how it behaves. Every command takes `--output table|json`, `--api`, `--context`, `--help` and\n\
         `--version`.\n",
    );
    let mut rest = vec![Vec::new()];
    while let Some(words) = rest.pop() {
        let help = help(program, &words).await?;
        let subcommands = subcommands(&help);
        if !words.is_empty() {
            let marks = "#".repeat(words.len() + 1);
            write!(page, "\n{marks} `pandastack {}`\n\n", words.join(" "))?;
            section(&mut page, &help, subcommands.is_empty())?;
        }
        let below = subcommands.into_iter().rev().map(|name| [words.clone(), vec![name]].concat());
        rest.extend(below);
    }
    Ok(page)
}

async fn help(program: &Path, words: &[String]) -> Result<String> {
    let mut command = Command::new(program);
    // Nothing of the reader's: help shows what variables are set to.
    command.env_clear().args(words).arg("-h");
    output(&mut command, TIMEOUT).await.with_context(|| format!("the help of {words:?}"))
}

/// Names of commands below this one.
fn subcommands(help: &str) -> Vec<String> {
    let mut lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.by_ref().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// What a command is for, and all of it where there is nothing below.
fn section(page: &mut String, help: &str, whole: bool) -> Result<()> {
    let mut blocks = help.trim_end().split("\n\n");
    writeln!(page, "{}.", blocks.next().unwrap_or_default().trim_end_matches('.'))?;
    if !whole {
        return Ok(());
    }
    let mut kept = Vec::new();
    for block in blocks.filter(|block| !block.starts_with("Connection:")) {
        let (title, lines) = block.split_once('\n').unwrap_or((block, ""));
        if title != "Options:" {
            kept.push(block.to_owned());
            continue;
        }
        let options = options(lines);
        if !options.is_empty() {
            kept.push(format!("{title}\n{}", options.join("\n")));
        }
    }
    write!(page, "\n```text\n{}\n```\n", kept.join("\n\n")).context("write to a string")
}

/// Options without those of every command; what belongs to one may have several lines.
fn options(lines: &str) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut keeping = true;
    for line in lines.lines() {
        if line.trim_start().starts_with('-') {
            keeping = !EVERYWHERE.iter().any(|option| {
                line.split_whitespace().take(3).any(|word| word.trim_end_matches(',') == *option)
            });
        }
        if keeping {
            kept.push(line);
        }
    }
    kept
}
