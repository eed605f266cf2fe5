//! The `pandastack` binary: subcommands and wiring only.

mod command;
mod config;
mod engine;
mod output;
mod traces;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use config::Options;
use output::Format;
use telemetry::Traces;

/// Machines for AI agents: real VMs that are restored, forked and put to sleep in milliseconds.
#[derive(Debug, Parser)]
#[command(name = "pandastack", version, propagate_version = true)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// How results are written to standard output.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find out what this host can do, by trying it, and how to mend what it cannot.
    Doctor(command::doctor::Arguments),
    /// Show a sandbox at work: create it, run Python in it, fork it, put it to sleep and wake it.
    Demo,
    /// Serve the API: everything in one process, with nothing else to install.
    Serve(Box<command::serve::Arguments>),
    /// Build and prepare templates.
    #[command(subcommand)]
    Template(command::template::Command),
    /// Work on this host's sandboxes directly, without a server. Each call takes over the machines that earlier calls left
    /// running.
    #[command(subcommand)]
    Local(command::local::Command),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            output::report_error(&error);
            ExitCode::from(1)
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let settings = arguments.options.settings()?;
    let traces = match &arguments.command {
        Command::Serve(serve) => serve.traces(&settings)?,
        _ => None,
    };
    let (layer, exporter) = traces.map(|Traces { layer, exporter }| (layer, exporter)).unzip();
    output::start_logging(layer);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.command {
            Command::Doctor(doctor) => command::doctor::run(&settings, &doctor, arguments.output),
            Command::Demo => command::demo::run(&settings).await,
            Command::Serve(serve) => command::serve::run(&settings, *serve, exporter).await,
            Command::Template(template) => {
                command::template::run(&settings, template, arguments.output).await
            }
            Command::Local(local) => command::local::run(&settings, local, arguments.output).await,
        }
    })
}
