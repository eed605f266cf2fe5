//! `pandastack sandbox process`: processes that go on whether or not anybody is connected.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use client::{Api, ProcessEvent};
use contract::process::{Process, ProcessInput, ProcessSignal, SignalName, StartProcess};
use serde_json::json;

use crate::attached::Ended;
use crate::duration::seconds;
use crate::output::{self, Format};
use crate::quoting::{line, variables};
use crate::signals::{Signals, Told};

/// How often a person may press Ctrl-C until the process is left alone.
const INTERRUPTS_MAX: u32 = 3;

/// What to do with processes.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a process and do not wait for it; its id is written to standard output.
    #[command(
        after_help = "Examples:\n  pandastack sandbox process start 0a1b2c3d --tag web -- python3 -m http.server 8000\n  \
        pandastack sandbox process start --cwd /app 0a1b2c3d 'make && make check'"
    )]
    Start(StartArguments),
    /// Processes that run, and some that ended.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack sandbox process list 0a1b2c3d")]
    List {
        /// The sandbox.
        id: String,
        /// Only the ids.
        #[arg(long, short)]
        quiet: bool,
    },
    /// One process.
    #[command(after_help = "Example:\n  pandastack sandbox process get 0a1b2c3d web")]
    Get(Which),
    /// What a process wrote and writes, until it ends. Ctrl-C leaves it running.
    #[command(after_help = "Example:\n  pandastack sandbox process logs 0a1b2c3d web")]
    Logs(Which),
    /// Be with a process as if it ran here: everything it wrote, Ctrl-C is for it; ends with its exit code.
    ///
    /// Ctrl-C for the third time leaves it running, and so do SIGTERM and SIGHUP.
    #[command(after_help = "Example:\n  pandastack sandbox process attach 0a1b2c3d web")]
    Attach(Which),
    /// Write to a process that was started with --stdin.
    #[command(after_help = "Examples:\n  pandastack sandbox process write 0a1b2c3d 3 'no newline'\n  \
        pandastack sandbox process write 0a1b2c3d 3 --close < answers.txt")]
    Write {
        #[command(flatten)]
        which: Which,
        /// What it reads [default: standard input].
        text: Option<String>,
        /// End its input afterwards.
        #[arg(long)]
        close: bool,
    },
    /// Signal a process and everything it started.
    #[command(
        visible_alias = "kill",
        after_help = "Example:\n  pandastack sandbox process signal 0a1b2c3d web SIGKILL"
    )]
    Signal {
        #[command(flatten)]
        which: Which,
        /// The signal, by name or number.
        #[arg(default_value = "SIGTERM")]
        signal: String,
    },
}

/// Options of `start`.
#[derive(Debug, Args)]
pub(crate) struct StartArguments {
    /// Working directory [default: the user's home].
    #[arg(long, short = 'w', value_name = "PATH")]
    cwd: Option<String>,
    /// A variable: NAME=VALUE, or NAME for the one that is set here.
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The user who runs it [default: root].
    #[arg(long, short)]
    user: Option<String>,
    /// Time after which it is killed, such as 90 or 5m [default: never].
    #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<f64>,
    /// A name of your own, to find it by.
    #[arg(long)]
    tag: Option<String>,
    /// Let it be written to.
    #[arg(long, short = 'i')]
    stdin: bool,
    /// The sandbox.
    id: String,
    /// A line for the shell, or a program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A process of a sandbox.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The sandbox.
    id: String,
    /// The process: its id, or the tag of the newest that has it.
    process: String,
}

impl Which {
    async fn found(&self, api: &Api) -> anyhow::Result<Process> {
        if let Ok(id) = self.process.parse() {
            return Ok(api.process(&self.id, id).await?);
        }
        let tagged = api.processes(&self.id).await?.into_iter();
        let tagged = tagged.filter(|one| one.tag.as_deref() == Some(&self.process));
        let newest = tagged.max_by_key(|one| one.id);
        newest.with_context(|| format!("no process of the sandbox has the tag `{}`", self.process))
    }
}

