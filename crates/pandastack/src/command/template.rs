//! `pandastack template`: templates of a server, and those of this host where there is none.

mod build;
mod context_archive;
mod prepare;

use std::process::ExitCode;

use clap::Subcommand;
use contract::template::Template;

use crate::config::Options;
use crate::connection::Connection;
use crate::output::{self, Format};
use crate::table::{fields, size, table};

pub(crate) use prepare::bake;

/// What to do with templates.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The templates there are.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack template list")]
    List {
        /// Only the names.
        #[arg(long, short)]
        quiet: bool,
    },
    /// One template.
    #[command(after_help = "Example:\n  pandastack template get code-interpreter")]
    Get {
        /// The template.
        name: String,
    },
    /// Make a template of your own from a Dockerfile, a container image or a root file system.
    #[command(after_help = "Examples:\n  pandastack template build --name mine .\n  \
        pandastack template build --name mine --dockerfile Dockerfile.dev --build-arg VERSION=3 --target tools .\n  \
        pandastack template build --name mine --image registry.example.org/tools:1 --replace")]
    Build(build::Arguments),
    /// The builds there were, newest first.
    #[command(after_help = "Example:\n  pandastack template builds")]
    Builds {
        /// Only the ids.
        #[arg(long, short)]
        quiet: bool,
    },
    /// What a build says; follows one that is not over.
    #[command(visible_alias = "build-logs", after_help = "Example:\n  pandastack template logs bld_0a1b2c3d")]
    Logs {
        /// The build.
        build: String,
        /// Only what there is so far.
        #[arg(long)]
        no_follow: bool,
    },
    /// End a build.
    #[command(after_help = "Example:\n  pandastack template cancel bld_0a1b2c3d")]
    Cancel {
        /// The build.
        build: String,
    },
    /// Make templates ready ahead of their first use.
    ///
    /// The server that is named by --api, the environment or a context does it. Where none is named, or with --local, it is done in the
    /// data directory of this host, which no server may be using.
    #[command(after_help = "Examples:\n  pandastack template prepare base code-interpreter\n  \
        pandastack template prepare --all --local --data-dir /var/lib/pandastack")]
    Prepare {
        /// In the data directory of this host, also where a server is named.
        #[arg(long)]
        local: bool,
        /// Do not wait until the server has them ready.
        #[arg(long, conflicts_with = "local")]
        no_wait: bool,
        #[command(flatten)]
        host: Box<Options>,
        /// Their names.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        names: Vec<String>,
        /// All that come with PandaStack. Your own were prepared when they were built.
        #[arg(long)]
        all: bool,
    },
    /// Delete templates of your own. Sandboxes made from them are not touched.
    #[command(visible_alias = "rm", after_help = "Example:\n  pandastack template delete mine")]
    Delete {
        /// The templates.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

pub(crate) async fn run(
    connection: &Connection,
    command: Command,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let show = |template: &Template| output::result(format, template, || fields(template));
    match command {
        Command::Prepare { local, no_wait, host, names, all } => {
            let names = if all { prepare::all() } else { names };
            if local || !connection.names_a_server()? {
                prepare::here(&host.settings()?, &names, format).await?;
            } else {
                prepare::there(&connection.api()?, &names, !no_wait, format).await?;
            }
        }
        Command::List { quiet } => {
            let templates = connection.api()?.templates().await?;
            if quiet {
                output::names(format, &templates, |one| one.name.clone())?;
                return Ok(ExitCode::SUCCESS);
            }
            output::result(format, &templates, || {
                let row = |one: &Template| {
                    let machine = format!("{} cpu, {} MiB", one.cpu, one.memory_mb);
                    let whose = if one.is_global { "everybody" } else { "own" };
                    [one.name.clone(), one.status.clone(), machine, size(one.size_bytes), whose.to_owned()]
                };
                let rows: Vec<_> = templates.iter().map(row).collect();
                table(["NAME", "STATUS", "MACHINE", "DISK", "FOR"], &rows)
            })?;
        }
        Command::Get { name } => show(&connection.api()?.template(&name).await?)?,
        Command::Build(arguments) => return build::run(&connection.api()?, arguments, format).await,
        Command::Builds { quiet } => build::list(&connection.api()?, quiet, format).await?,
        Command::Logs { build, no_follow } => {
            return build::logs(&connection.api()?, &build, no_follow).await;
        }
        Command::Cancel { build } => connection.api()?.cancel_build(&build).await?,
        Command::Delete { names } => {
            let api = connection.api()?;
            for name in names {
                api.delete_template(&name).await?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
