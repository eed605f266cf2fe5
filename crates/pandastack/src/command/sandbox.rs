//! `pandastack sandbox`: sandboxes of a server.

mod context;
pub(crate) mod cp;
mod create;
mod exec;
mod explore;
mod fork;
mod look;
mod process;
mod run_code;
mod ssh;
mod state;

use std::process::ExitCode;

use clap::Subcommand;

use crate::connection::Connection;
use crate::output::Format;

pub(crate) use create::Origin;

/// What to do with sandboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a sandbox; its id is written to standard output.
    #[command(after_help = "Examples:\n  pandastack sandbox create\n  \
        pandastack sandbox create --template code-interpreter --ttl 600 --env TOKEN --metadata task=42")]
    Create(create::Arguments),
    /// The sandboxes there are.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack sandbox list --metadata task=42")]
    List(look::ListArguments),
    /// Everything about a sandbox.
    #[command(after_help = "Example:\n  pandastack sandbox get 0a1b2c3d --output json")]
    Get {
        /// The sandbox.
        id: String,
    },
    /// Run a command in a sandbox as if it ran here; ends with the command's exit code.
    ///
    /// One word is a line for the shell, several are a program and its arguments. What is piped in is what it reads; Ctrl-C is for it.
    #[command(after_help = "Examples:\n  pandastack sandbox exec 0a1b2c3d -- ls -l /workspace\n  \
        pandastack sandbox exec 0a1b2c3d 'cat /proc/cpuinfo | grep model'\n  \
        tar c src | pandastack sandbox exec 0a1b2c3d -- tar x -C /workspace")]
    Exec(exec::Arguments),
    /// Run code: once, or in a context that keeps its state; ends with 0, or 1 when it failed.
    #[command(after_help = "Examples:\n  pandastack sandbox run-code 0a1b2c3d 'print(6 * 7)'\n  \
        pandastack sandbox run-code 0a1b2c3d --language javascript < program.js")]
    RunCode(run_code::Arguments),
    /// Work with code contexts: interpreters that keep their state from cell to cell.
    #[command(subcommand)]
    Context(context::Command),
    /// Work with processes that go on whether or not anybody is connected.
    #[command(subcommand)]
    Process(process::Command),
    /// What a sandbox's console said.
    #[command(after_help = "Example:\n  pandastack sandbox logs -f 0a1b2c3d")]
    Logs(look::LogsArguments),
    /// Open a terminal in a sandbox; ends with the shell's exit code.
    #[command(visible_alias = "shell", after_help = "Example:\n  pandastack sandbox ssh 0a1b2c3d")]
    Ssh(ssh::Arguments),
    /// Copy files and directories into a sandbox or out of it.
    #[command(after_help = "Examples:\n  pandastack sandbox cp ./src 0a1b2c3d:/workspace/src\n  \
        pandastack sandbox cp 0a1b2c3d:/workspace/out.csv .")]
    Cp(cp::Arguments),
    /// Stop sandboxes' CPUs. They keep their memory.
    #[command(after_help = "Example:\n  pandastack sandbox pause 0a1b2c3d")]
    Pause(state::Ids),
    /// Let paused sandboxes go on.
    #[command(after_help = "Example:\n  pandastack sandbox resume 0a1b2c3d")]
    Resume(state::Ids),
    /// Put sandboxes to sleep: memory and disk become files.
    #[command(visible_alias = "stop", after_help = "Example:\n  pandastack sandbox hibernate 0a1b2c3d")]
    Hibernate(state::Ids),
    /// Wake sandboxes where they were. Using one wakes it too.
    #[command(visible_alias = "start", after_help = "Example:\n  pandastack sandbox wake 0a1b2c3d")]
    Wake(state::Ids),
    /// Keep an instant of a sandbox; the snapshot's id is written to standard output.
    #[command(after_help = "Example:\n  pandastack sandbox snapshot 0a1b2c3d")]
    Snapshot {
        /// The sandbox.
        id: String,
    },
    /// Make a sandbox that goes on from this instant of another; its id is written to standard output.
    #[command(after_help = "Example:\n  pandastack sandbox fork 0a1b2c3d --metadata branch=one")]
    Fork(fork::Arguments),
    /// Make several sandboxes that go on from this instant of another; their ids are written to standard output.
    #[command(after_help = "Example:\n  pandastack sandbox fork-tree 0a1b2c3d --count 4")]
    ForkTree(fork::TreeArguments),
    /// Keep one child of a tree.
    #[command(after_help = "Example:\n  pandastack sandbox promote 0a1b2c3d --cleanup-siblings")]
    Promote(fork::PromoteArguments),
    /// Fork a sandbox several ways, run another command in each, and keep the best; its id is written to standard output.
    ///
    /// A branch's score is 1 when its command ends with 0, unless --score measures it. Those that fail do not count. The branches
    /// are compared by score, then by time, and all but the best are deleted.
    #[command(after_help = "Examples:\n  \
        pandastack sandbox explore 0a1b2c3d 'make FLAGS=-O2' 'make FLAGS=-O3' --score 'stat -c %s app' --select min\n  \
        pandastack sandbox explore 0a1b2c3d --candidates ways.json --output json")]
    Explore(explore::Arguments),
    /// How long a sandbox may idle.
    #[command(after_help = "Example:\n  pandastack sandbox lifecycle 0a1b2c3d")]
    Lifecycle {
        /// The sandbox.
        id: String,
    },
    /// Change how long a sandbox may idle.
    #[command(after_help = "Example:\n  pandastack sandbox set-ttl 0a1b2c3d 3600")]
    SetTtl {
        /// The sandbox.
        id: String,
        /// Seconds without use after which it goes.
        #[arg(allow_negative_numbers = true)]
        seconds: i64,
    },
    /// Have a sandbox sleep when it idles instead of being deleted.
    #[command(after_help = "Example:\n  pandastack sandbox set-persistent 0a1b2c3d true")]
    SetPersistent {
        /// The sandbox.
        id: String,
        /// Whether it does.
        #[arg(action = clap::ArgAction::Set, default_value_t = true)]
        persistent: bool,
    },
    /// Change a sandbox's metadata, variables or network.
    #[command(
        after_help = "Example:\n  pandastack sandbox update 0a1b2c3d --metadata task=43 --unset-metadata draft"
    )]
    Update(state::UpdateArguments),
    /// What happened to a sandbox.
    #[command(after_help = "Example:\n  pandastack sandbox events 0a1b2c3d --tail 10")]
    Events {
        /// The sandbox.
        id: String,
        /// How many of the newest.
        #[arg(long, default_value_t = 50)]
        tail: u32,
    },
    /// What a sandbox costs its host and sees of itself.
    #[command(after_help = "Example:\n  pandastack sandbox metrics 0a1b2c3d")]
    Metrics {
        /// The sandbox.
        id: String,
    },
    /// The ports of a sandbox on which something listens, or that have a name.
    #[command(after_help = "Example:\n  pandastack sandbox ports 0a1b2c3d")]
    Ports {
        /// The sandbox.
        id: String,
    },
    /// Name a port of a sandbox, so that it is reached from outside whatever its number.
    #[command(after_help = "Example:\n  pandastack sandbox add-port 0a1b2c3d 5432 --label database")]
    AddPort {
        /// The sandbox.
        id: String,
        /// The port.
        port: u16,
        /// What to call it.
        #[arg(long)]
        label: Option<String>,
    },
    /// Make a link to a port of a sandbox that works without a key.
    #[command(after_help = "Example:\n  pandastack sandbox preview-url 0a1b2c3d 3000 --expires 3600")]
    PreviewUrl(look::PreviewArguments),
    /// Delete sandboxes and everything in them.
    #[command(visible_alias = "rm", after_help = "Example:\n  pandastack sandbox delete 0a1b2c3d")]
    Delete(state::Ids),
}

