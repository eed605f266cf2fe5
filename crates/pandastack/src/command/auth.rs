//! `pandastack auth`: the keys to servers, and who one is there.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use contract::identity::PatchMe;
use contract::sandbox::NetworkMode;
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
    /// Show which server and key are used, whether the key works, and what new sandboxes reach. The same as `pandastack me`.
    #[command(visible_alias = "whoami", after_help = "Example:\n  pandastack auth status")]
    Status,
    /// Choose what new sandboxes of the workspace reach when --network does not say.
    #[command(
        after_help = "Examples:\n  pandastack auth network-default all\n  pandastack auth network-default default"
    )]
    NetworkDefault {
        /// What they reach.
        #[arg(value_enum)]
        reach: Reach,
    },
}

/// What new sandboxes reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reach {
    /// Whatever the operator lets guests reach.
    All,
    /// Nothing.
    None,
    /// What the operator's own default is.
    Default,
}

impl Reach {
    const fn mode(self) -> Option<NetworkMode> {
        match self {
            Self::All => Some(NetworkMode::All),
            Self::None => Some(NetworkMode::None),
            Self::Default => None,
        }
    }
}

pub(crate) async fn run(
    connection: &Connection,
    command: Command,
    format: Format,
) -> anyhow::Result<ExitCode> {
    match command {
        Command::Login { name } => login(connection, name).await?,
        Command::Logout => logout(connection)?,
        Command::Status => status(connection, format).await?,
        Command::NetworkDefault { reach } => {
            let change = PatchMe { network_default: Some(reach.mode()) };
            let me = connection.api()?.patch_me(&change).await?;
            say(format!("new sandboxes reach: {}", reached(me.network_default)));
            output::result(format, &me, String::new)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Which server and key are used, and whose the key is.
pub(crate) async fn status(connection: &Connection, format: Format) -> anyhow::Result<()> {
    let decided = connection.decided()?;
    let me = connection.api()?.me().await?;
    let mut shown = json!({
        "api": decided.api,
        "context": decided.context,
        "key_from": decided.key_from,
        "workspace": me.workspace,
        "name": me.name,
        "scope": me.scope,
        "network_default": me.network_default,
    });
    if format == Format::Table {
        shown["network_default"] = reached(me.network_default).into();
    }
    Ok(output::object(format, &shown)?)
}

const fn reached(default: Option<NetworkMode>) -> &'static str {
    match default {
        Some(NetworkMode::All) => "all",
        Some(NetworkMode::None) => "none",
        None => "as the operator decided",
    }
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
