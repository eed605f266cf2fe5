//! `pandastack sandbox context`: interpreters that keep their state from cell to cell.

use std::process::ExitCode;

use clap::Subcommand;
use client::Api;
use contract::interpreter::CreateContext;

use super::run_code;
use crate::duration::{seconds, since};
use crate::each::each;
use crate::output::{self, Format};

/// What to do with contexts.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a context; its id is written to standard output.
    #[command(after_help = "Example:\n  pandastack sandbox context create 0a1b2c3d --language python")]
    Create {
        /// The sandbox.
        id: String,
        /// Its language.
        #[arg(long, short, default_value = "python")]
        language: String,
        /// Working directory [default: the user's home].
        #[arg(long, short = 'w', value_name = "PATH")]
        cwd: Option<String>,
    },
    /// The contexts of a sandbox.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack sandbox context list 0a1b2c3d")]
    List {
        /// The sandbox.
        id: String,
        /// Only the ids.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Run code in a context; ends with 0, or 1 when it failed.
    #[command(
        after_help = "Examples:\n  pandastack sandbox context run 0a1b2c3d 4e5f6071 'x = 6 * 7; x'\n  \
        pandastack sandbox context run 0a1b2c3d 4e5f6071 --timeout 300 < cell.py"
    )]
    Run {
        /// The sandbox.
        id: String,
        /// The context.
        #[arg(value_name = "CONTEXT")]
        context_id: String,
        /// The code [default: standard input].
        code: Option<String>,
        /// Time after which it is stopped, such as 90 or 5m [default: 30].
        #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
        timeout: Option<f64>,
    },
    /// End contexts and forget what they hold.
    #[command(
        visible_alias = "rm",
        after_help = "Example:\n  pandastack sandbox context delete 0a1b2c3d 4e5f6071"
    )]
    Delete {
        /// The sandbox.
        id: String,
        /// The contexts.
        #[arg(value_name = "CONTEXTS", required = true)]
        context_ids: Vec<String>,
    },
}

pub(super) async fn run(api: &Api, command: Command, format: Format) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create { id, language, cwd } => {
            let made = api.create_context(&id, &CreateContext { language: Some(language), cwd }).await?;
            output::result(format, &made, || made.id.clone())?;
        }
        Command::List { id, quiet } => {
            let contexts = api.contexts(&id).await?;
            if quiet {
                output::names(format, &contexts, |one| one.id.clone())?;
                return Ok(ExitCode::SUCCESS);
            }
            output::list(format, &contexts, ["ID", "LANGUAGE", "CELLS", "AGE"], |one| {
                [one.id.clone(), one.language.clone(), one.cells.to_string(), since(&one.created_at)]
            })?;
        }
        Command::Run { id, context_id, code, timeout } => {
            let code = run_code::given(code)?;
            return run_code::cell(api, (&id, &context_id), code, timeout, format).await;
        }
        Command::Delete { id, context_ids } => {
            each("contexts", &context_ids, async |context| api.delete_context(&id, context).await).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
