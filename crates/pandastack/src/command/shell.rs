//! What shells and `man` know about this program.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

use crate::complete;
use crate::output::say;

/// Options of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Options of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// A directory for a page of every command, such as /usr/local/share/man/man1.
    directory: PathBuf,
}

pub(crate) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<ExitCode> {
    io::stdout().write_all(&complete::script(arguments.shell, "pandastack")?)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(arguments: &ManArguments, program: clap::Command) -> anyhow::Result<ExitCode> {
    let directory = &arguments.directory;
    let written =
        std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(program, directory));
    written.with_context(|| format!("write pages to {}", directory.display()))?;
    say(format!("pages are in {}", directory.display()));
    Ok(ExitCode::SUCCESS)
}
