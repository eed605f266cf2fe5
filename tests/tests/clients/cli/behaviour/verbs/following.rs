//! Commands that go on until Ctrl-C: watches and forwarded ports.

use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, ChildStdout};

use super::text;
use crate::cli::behaviour::{Outcome, Runner, failed};
use crate::cli::program::{TIMEOUT, Went};

/// A command that goes on.
struct Following {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<ChildStderr>>,
}

impl Following {
    /// What it writes next to standard output.
    async fn line(&mut self) -> Result<String> {
        let line = tokio::time::timeout(TIMEOUT, self.stdout.next_line()).await;
        line.context("it says nothing")??.context("it ended")
    }

    /// Waits until it says something, and whether it did: otherwise it ended.
    async fn says(&mut self, beginning: &str, said: &mut String) -> Result<bool> {
        while let Some(line) = tokio::time::timeout(TIMEOUT, self.stderr.next_line()).await?? {
            said.push_str(&format!("{line}\n"));
            if line.starts_with(beginning) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends it as a person does.
    async fn end(mut self) -> Result<()> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id as i32)).context("it has ended")?;
        kill_process(pid, Signal::INT)?;
        let ended = tokio::time::timeout(TIMEOUT, self.child.wait()).await.context("it does not end")??;
        ensure!(ended.code() == Some(130), "{ended:?}");
        Ok(())
    }
}

impl Runner {
    fn follow(&self, words: &[&str]) -> Result<Following> {
        let mut command = self.cli.command(&[&["--output", "json"], words].concat())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("no output")?).lines();
        let stderr = BufReader::new(child.stderr.take().context("no errors")?).lines();
        Ok(Following { child, stdout, stderr })
    }

    pub(super) async fn watch(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut words = vec!["fs", "watch", id, text(with, "path")];
        if with["recursive"] == true {
            words.push("--recursive");
        }
        let mut watch = self.follow(&words)?;
        let mut stderr = String::new();
        if !watch.says("watching ", &mut stderr).await? {
            let code = watch.child.wait().await?.code().context("it was killed")?;
            let went = Went { code, stdout: String::new(), stderr, bytes: Vec::new() };
            return Ok(Err(failed(&went)?));
        }
        if let Err(failed) = self.call(&["sandbox", "exec", "-n", id, "--", text(with, "cmd")]).await? {
            bail!("{failed:?}");
        }
        let (mut changes, mut moved) = (Vec::new(), Map::new());
        while changes.last().map(String::as_str) != with["until"].as_str() {
            let line = watch.line().await.with_context(|| format!("so far: {changes:?}"))?;
            let change: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
            changes.push(format!("{} {}", text(&change, "kind"), text(&change, "path")));
            if change["kind"] == "moved" {
                moved.insert(text(&change, "path").to_owned(), change["to"].clone());
            }
        }
        watch.end().await?;
        Ok(Ok(json!({ "changes": changes, "moved": moved })))
    }

    pub(super) async fn tunnel(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut forward = self.follow(&["sandbox", "port-forward", id, &format!("0:{}", with["port"])])?;
        let said: Value = serde_json::from_str(&forward.line().await?)?;
        let asking = async {
            let mut stream = TcpStream::connect(text(&said, "local")).await?;
            stream.write_all(text(with, "send").as_bytes()).await?;
            stream.shutdown().await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok(answer)
        };
        let answer = tokio::time::timeout(TIMEOUT, asking).await.context("it does not end")?;
        forward.end().await?;
        let answer = answer?;
        ensure!(!answer.is_empty(), "no answer");
        Ok(Ok(json!({ "text": answer })))
    }
}