pub(crate) async fn run(
    connection: &Connection,
    command: Command,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let api = connection.api()?;
    match command {
        Command::Create(arguments) => create::run(&api, arguments, format).await?,
        Command::List(arguments) => look::list(&api, &arguments, format).await?,
        Command::Get { id } => look::get(&api, &id, format).await?,
        Command::Exec(arguments) => return exec::run(&api, arguments, format).await,
        Command::RunCode(arguments) => return run_code::run(&api, arguments, format).await,
        Command::Context(command) => return context::run(&api, command, format).await,
        Command::Process(command) => return process::run(&api, command, format).await,
        Command::Logs(arguments) => return look::logs(&api, &arguments).await,
        Command::Ssh(arguments) => return ssh::run(&api, &arguments).await,
        Command::Cp(arguments) => cp::run(&api, &arguments).await?,
        Command::Pause(ids) => state::pause(&api, &ids).await?,
        Command::Resume(ids) => state::resume(&api, &ids).await?,
        Command::Hibernate(ids) => state::hibernate(&api, &ids).await?,
        Command::Wake(ids) => state::wake(&api, &ids).await?,
        Command::Delete(ids) => state::delete(&api, &ids).await?,
        Command::Lifecycle { id } => state::lifecycle(&api, &id, format).await?,
        Command::SetTtl { id, seconds } => state::set_ttl(&api, &id, seconds, format).await?,
        Command::SetPersistent { id, persistent } => {
            state::set_persistent(&api, &id, persistent, format).await?
        }
        Command::Update(arguments) => state::update(&api, arguments, format).await?,
        Command::Snapshot { id } => fork::snapshot(&api, &id, format).await?,
        Command::Fork(arguments) => fork::one(&api, arguments, format).await?,
        Command::ForkTree(arguments) => return fork::tree(&api, arguments, format).await,
        Command::Promote(arguments) => return fork::promote(&api, arguments, format).await,
        Command::Explore(arguments) => return explore::run(&api, arguments, format).await,
        Command::Events { id, tail } => look::events(&api, &id, tail, format).await?,
        Command::Metrics { id } => look::metrics(&api, &id, format).await?,
        Command::Ports { id } => look::ports(&api, &id, format).await?,
        Command::AddPort { id, port, label } => look::add_port(&api, &id, port, label, format).await?,
        Command::PreviewUrl(arguments) => look::preview_url(&api, arguments, format).await?,
    }
    Ok(ExitCode::SUCCESS)
}
