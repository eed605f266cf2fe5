//! A command in a sandbox, as if it ran here.

use std::process::ExitCode;

use clap::Args;
use client::{Api, Command};
use serde_json::json;

use crate::attached::{self, Kept, Sink, Stdin};
use crate::duration::seconds;
use crate::output::{self, Format};
use crate::quoting::{line, variables};
use crate::signals::Signals;

/// Options of `exec`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    how: How,
    /// The sandbox.
    id: String,
    /// A line for the shell, or a program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How a command is run.
#[derive(Debug, Args)]
pub(crate) struct How {
    /// Working directory [default: the user's home].
    #[arg(long, short = 'w', value_name = "PATH")]
    pub(crate) cwd: Option<String>,
    /// A variable: NAME=VALUE, or NAME for the one that is set here.
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// The user who runs it [default: root].
    #[arg(long, short)]
    pub(crate) user: Option<String>,
    /// Time after which it is killed, such as 90 or 5m [default: never].
    #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<f64>,
    /// Pass standard input on also when it is a terminal.
    #[arg(long, short = 'i', conflicts_with = "no_stdin")]
    pub(crate) stdin: bool,
    /// Leave standard input alone.
    #[arg(long, short = 'n')]
    pub(crate) no_stdin: bool,
}

impl How {
    fn input(&self) -> Stdin {
        match (self.stdin, self.no_stdin) {
            (true, _) => Stdin::Always,
            (_, true) => Stdin::Never,
            _ => Stdin::WhenPiped,
        }
    }
}

pub(super) async fn run(api: &Api, arguments: Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let Arguments { how, id, command } = arguments;
    let input = how.input();
    let command = Command {
        cmd: line(&command).into(),
        cwd: how.cwd,
        env: variables(&how.env)?,
        user: how.user,
        timeout_seconds: how.timeout,
        open_stdin: false,
    };
    let mut signals = Signals::watch()?;
    let mut sink = if format == Format::Json { Sink::Kept(Kept::default()) } else { Sink::Own };
    let ended = attached::run(api, &id, command, input, &mut signals, &mut sink).await?;
    if let Sink::Kept(kept) = sink {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut value =
            json!({ "stdout": text(&kept.stdout), "stderr": text(&kept.stderr), "exit_code": ended.code });
        if let Some(hint) = &ended.hint {
            value["hint"] = hint.as_str().into();
        }
        output::result(format, &value, String::new)?;
    }
    Ok(ended.exit_code())
}
