//! The `pandastack` binary: subcommands and wiring only.

mod admin;
mod amount;
mod attached;
mod build_info;
mod builds;
mod command;
mod complete;
mod config;
mod connection;
mod context_file;
mod duration;
mod each;
mod engine;
mod guest_command;
mod hints;
mod local_terminal;
mod moving_line;
mod output;
mod progress;
mod quoting;
mod short_id;
mod signals;
mod table;
mod traces;
mod transfer;
mod waiting;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use config::{LogFormat, Options, Settings};
use connection::Connection;
use output::Format;
use telemetry::Traces;

/// Machines for AI agents: real VMs that are restored, forked and put to sleep in milliseconds.
#[derive(Debug, Parser)]
#[command(name = "pandastack", version = build_info::LINE, propagate_version = true)]
struct Arguments {
    /// How results are written to standard output.
    #[arg(long, short, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command in a sandbox of its own: made, given the local files that the command names, and deleted afterwards.
    ///
    /// Ends with the command's exit code. What is piped in is what it reads; Ctrl-C is for it.
    #[command(after_help = "Examples:\n  pandastack run python3 script.py data.csv\n  \
        pandastack run --template code-interpreter -- python3 -c 'import pandas; print(pandas.__version__)'\n  \
        cat access.log | pandastack run 'sort | uniq -c | sort -rn | head'")]
    Run(Box<command::run::Arguments>),
    /// Work with sandboxes.
    #[command(subcommand, visible_alias = "sb")]
    Sandbox(Box<command::sandbox::Command>),
    /// Work with files of sandboxes.
    #[command(subcommand)]
    Fs(command::fs::Command),
    /// Work with snapshots.
    #[command(subcommand)]
    Snapshot(command::snapshot::Command),
    /// Work with templates.
    #[command(subcommand)]
    Template(Box<command::template::Command>),
    /// Work with volumes.
    #[command(subcommand)]
    Volume(command::volume::Command),
    /// Work with API keys.
    #[command(subcommand)]
    Token(command::token::Command),
    /// See what was changed, and with which key.
    #[command(subcommand)]
    Audit(command::audit::Command),
    /// Log in, and show the current account.
    #[command(subcommand)]
    Auth(command::auth::Command),
    /// Show who one is: which server and key are used, and what new sandboxes reach. The same as `auth status`.
    #[command(after_help = "Example:\n  pandastack me")]
    Me,
    /// Choose among servers.
    #[command(subcommand)]
    Context(command::context::Command),
    /// Give the server's tools to a program that speaks the Model Context Protocol (MCP) over standard input and output.
    #[command(after_help = "Examples:\n  pandastack mcp\n  pandastack mcp --sandbox 0a1b2c3d\n\n\
        With Claude Code: claude mcp add sandboxes -- pandastack mcp")]
    Mcp(command::mcp::Arguments),
    /// Run workers for agents whose loop runs elsewhere.
    #[command(subcommand)]
    Agents(command::agents::Command),
    /// Serve the API: everything in one process, with nothing else to install.
    #[command(after_help = "Example:\n  pandastack serve --listen 127.0.0.1:8080 --prepare base")]
    Serve {
        #[command(flatten)]
        host: Box<Options>,
        #[command(flatten)]
        serve: Box<command::serve::Arguments>,
    },
    /// Find out what this host can do, by trying it, and how to mend what it cannot.
    #[command(after_help = "Example:\n  pandastack doctor")]
    Doctor {
        #[command(flatten)]
        host: Box<Options>,
        #[command(flatten)]
        doctor: command::doctor::Arguments,
    },
    /// Install the Firecracker release that this program was tested with, where guests run under KVM.
    ///
    /// The archive's SHA-256 is compared with the one this program knows before anything in it is looked at. What is installed already is
    /// left alone.
    #[command(after_help = "Examples:\n  pandastack setup\n  \
        pandastack setup --file firecracker-v1.15.1-x86_64.tgz\n  \
        pandastack setup --from https://mirror.example.org/firecracker --to /usr/local/bin/firecracker")]
    Setup {
        #[command(flatten)]
        host: Box<Options>,
        #[command(flatten)]
        setup: command::setup::Arguments,
    },
    /// Remove a data directory and everything that it owns on this host: machines, networks, firewall, mounts, files.
    #[command(after_help = "Examples:\n  pandastack uninstall\n  \
        pandastack uninstall --yes --data-dir /srv/pandastack\n  \
        pandastack uninstall --keep-data --stop")]
    Uninstall {
        #[command(flatten)]
        host: Box<Options>,
        #[command(flatten)]
        uninstall: command::uninstall::Arguments,
    },
    /// Remove what instances without a server and without a data directory left on this host, and name what belongs to the others.
    #[command(after_help = "Examples:\n  pandastack gc --dry-run\n  pandastack gc")]
    Gc(command::gc::Arguments),
    /// Copy a whole data directory (sandboxes that sleep, snapshots, volumes, templates, keys) into a directory. The server must be
    /// stopped.
    #[command(after_help = "Examples:\n  pandastack backup /mnt/backups/monday\n  \
        pandastack backup --skip-running --data-dir /srv/pandastack /mnt/backups/monday")]
    Backup {
        #[command(flatten)]
        host: Box<Options>,
        #[command(flatten)]
        backup: command::backup::BackupArguments,
    },
    /// Make a data directory from a backup, as an instance of its own. The data directory must not be there yet.
    #[command(after_help = "Example:\n  pandastack restore --data-dir /srv/restored /mnt/backups/monday")]
    Restore {
        #[command(flatten)]
        host: Box<Options>,
        #[command(flatten)]
        restore: command::backup::RestoreArguments,
    },
    /// Add tenants and set what each may have. For operators, on the server's host.
    Tenant {
        #[command(flatten)]
        host: Box<Options>,
        #[command(subcommand)]
        command: command::tenant::Command,
    },
    /// Show a sandbox at work on this host: create it, run Python in it, fork it, put it to sleep and wake it.
    #[command(after_help = "Example:\n  pandastack demo")]
    Demo {
        #[command(flatten)]
        host: Box<Options>,
    },
    /// Work on this host's sandboxes directly, without a server. Each call takes over the machines that earlier calls left
    /// running.
    Local {
        #[command(flatten)]
        host: Box<Options>,
        #[command(subcommand)]
        command: command::local::Command,
    },
    /// Write a script that completes commands, options, and the server's names and ids in a shell.
    ///
    /// The script asks this program, which asks the server that the line names, for less than a second.
    #[command(
        after_help = "Example:\n  pandastack completions bash > ~/.local/share/bash-completion/completions/pandastack"
    )]
    Completions(command::shell::CompletionsArguments),
    /// Write manual pages.
    #[command(after_help = "Example:\n  pandastack man ~/.local/share/man/man1")]
    Man(command::shell::ManArguments),
}

