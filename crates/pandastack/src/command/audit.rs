//! `pandastack audit`: what was changed, and with which key.

use std::process::ExitCode;

use clap::Subcommand;

use crate::connection::Connection;
use crate::output::{self, Format};

/// What to do with the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Requests that changed something, newest first.
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  pandastack audit list --limit 20\n  \
        pandastack audit list --since 2026-01-31T00:00:00Z --output json"
    )]
    List {
        /// From when on: RFC 3339, or seconds of Unix time [default: the first that is kept].
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// How many at most [default: as many as the server gives].
        #[arg(long, value_name = "COUNT")]
        limit: Option<u32>,
    },
}

pub(crate) async fn run(
    connection: &Connection,
    command: Command,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let api = connection.api()?;
    match command {
        Command::List { since, limit } => {
            let audit = api.audit(since.as_deref(), limit).await?;
            let headings = ["TIME", "KEY", "METHOD", "PATH", "STATUS", "REQUEST"];
            output::list(format, &audit.entries, headings, |one| {
                let status = one.status.to_string();
                [&one.ts, &one.token, &one.method, &one.path, &status, &one.request_id].map(Clone::clone)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
