//! What runs in sandboxes: commands, background processes, terminals, code.

use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{options, text};
use crate::behaviour::{Failed, Outcome, Runner, failed};
use crate::program::PATIENCE;
use crate::terminal::Terminal;

impl Runner {
    fn exec_words(id: &str, with: &Value) -> Vec<String> {
        let mut words = vec!["sandbox".to_owned(), "exec".to_owned()];
        words.extend(options(
            with,
            &[("cwd", "--cwd"), ("env", "--env"), ("user", "--user"), ("timeout_seconds", "--timeout")],
        ));
        words.extend([id.to_owned(), text(with, "cmd").to_owned()]);
        words
    }

    pub(super) async fn exec(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut words = Self::exec_words(id, with);
        // The command's own exit code and a failure of the program are told apart by what it says.
        words.splice(1..1, ["--output".to_owned(), "json".to_owned()]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let went = self.cli.with_input(&words, text(with, "stdin").as_bytes()).await?;
        if went.stdout.is_empty() {
            return Ok(Err(failed(&went)?));
        }
        let said: Value = serde_json::from_str(&went.stdout)?;
        ensure!(said["exit_code"] == went.code, "{went:?}");
        Ok(checked(said, with))
    }

    /// Runs without JSON, noting which stream comes when.
    pub(super) async fn stream(&self, id: &str, with: &Value) -> Result<Outcome> {
        let words = Self::exec_words(id, with);
        let mut command = self.cli.command(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut streams =
            (child.stdout.take().context("no output")?, child.stderr.take().context("no errors")?);
        let (mut out, mut errors, mut order) = (Vec::new(), Vec::new(), Vec::new());
        let reading = async {
            let mut open = (true, true);
            while open.0 || open.1 {
                let name = tokio::select! {
                    more = piece(&mut streams.0, &mut out), if open.0 => { open.0 = more?; open.0.then_some("stdout") }
                    more = piece(&mut streams.1, &mut errors), if open.1 => { open.1 = more?; open.1.then_some("stderr") }
                };
                if let Some(name) = name.filter(|name| order.last() != Some(name)) {
                    order.push(name);
                }
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, reading).await.context("it does not end")??;
        let code = child.wait().await?.code().context("it was killed")?;
        let (stdout, stderr) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&errors));
        if code == 1 && stderr.contains("error: ") && stderr.contains("timeout") {
            return Ok(Err(Failed { kind: "timeout".to_owned(), error: json!({ "error": stderr }) }));
        }
        Ok(checked(json!({ "stdout": stdout, "stderr": stderr, "exit_code": code, "order": order }), with))
    }

    pub(super) async fn terminal(&self, id: &str, with: &Value) -> Result<Outcome> {
        let side = |field: &str| with[field].as_u64().and_then(|side| u16::try_from(side).ok()).unwrap_or(24);
        let size = (side("rows"), side("cols"));
        let mut terminal = Terminal::start_with(&self.cli, &["sandbox", "ssh", id], size)?;
        terminal.until_raw().await?;
        terminal.type_in(text(with, "input"))?;
        let code = terminal.code().await?;
        Ok(Ok(json!({ "output": terminal.shown(), "exit_code": code })))
    }

    pub(super) async fn spawn(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut words = ["sandbox", "process", "start"].map(str::to_owned).to_vec();
        words.extend(options(with, &[("cwd", "--cwd"), ("env", "--env"), ("tag", "--tag")]));
        if with["stdin"] == true {
            words.push("--stdin".to_owned());
        }
        words.extend([id.to_owned(), text(with, "cmd").to_owned()]);
        let started = self.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        Ok(started.map(|mut process| {
            process["sandbox"] = id.into();
            process
        }))
    }

    pub(super) async fn process(&self, on: &Value, with: &Value) -> Result<Outcome> {
        let (sandbox, process) = (text(on, "sandbox"), on["id"].to_string());
        let on = |verb: &'static str| ["sandbox", "process", verb, sandbox, &process];
        match text(with, "op") {
            "get" => self.call(&on("get")).await,
            "write" => {
                let close = if with["close"] == true { &["--close"][..] } else { &[] };
                self.call_with(&self.cli, &[&on("write"), close].concat(), text(with, "data").as_bytes())
                    .await
            }
            "signal" => self.call(&[&on("signal")[..], &[text(with, "signal")]].concat()).await,
            "wait" | "attach" => {
                let went = self.cli.run(&[&["--output", "json"], &on("attach")[..]].concat()).await?;
                let said: Value = serde_json::from_str(&went.stdout).with_context(|| format!("{went:?}"))?;
                ensure!(said["exit_code"] == went.code, "{went:?}");
                Ok(Ok(said))
            }
            other => bail!("`{other}` is new in the table: map it to a command"),
        }
    }

    pub(super) async fn context(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut words = ["sandbox", "context", "create", id].map(str::to_owned).to_vec();
        words.extend(options(with, &[("language", "--language"), ("cwd", "--cwd")]));
        let made = self.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        Ok(made.map(|mut context| {
            context["sandbox"] = id.into();
            context
        }))
    }

    pub(super) async fn run_code(&self, on: &Value, with: &Value) -> Result<Outcome> {
        let mut words = ["--output", "json", "sandbox"].map(str::to_owned).to_vec();
        match on["sandbox"].as_str() {
            Some(sandbox) => words.extend(["context", "run", sandbox, text(on, "id")].map(str::to_owned)),
            None => words.extend(["run-code", text(on, "id")].map(str::to_owned)),
        }
        words.extend(options(with, &[("language", "--language"), ("timeout_seconds", "--timeout")]));
        words.extend(["--".to_owned(), text(with, "code").to_owned()]);
        let went = self.cli.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        if went.stdout.is_empty() {
            return Ok(Err(failed(&went)?));
        }
        let mut said: Value = serde_json::from_str(&went.stdout)?;
        ensure!(said["exit_code"] == went.code, "{went:?}");
        let results = said["results"].as_array().cloned().unwrap_or_default();
        said["text"] =
            results.iter().rev().find_map(|one| one.get("text/plain").cloned()).unwrap_or_default();
        Ok(Ok(said))
    }
}

/// With `check`, an exit code other than 0 is a failure: a script's `set -e` sees it.
fn checked(said: Value, with: &Value) -> Outcome {
    if with["check"] == true && said["exit_code"] != 0 {
        return Err(Failed { kind: "command_failed".to_owned(), error: said });
    }
    Ok(said)
}

/// Reads what there is; false at the end.
async fn piece(stream: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>) -> Result<bool> {
    Ok(stream.read_buf(into).await? > 0)
}