pub(super) async fn run(api: &Api, command: Command, format: Format) -> anyhow::Result<ExitCode> {
    match command {
        Command::Start(arguments) => start(api, arguments, format).await?,
        Command::List { id, quiet } => {
            let processes = api.processes(&id).await?;
            if quiet {
                output::names(format, &processes, |one| one.id.to_string())?;
                return Ok(ExitCode::SUCCESS);
            }
            output::list(format, &processes, ["ID", "PID", "STATE", "TAG", "COMMAND"], |one| {
                let tag = one.tag.clone().unwrap_or_default();
                [one.id.to_string(), one.pid.to_string(), state(one), tag, one.command.clone()]
            })?;
        }
        Command::Get(which) => output::object(format, &which.found(api).await?)?,
        Command::Logs(which) => return follow(api, &which, ForIt::Nothing, format).await,
        Command::Attach(which) => return follow(api, &which, ForIt::Interrupts, format).await,
        Command::Write { which, text, close } => {
            let data = match text {
                Some(text) => text,
                None => io::read_to_string(io::stdin()).context("read text from standard input")?,
            };
            let process = which.found(api).await?;
            let input = ProcessInput { data, close: Some(close) };
            api.process_input(&which.id, process.id, &input).await?;
        }
        Command::Signal { which, signal } => {
            let process = which.found(api).await?;
            tell(api, &which.id, process.id, &signal).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn state(process: &Process) -> String {
    match process.exit_code {
        Some(code) => format!("exit {code}"),
        None if process.running => "running".to_owned(),
        None => "ended".to_owned(),
    }
}

async fn start(api: &Api, arguments: StartArguments, format: Format) -> anyhow::Result<()> {
    let variables = variables(&arguments.env)?;
    let request = StartProcess {
        cmd: Some(line(&arguments.command).into()),
        argv: None,
        cwd: arguments.cwd,
        env: Some(variables).filter(|variables| !variables.is_empty()),
        user: arguments.user,
        stdin: arguments.stdin.then_some(true),
        timeout_seconds: arguments.timeout,
        tag: arguments.tag,
    };
    let process = api.start_process(&arguments.id, &request).await?;
    Ok(output::result(format, &process, || process.id.to_string())?)
}

async fn tell(api: &Api, sandbox: &str, process: u32, signal: &str) -> anyhow::Result<()> {
    let signal = match signal.parse() {
        Ok(number) => SignalName::Number(number),
        Err(_) => SignalName::Name(signal.to_owned()),
    };
    Ok(api.process_signal(sandbox, process, &ProcessSignal { signal: Some(signal) }).await?)
}

/// What of this program's signals is for the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForIt {
    Nothing,
    Interrupts,
}

/// Writes what a process writes, until it ends or is left.
async fn follow(api: &Api, which: &Which, for_it: ForIt, format: Format) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::watch()?;
    let process = which.found(api).await?;
    let mut output = api.process_output(&which.id, process.id).await?;
    let (mut stdout, mut stderr, mut interrupts) = (String::new(), String::new(), 0);
    let code = loop {
        let event = tokio::select! {
            event = output.next() => event?,
            told = signals.next() => {
                interrupts += u32::from(told == Told::Interrupt);
                let passed_on = matches!(told, Told::Interrupt | Told::Quit) && interrupts < INTERRUPTS_MAX;
                if for_it == ForIt::Nothing || !passed_on {
                    return Ok(ExitCode::from(told.exit_code()));
                }
                tell(api, &which.id, process.id, told.name()).await?;
                continue;
            }
        };
        match (event, format) {
            (ProcessEvent::Exited(code), _) => break code,
            (ProcessEvent::Stdout(text), Format::Json) => stdout.push_str(&text),
            (ProcessEvent::Stderr(text), Format::Json) => stderr.push_str(&text),
            (ProcessEvent::Stdout(text), Format::Table) => put(&mut io::stdout().lock(), &text)?,
            (ProcessEvent::Stderr(text), Format::Table) => put(&mut io::stderr().lock(), &text)?,
        }
    };
    if format == Format::Json {
        let value = json!({ "stdout": stdout, "stderr": stderr, "exit_code": code });
        output::result(format, &value, String::new)?;
    }
    Ok(match for_it {
        ForIt::Nothing => ExitCode::SUCCESS,
        ForIt::Interrupts => Ended::with(code).exit_code(),
    })
}

fn put(stream: &mut impl Write, text: &str) -> io::Result<()> {
    // The process goes on meanwhile: its sandbox keeps what it writes.
    tokio::task::block_in_place(|| {
        stream.write_all(text.as_bytes())?;
        stream.flush()
    })
}
