//! `pandastack sandbox`: sandboxes of a server.

mod context;
pub(crate) mod cp;
mod create;
mod delete;
mod exec;
mod explore;
mod fork;
mod list;
mod look;
mod port_forward;
mod process;
mod relay;
mod run_code;
mod ssh;
mod ssh_config;
mod ssh_key;
mod ssh_proxy;
mod state;
mod tree;
mod volume_word;
mod which;

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
        pandastack sandbox create --template code-interpreter --name web --memory 2g --ttl 1h30m\n  \
        pandastack sandbox create --env TOKEN --metadata task=42 --network all --volume data:/data")]
    Create(create::Arguments),
    /// The sandboxes there are, newest first.
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  pandastack sandbox list\n  \
        pandastack sandbox list --status running --metadata task=42 --quiet"
    )]
    List(list::Arguments),
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
    /// Run code in a context that keeps its state; ends with 0, or 1 when it failed.
    ///
    /// Output comes as it is written, and the value of the last line is shown. What one call defines is there for the next one, unless
    /// --once says otherwise.
    #[command(after_help = "Examples:\n  pandastack sandbox run-code 0a1b2c3d 'x = 6 * 7'\n  \
        pandastack sandbox run-code 0a1b2c3d 'x'\n  \
        pandastack sandbox run-code 0a1b2c3d --once --language javascript < program.js")]
    RunCode(run_code::Arguments),
    /// Work with code contexts: interpreters that keep their state from cell to cell.
    #[command(subcommand)]
    Context(context::Command),
    /// Work with processes that go on when the connection ends.
    #[command(subcommand)]
    Process(process::Command),
    /// What the console of a sandbox's kernel said. What its processes write is in `sandbox process logs`.
    #[command(after_help = "Examples:\n  pandastack sandbox logs -f 0a1b2c3d\n  \
        pandastack sandbox process logs 0a1b2c3d web")]
    Logs(look::LogsArguments),
    /// Open a terminal in a sandbox; ends with the shell's exit code.
    #[command(visible_alias = "shell", after_help = "Example:\n  pandastack sandbox ssh 0a1b2c3d")]
    Ssh(ssh::Arguments),
    /// Print what `ssh`, `scp`, `sftp` and editors need to reach sandboxes by SSH.
    ///
    /// Connections go through the API: no port of the sandbox is opened. The sandbox needs an SSH server in its template; it is started
    /// at the first connection, for the key that this program makes for you.
    #[command(after_help = "Examples:\n  pandastack sandbox ssh-config --all --write\n  \
        pandastack sandbox ssh-config 0a1b2c3d")]
    SshConfig(ssh_config::Arguments),
    /// Relay one SSH connection: what `ssh-config` has `ssh` call.
    #[command(hide = true, after_help = "Example:\n  pandastack sandbox ssh-proxy 0a1b2c3d")]
    SshProxy {
        /// The sandbox.
        id: String,
    },
    /// Forward ports of this host to ports of a sandbox, until Ctrl-C.
    #[command(after_help = "Examples:\n  pandastack sandbox port-forward 0a1b2c3d 3000\n  \
        pandastack sandbox port-forward 0a1b2c3d 8080:80 0:5432")]
    PortForward(port_forward::Arguments),
    /// Copy files and directories into a sandbox or out of it.
    ///
    /// Paths in a sandbox that are not absolute begin at the home directory of its user. Symbolic links are kept as links.
    #[command(after_help = "Examples:\n  pandastack sandbox cp data.csv 0a1b2c3d:\n  \
        pandastack sandbox cp ./src 0a1b2c3d:/workspace/src\n  \
        pandastack sandbox cp --archive 0a1b2c3d:project .")]
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
    Wake(state::WakeArguments),
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
    /// Draw where a sandbox comes from and what was forked from it.
    #[command(after_help = "Example:\n  pandastack sandbox tree 0a1b2c3d")]
    Tree {
        /// The sandbox.
        id: String,
    },
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
    #[command(after_help = "Example:\n  pandastack sandbox set-ttl 0a1b2c3d 1h30m")]
    SetTtl {
        /// The sandbox.
        id: String,
        /// Time without use after which it goes, such as 10m or 1h30m.
        #[arg(allow_negative_numbers = true, value_name = "TIME", value_parser = crate::duration::whole_seconds)]
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
    /// Change a sandbox's name, metadata, variables, network or time to live.
    #[command(after_help = "Examples:\n  pandastack sandbox update 0a1b2c3d --name web --ttl 2h\n  \
        pandastack sandbox update web --metadata task=43 --unset-metadata draft --network all")]
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
        /// Only the ports.
        #[arg(long, short)]
        quiet: bool,
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
    #[command(after_help = "Example:\n  pandastack sandbox preview-url 0a1b2c3d 3000 --expires 12h")]
    PreviewUrl(look::PreviewArguments),
    /// Delete sandboxes and everything in them: those that are named, or all that fit.
    ///
    /// Where no ids are given it asks first, unless --yes is; the ids of those that are gone are written to standard output.
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  pandastack sandbox delete 0a1b2c3d\n  \
        pandastack sandbox delete --metadata task=42 --status hibernated\n  \
        pandastack sandbox delete --all --yes"
    )]
    Delete(delete::Arguments),
}

