//! `pandastack agents`: workers for agents whose loop runs elsewhere.
//!
//! There is one worker, in the Python package, because the runner's side of the protocol is Python too and both are tested together.
//! This starts it with the server and the key that every other command uses, and becomes it: signals and the exit code are its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command as Program, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use crate::connection::{API_VARIABLE, Connection, KEY_VARIABLE};

/// What is run.
const MODULE: &str = "pandastack.cma";
/// Ends with 0 if the package is there. Releases before this one have the module too, but put keys into sandboxes.
const CHECK: &str = "from pandastack.cma import KeyRejected";

/// Workers for agents whose loop runs elsewhere.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Work for a `self_hosted` environment of Claude Managed Agents: each session in a sandbox of its own, which sleeps between
    /// turns.
    ///
    /// The environment is named by ANTHROPIC_ENVIRONMENT_ID and ANTHROPIC_ENVIRONMENT_KEY. The worker is part of the Python package
    /// `pandastack`; what stands after `--` are options of its own.
    #[command(after_help = "Examples:\n  pandastack agents claude\n  \
        pandastack agents claude -- --network all --outputs-dir results\n  \
        pandastack agents claude --python /opt/worker/bin/python3 -- --help")]
    Claude(Claude),
}

/// Options of `agents claude`.
#[derive(Debug, Args)]
pub(crate) struct Claude {
    /// The Python that has the package.
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "python3",
        env = "PANDASTACK_PYTHON",
        hide_env_values = true
    )]
    python: OsString,
    /// Options of the worker.
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

pub(crate) fn run(connection: &Connection, command: Command) -> anyhow::Result<ExitCode> {
    let Command::Claude(Claude { python, options }) = command;
    let name = python.to_string_lossy().into_owned();
    let mut check = Program::new(&python);
    check.args(["-c", CHECK]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let there = check.status().with_context(|| format!("start {name}"))?;
    if !there.success() {
        bail!(
            "{name} has no worker; install the Python package that comes with this release \
             (`{name} -m pip install pandastack-*.whl`), or name another Python with --python"
        );
    }
    let decided = connection.decided()?;
    let mut worker = Program::new(&python);
    worker.args(["-m", MODULE]).args(options).env(API_VARIABLE, decided.api);
    if let Some(key) = decided.key {
        worker.env(KEY_VARIABLE, key);
    }
    // Only a failure comes back.
    Err(worker.exec()).with_context(|| format!("start {name}"))
}
