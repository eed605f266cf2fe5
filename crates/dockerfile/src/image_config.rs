//! What an image says about how to run it: where a stage starts, and what it ends with.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where programs are searched for when an image does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What runs commands that are not a list when an image does not say.
const DEFAULT_SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// How to run an image. The default is that of `scratch`: nothing said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// Variables, in the order in which they were first set.
    pub env: Vec<(String, String)>,
    /// What is always run.
    pub entrypoint: Option<Vec<String>>,
    /// Arguments of the entrypoint, or what to run when there is none.
    pub cmd: Option<Vec<String>>,
    /// Where commands run; empty means `/`.
    pub working_dir: String,
    /// Who runs commands, as `user`, `uid`, `user:group` or `uid:gid`; empty means root.
    pub user: String,
    /// What runs commands that are not a list; empty means `/bin/sh -c`.
    pub shell: Vec<String>,
    /// Ports such as `80/tcp` that it says it listens on.
    pub ports: BTreeSet<String>,
    /// How to find out whether it works.
    pub healthcheck: Option<Healthcheck>,
    /// What else is written on it.
    pub labels: BTreeMap<String, String>,
    /// The signal that asks it to end.
    pub stop_signal: Option<String>,
    /// Directories that it wants kept apart.
    pub volumes: BTreeSet<String>,
    /// Instructions for builds that start from it; see [`crate::Build::plan`].
    pub on_build: Vec<String>,
}

impl ImageConfig {
    /// The value of a variable.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// What runs commands that are not a list.
    pub fn shell(&self) -> Vec<String> {
        if self.shell.is_empty() { DEFAULT_SHELL.map(str::to_owned).to_vec() } else { self.shell.clone() }
    }

    /// What to run to start it: entrypoint and arguments. Empty when it says nothing.
    pub fn start_command(&self) -> Vec<String> {
        let parts = [&self.entrypoint, &self.cmd].into_iter().flatten();
        parts.flatten().cloned().collect()
    }

    pub(crate) fn set_default_path(&mut self) {
        if self.variable("PATH").is_none() {
            self.env.insert(0, ("PATH".to_owned(), DEFAULT_PATH.to_owned()));
        }
    }
}

/// A command: a text for a shell, or a program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// For the image's shell.
    Shell(String),
    /// To be run as it is.
    Exec(Vec<String>),
}

impl Command {
    /// The program and its arguments, where `shell` runs what is not a list.
    pub fn argv(&self, shell: &[String]) -> Vec<String> {
        match self {
            Command::Shell(text) => shell.iter().chain([text]).cloned().collect(),
            Command::Exec(argv) => argv.clone(),
        }
    }
}

/// How to find out whether what an image runs works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Healthcheck {
    /// Not at all, whatever the image it was made from says.
    Disabled,
    /// By a command.
    Probe(HealthProbe),
}

/// A command that ends with 0 when all is well. What is not said is the runner's to choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthProbe {
    /// The command.
    pub command: Command,
    /// From the end of one to the start of the next.
    pub interval: Option<Duration>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// How long failures mean nothing after the start.
    pub start_period: Option<Duration>,
    /// The interval in that time.
    pub start_interval: Option<Duration>,
    /// How many failures in a row mean that it does not work.
    pub retries: Option<u32>,
}
