//! A node in a process of its own, to be killed at the moment that a suite wants.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::lab::ClosedLab;
use crate::{cache, wait};

/// How long it may take to say the next thing.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A running node. Killed when dropped; its machines go on.
pub struct NodeProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl NodeProcess {
    /// Starts one over a data directory that no other process has open, with what it shall do and the variables it shall see.
    pub fn start(lab: &mut ClosedLab, work: &[&str], environment: Vec<(String, String)>) -> Result<Self> {
        let range = lab.config().addresses.to_string();
        let first = range.split('/').next().unwrap_or_default().to_owned();
        let mut command = Command::new(cache::build_directory()?.join("node-process"));
        command.arg(lab.data_dir()).arg(first).args(work).envs(environment).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().context("start a node")?;
        let lines = BufReader::new(child.stdout.take().context("it has no output")?).lines();
        Ok(Self { child, lines })
    }

    /// Waits until it says that it has done this, and gives what it says.
    pub async fn done(&mut self, what: &str) -> Result<Value> {
        let said = async {
            while let Some(line) = self.lines.next_line().await? {
                let value: Value = serde_json::from_str(&line)?;
                ensure!(value["error"].is_null(), "the node failed: {line}");
                if value["done"] == what {
                    return Ok(value);
                }
            }
            bail!("the node ended")
        };
        let said = tokio::time::timeout(wait::scaled(TIMEOUT), said).await;
        said.with_context(|| format!("the node has not done {what}"))?
    }

    /// Ends it without a warning.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("kill the node")
    }
}
