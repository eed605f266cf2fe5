//! What runs in sandboxes: commands, background processes, terminals, code.

use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::{options, text};
use crate::cli::behaviour::{Failed, Outcome, Runner, failed};
use crate::cli::program::TIMEOUT;
use crate::cli::terminal::Terminal;

impl Runner {
    fn exec_words(id: &str, with: &Value) -> Vec<String> {
        let mut words = vec!["sandbox".to_owned(), "exec".to_owned()];
        words.extend(options(
            with,
            &[("cwd", "--cwd"), ("env", "--env"), ("user", "--user"), ("timeout_seconds", "--timeout")],
        ));
        words.extend([id.to_owned(), "--".to_owned()]);
        match with["cmd"].as_array() {
            Some(several) => words.extend(several.iter().filter_map(Value::as_str).map(str::to_owned)),
            None => words.push(text(with, "cmd").to_owned()),
        }
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

    /// Runs without JSON: its output comes as it is written.
    pub(super) async fn stream(&self, id: &str, with: &Value) -> Result<Outcome> {
        let streamed = match self.streamed(&Self::exec_words(id, with)).await? {
            Ok(streamed) => streamed,
            Err(failed) => return Ok(Err(failed)),
        };
        let Streamed { stdout, stderr, code, .. } = &streamed;
        let said =
            json!({ "stdout": stdout, "stderr": stderr, "exit_code": code, "order": streamed.order() });
        Ok(checked(said, with))
    }

    /// Runs without JSON, noting which stream comes when. What the program says of a timeout is no output of the command's.
    async fn streamed(&self, words: &[String]) -> Result<Result<Streamed, Failed>> {
        let mut command = self.cli.command(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut streams =
            (child.stdout.take().context("no output")?, child.stderr.take().context("no errors")?);
        let (mut out, mut errors, mut runs) = (Vec::new(), Vec::new(), Vec::<(&str, usize)>::new());
        let reading = async {
            let mut open = (true, true);
            while open.0 || open.1 {
                let (name, read) = tokio::select! {
                    read = streams.0.read_buf(&mut out), if open.0 => ("stdout", read?),
                    read = streams.1.read_buf(&mut errors), if open.1 => ("stderr", read?),
                };
                match (read, runs.last_mut()) {
                    (0, _) if name == "stdout" => open.0 = false,
                    (0, _) => open.1 = false,
                    (read, Some(last)) if last.0 == name => last.1 += read,
                    (read, _) => runs.push((name, read)),
                }
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(TIMEOUT, reading).await.context("it does not end")??;
        let code = child.wait().await?.code().context("it was killed")?;
        let (stdout, stderr) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&errors));
        if let Some((before, error)) =
            told(&stderr).filter(|(_, error)| code == 1 && error.contains("timeout"))
        {
            let error = json!({ "error": error, "partial": { "stdout": stdout, "stderr": before } });
            let shown = format!("{stdout}{stderr}");
            return Ok(Err(Failed { kind: "timeout".to_owned(), error, shown }));
        }
        Ok(Ok(Streamed { stdout: stdout.into_owned(), stderr: stderr.into_owned(), code, runs }))
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
        let started = self.call_words(&words).await?;
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
        let made = self.call_words(&words).await?;
        Ok(made.map(|mut context| {
            context["sandbox"] = id.into();
            context
        }))
    }

    pub(super) async fn run_code(&self, on: &Value, with: &Value) -> Result<Outcome> {
        let mut words = vec!["sandbox".to_owned()];
        match on["sandbox"].as_str() {
            Some(sandbox) => words.extend(["context", "run", sandbox, text(on, "id")].map(str::to_owned)),
            None => words.extend(["run-code", text(on, "id")].map(str::to_owned)),
        }
        words.extend(options(with, &[("language", "--language"), ("timeout_seconds", "--timeout")]));
        if with["once"] == true {
            words.push("--once".to_owned());
        }
        words.extend(["--".to_owned(), text(with, "code").to_owned()]);
        if with["stream"] == true {
            return Ok(self.streamed(&words).await?.map(Streamed::with_result));
        }
        words.splice(0..0, ["--output".to_owned(), "json".to_owned()]);
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

/// What a command wrote while it ran.
struct Streamed {
    stdout: String,
    stderr: String,
    code: i32,
    /// Streams in the order in which they came, each once per run of equal ones, with the bytes of that run.
    runs: Vec<(&'static str, usize)>,
}

impl Streamed {
    fn order(&self) -> Vec<&str> {
        self.runs.iter().map(|(name, _)| *name).collect()
    }

    /// Of code that ends in a value, as all code does that the table streams: it is shown as the last line.
    fn with_result(mut self) -> Value {
        let end = self.stdout.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        let line = self.stdout.split_off(end);
        if let Some(last) = self.runs.last_mut().filter(|(name, _)| *name == "stdout") {
            last.1 = last.1.saturating_sub(line.len());
        }
        self.runs.retain(|(_, bytes)| *bytes > 0);
        self.runs.push(("result", line.len()));
        let text = line.trim_end_matches('\n');
        json!({
            "stdout": self.stdout,
            "stderr": self.stderr,
            "exit_code": self.code,
            "text": text,
            "results": [{ "text/plain": text }],
            "order": self.order(),
        })
    }
}

/// Splits what the program itself says of a failure from what the command wrote.
fn told(stderr: &str) -> Option<(&str, &str)> {
    let at = if stderr.starts_with("error: ") { 0 } else { stderr.rfind("\nerror: ")? + 1 };
    Some(stderr.split_at(at))
}

/// With `check`, an exit code other than 0 is a failure: a script's `set -e` sees it.
fn checked(said: Value, with: &Value) -> Outcome {
    if with["check"] == true && said["exit_code"] != 0 {
        let shown = format!("{}{}", text(&said, "stdout"), text(&said, "stderr"));
        return Err(Failed { kind: "command_failed".to_owned(), error: said, shown });
    }
    Ok(said)
}
