//! `pandastack context`: which servers are known here.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::json;

use crate::context_file::ContextFile;
use crate::output::{self, Format, say};
use crate::table::table;

/// What to do with contexts.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The contexts there are.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack context list")]
    List {
        /// Only the names.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Make a context the one that is used when none is named.
    #[command(after_help = "Example:\n  pandastack context use work")]
    Use {
        /// Its name.
        name: String,
    },
    /// Forget a context and its key.
    #[command(visible_alias = "rm", after_help = "Example:\n  pandastack context delete work")]
    Delete {
        /// Its name.
        name: String,
    },
}

pub(crate) fn run(command: Command, format: Format) -> anyhow::Result<ExitCode> {
    let mut file = ContextFile::read()?;
    match command {
        Command::List { quiet } => {
            let current = |name: &str| file.current.as_deref() == Some(name);
            let values: Vec<_> = file
                .contexts
                .iter()
                .map(|(name, context)| {
                    json!({ "name": name, "api": context.api, "current": current(name), "has_key": context.api_key.is_some() })
                })
                .collect();
            if quiet {
                output::names(format, &values, |one| one["name"].as_str().unwrap_or_default().to_owned())?;
                return Ok(ExitCode::SUCCESS);
            }
            output::result(format, &values, || {
                let rows: Vec<_> = file
                    .contexts
                    .iter()
                    .map(|(name, context)| {
                        let mark = if current(name) { "*" } else { "" };
                        let key = context.api_key.as_deref().map_or("none", |_| "kept");
                        [mark.to_owned(), name.clone(), context.api.clone(), key.to_owned()]
                    })
                    .collect();
                table(["CURRENT", "NAME", "API", "KEY"], &rows)
            })?;
        }
        Command::Use { name } => {
            let context =
                file.contexts.get(&name).with_context(|| format!("there is no context `{name}`"))?;
            say(format!("using context `{name}`: {}", context.api));
            file.current = Some(name);
            file.write()?;
        }
        Command::Delete { name } => {
            file.contexts.remove(&name).with_context(|| format!("there is no context `{name}`"))?;
            if file.current.as_deref() == Some(name.as_str()) {
                file.current = None;
            }
            file.write()?;
            say(format!("context `{name}` is forgotten"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
