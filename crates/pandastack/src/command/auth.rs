//! `pandastack auth`: the keys to servers, and who one is there.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::json;

use crate::connection::{self, API_DEFAULT, API_VARIABLE, Connection, KEY_VARIABLE, variable};
use crate::context_file::{Context, ContextFile};
use crate::local_terminal;
use crate::output::{self, Format, say};

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Try a key and keep it in a context.
    #[command(after_help = "Examples:\n  pandastack auth login --api http://127.0.0.1:8080\n  \
        echo \"$KEY\" | pandastack auth login --name work --api https://sandboxes.example.org")]
    Login {
        /// The context's name [default: the one given with --context, or `default`].
        #[arg(long)]
        name: Option<String>,
    },
    /// Forget the key of a context.
    #[command(after_help = "Example:\n  pandastack auth logout --context work")]
    Logout,
    /// Show which server and key are used, and whether the key works.
    #[command(visible_alias = "whoami", after_help = "Example:\n  pandastack auth status")]
    Status,
}

pub(crate) async fn run(
    connection: &Connection,
    command: Command,
    format: Format,
) -> anyhow::Result<ExitCode> {
    match command {
        Command::Login { name } => login(connection, name).await?,
        Command::Logout => logout(connection)?,
        Command::Status => {
            let decided = connection.decided()?;
            let me = connection.api()?.me().await?;
            let shown = json!({
                "api": decided.api,
                "context": decided.context,
                "key_from": decided.key_from,
                "workspace": me.workspace,
                "name": me.name,
                "scope": me.scope,
            });
            output::object(format, &shown)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn login(connection: &Connection, name: Option<String>) -> anyhow::Result<()> {
    let mut file = ContextFile::read()?;
    let name = name.or_else(|| connection.context.clone()).unwrap_or_else(|| "default".to_owned());
    let known = file.contexts.get(&name).map(|context| context.api.clone());
    let api = connection.api.clone().or_else(|| variable(API_VARIABLE)).or(known);
    let api = api.unwrap_or_else(|| API_DEFAULT.to_owned());
    let key = local_terminal::secret(&format!("API key for {api}"))?;
    let me = connection::api(&api, Some(key.clone()))?.me().await.context("try the key")?;
    file.contexts.insert(name.clone(), Context { api: api.clone(), api_key: Some(key) });
    file.current = Some(name.clone());
    let path = file.write()?;
    say(format!("logged in to {api} as {}; context `{name}` is in {}", me.workspace, path.display()));
    if variable(KEY_VARIABLE).is_some() {
        say(format!("note: {KEY_VARIABLE} is set and counts for more than this context"));
    }
    Ok(())
}

fn logout(connection: &Connection) -> anyhow::Result<()> {
    let mut file = ContextFile::read()?;
    let name = connection.context.clone().or_else(|| file.current.clone());
    let name = name.context("there is no context to log out of")?;
    let context = file.contexts.get_mut(&name).with_context(|| format!("there is no context `{name}`"))?;
    context.api_key = None;
    file.write()?;
    say(format!(
        "the key of context `{name}` is forgotten here; it works until it is revoked: pandastack token revoke"
    ));
    Ok(())
}