fn main() -> ExitCode {
    complete::answer(Arguments::command);
    let arguments = Arguments::parse();
    let format = arguments.output;
    match run(arguments) {
        Ok(code) => code,
        Err(error) if output::reader_gone(&error) => ExitCode::from(output::READER_GONE),
        Err(error) => {
            output::report_error(&error, format);
            ExitCode::from(1)
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { connection, output: format, command } = arguments;
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match command {
        Command::Serve { host, serve } => {
            let settings = host.settings()?;
            let traces = serve.traces(&settings)?;
            let (layer, exporter) = traces.map(|Traces { layer, exporter }| (layer, exporter)).unzip();
            output::start_logging(layer, serve.log_format(&settings));
            runtime()?.block_on(command::serve::run(&settings, *serve, exporter))
        }
        command => {
            output::start_logging(None, LogFormat::Text);
            runtime()?.block_on(perform(&connection, command, format))
        }
    }
}

async fn perform(connection: &Connection, command: Command, format: Format) -> anyhow::Result<ExitCode> {
    let settings = |host: &Options| -> anyhow::Result<Settings> { host.settings() };
    match command {
        Command::Run(run) => command::run::run(connection, *run).await,
        Command::Sandbox(sandbox) => command::sandbox::run(connection, *sandbox, format).await,
        Command::Fs(fs) => command::fs::run(connection, fs, format).await,
        Command::Snapshot(snapshot) => command::snapshot::run(connection, snapshot, format).await,
        Command::Template(template) => command::template::run(connection, *template, format).await,
        Command::Volume(volume) => command::volume::run(connection, volume, format).await,
        Command::Token(token) => command::token::run(connection, token, format).await,
        Command::Audit(audit) => command::audit::run(connection, audit, format).await,
        Command::Auth(auth) => command::auth::run(connection, auth, format).await,
        Command::Me => command::auth::status(connection, format).await.map(|()| ExitCode::SUCCESS),
        Command::Context(context) => command::context::run(context, format),
        Command::Mcp(mcp) => command::mcp::run(connection, mcp).await,
        Command::Agents(agents) => command::agents::run(connection, agents),
        Command::Serve { host, serve } => command::serve::run(&settings(&host)?, *serve, None).await,
        Command::Doctor { host, doctor } => command::doctor::run(&settings(&host)?, &doctor, format).await,
        Command::Setup { host, setup } => command::setup::run(&settings(&host)?, &setup, format).await,
        Command::Uninstall { host, uninstall } => {
            command::uninstall::run(&settings(&host)?, &uninstall, format).await
        }
        Command::Gc(gc) => command::gc::run(&gc, format).await,
        Command::Backup { host, backup } => command::backup::back_up(&settings(&host)?, &backup, format),
        Command::Restore { host, restore } => command::backup::restore(&settings(&host)?, &restore, format),
        Command::Tenant { host, command } => command::tenant::run(&settings(&host)?, command, format).await,
        Command::Demo { host } => command::demo::run(&settings(&host)?).await,
        Command::Local { host, command } => command::local::run(&settings(&host)?, command, format).await,
        Command::Completions(shell) => command::shell::completions(&shell),
        Command::Man(man) => command::shell::man(&man, Arguments::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(command: &clap::Command, path: &str, visit: &mut dyn FnMut(&str, &clap::Command)) {
        visit(path, command);
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            walk(sub, &format!("{path} {}", sub.get_name()), visit);
        }
    }

    #[test]
    fn every_command_is_explained_with_an_example_of_itself() {
        let mut found = 0;
        walk(&Arguments::command(), "pandastack", &mut |path, command| {
            assert!(command.get_about().is_some(), "{path} says nothing about itself");
            if command.has_subcommands() {
                return;
            }
            found += 1;
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{path} --help has no example");
            assert!(help.contains(path), "the example of {path} is of something else");
        });
        assert!(found > 60, "only {found} commands");
    }

    /// The words of a line as a shell reads them, as far as examples need it: quotes, and redirections that end it.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for one in line.chars() {
            match quote {
                Some(mark) if one == mark => quote = None,
                Some(_) => word.get_or_insert_default().push(one),
                None if one == '<' || one == '>' => break,
                None if one == '\'' || one == '"' => {
                    quote = Some(one);
                    word.get_or_insert_default();
                }
                None if one == ' ' => words.extend(word.take()),
                None => word.get_or_insert_default().push(one),
            }
        }
        words.extend(word);
        words
    }

    #[test]
    fn examples_are_understood() {
        walk(&Arguments::command(), "pandastack", &mut |_, command| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter_map(|line| line.find("pandastack ").map(|at| &line[at..])) {
                let line = line.replace("$(", "").trim_end_matches(')').to_owned();
                let parsed = Arguments::try_parse_from(words(&line));
                assert!(
                    parsed.is_ok(),
                    "{line}: {}",
                    parsed.err().map(|error| error.to_string()).unwrap_or_default()
                );
            }
        });
    }

    #[test]
    fn the_command_line_agrees_with_itself() {
        Arguments::command().debug_assert();
    }
}
