//! `pandastack token`: API keys.

use std::process::ExitCode;

use clap::Subcommand;
use contract::identity::CreateToken;

use crate::connection::Connection;
use crate::duration::{now_unix_ms, seconds, since, until};
use crate::each::each;
use crate::output::{self, Format, say};

const DAY_SECONDS: f64 = 86_400.0;

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a key. It is shown this once.
    #[command(after_help = "Example:\n  pandastack token create ci --scope write --expires 30d")]
    Create {
        /// What to call it.
        label: Option<String>,
        /// What it allows: read, write or admin [default: as much as the key in use].
        #[arg(long)]
        scope: Option<String>,
        /// Time until it stops working, such as 30d or 12h [default: never].
        #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
        expires: Option<f64>,
        /// The same in days.
        #[arg(long, value_name = "DAYS", conflicts_with = "expires", allow_negative_numbers = true)]
        expires_in_days: Option<f64>,
    },
    /// The keys there are, without the keys.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack token list")]
    List {
        /// Only the first characters of each, by which it is revoked.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Make keys useless.
    #[command(after_help = "Example:\n  pandastack token revoke pds_01234567")]
    Revoke {
        /// Their first characters, as `list` shows them.
        #[arg(required = true)]
        prefixes: Vec<String>,
    },
}

pub(crate) async fn run(
    connection: &Connection,
    command: Command,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let api = connection.api()?;
    match command {
        Command::Create { label, scope, expires, expires_in_days } => {
            let expires_in_days = expires_in_days.or_else(|| expires.map(|seconds| seconds / DAY_SECONDS));
            let request = CreateToken { name: label.clone(), label, scope, expires_in_days };
            let made = api.create_token(&request).await?;
            output::result(format, &made, || made.token.clone())?;
            say(format!("key {} is shown this once", made.about.prefix));
        }
        Command::List { quiet: true } => {
            output::names(format, &api.tokens().await?, |one| one.prefix.clone())?;
        }
        Command::List { quiet: false } => {
            let headings = ["PREFIX", "LABEL", "SCOPE", "AGE", "EXPIRES"];
            output::list(format, &api.tokens().await?, headings, |one| {
                let left = |time: &String| until(time, now_unix_ms()).unwrap_or_else(|| time.clone());
                let expires = one.expires_at.as_ref().map_or_else(|| "never".to_owned(), left);
                let (prefix, label, scope) = (one.prefix.clone(), one.label.clone(), one.scope.clone());
                [prefix, label, scope, since(&one.created_at), expires]
            })?;
        }
        Command::Revoke { prefixes } => {
            each("keys", &prefixes, async |prefix| api.revoke_token(prefix).await).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
