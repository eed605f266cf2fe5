//! `pandastack token`: API keys.

use std::process::ExitCode;

use clap::Subcommand;
use contract::identity::{CreateToken, Token};

use crate::connection::Connection;
use crate::output::{self, Format, say};
use crate::table::table;

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a key. It is shown this once.
    #[command(after_help = "Example:\n  pandastack token create ci --scope write --expires-in-days 30")]
    Create {
        /// What to call it.
        label: Option<String>,
        /// What it allows: read, write or admin [default: as much as the key in use].
        #[arg(long)]
        scope: Option<String>,
        /// Days until it stops working [default: never].
        #[arg(long)]
        expires_in_days: Option<f64>,
    },
    /// The keys there are, without the keys.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack token list")]
    List,
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
        Command::Create { label, scope, expires_in_days } => {
            let request = CreateToken { name: label.clone(), label, scope, expires_in_days };
            let made = api.create_token(&request).await?;
            output::result(format, &made, || made.token.clone())?;
            say(format!("key {} is shown this once", made.about.prefix));
        }
        Command::List => {
            let tokens = api.tokens().await?;
            output::result(format, &tokens, || {
                let row = |one: &Token| {
                    let expires = one.expires_at.clone().unwrap_or_else(|| "never".to_owned());
                    [
                        one.prefix.clone(),
                        one.label.clone(),
                        one.scope.clone(),
                        one.created_at.clone(),
                        expires,
                    ]
                };
                let rows: Vec<_> = tokens.iter().map(row).collect();
                table(["PREFIX", "LABEL", "SCOPE", "CREATED", "EXPIRES"], &rows)
            })?;
        }
        Command::Revoke { prefixes } => {
            for prefix in prefixes {
                api.revoke_token(&prefix).await?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