pub(crate) async fn run(
    connection: &Connection,
    command: Command,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let api = connection.api()?;
    match command {
        Command::Create(arguments) => create::run(&api, arguments, format).await?,
        Command::List(arguments) => list::run(&api, &arguments, format).await?,
        Command::Get { id } => look::get(&api, &id, format).await?,
        Command::Exec(arguments) => return exec::run(&api, arguments, format).await,
        Command::RunCode(arguments) => return run_code::run(&api, arguments, format).await,
        Command::Context(command) => return context::run(&api, command, format).await,
        Command::Process(command) => return process::run(&api, command, format).await,
        Command::Logs(arguments) => return look::logs(&api, &arguments).await,
        Command::Ssh(arguments) => return ssh::run(&api, &arguments).await,
        Command::SshConfig(arguments) => ssh_config::run(connection, &api, &arguments).await?,
        Command::SshProxy { id } => return ssh_proxy::run(&api, &id).await,
        Command::PortForward(arguments) => return port_forward::run(&api, &arguments, format).await,
        Command::Cp(arguments) => cp::run(&api, &arguments).await?,
        Command::Pause(ids) => state::pause(&api, &ids).await?,
        Command::Resume(ids) => state::resume(&api, &ids).await?,
        Command::Hibernate(ids) => state::hibernate(&api, &ids).await?,
        Command::Wake(arguments) => state::wake(&api, &arguments).await?,
        Command::Delete(arguments) => delete::run(&api, &arguments, format).await?,
        Command::Lifecycle { id } => state::lifecycle(&api, &id, format).await?,
        Command::SetTtl { id, seconds } => state::set_ttl(&api, &id, seconds, format).await?,
        Command::SetPersistent { id, persistent } => {
            state::set_persistent(&api, &id, persistent, format).await?
        }
        Command::Update(arguments) => state::update(&api, arguments, format).await?,
        Command::Snapshot { id } => fork::snapshot(&api, &id, format).await?,
        Command::Fork(arguments) => fork::one(&api, arguments, format).await?,
        Command::ForkTree(arguments) => return fork::tree(&api, arguments, format).await,
        Command::Tree { id } => tree::run(&api, &id, format).await?,
        Command::Promote(arguments) => return fork::promote(&api, arguments, format).await,
        Command::Explore(arguments) => return explore::run(&api, arguments, format).await,
        Command::Events { id, tail } => look::events(&api, &id, tail, format).await?,
        Command::Metrics { id } => look::metrics(&api, &id, format).await?,
        Command::Ports { id, quiet } => look::ports(&api, &id, quiet, format).await?,
        Command::AddPort { id, port, label } => look::add_port(&api, &id, port, label, format).await?,
        Command::PreviewUrl(arguments) => look::preview_url(&api, arguments, format).await?,
    }
    Ok(ExitCode::SUCCESS)
}
