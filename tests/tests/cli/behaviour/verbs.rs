//! The verbs of the table as commands.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::{Failed, Outcome, Runner, failed};
use crate::program::{Cli, PATIENCE, Went};
use crate::terminal::Terminal;

/// Text of a field; empty when it is absent.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// An option and its value for each field that is there.
fn options(value: &Value, names: &[(&str, &str)]) -> Vec<String> {
    let mut words = Vec::new();
    for (field, option) in names {
        match &value[field] {
            Value::Null => {}
            Value::String(text) => words.extend([(*option).to_owned(), text.clone()]),
            Value::Object(map) => {
                for (name, one) in map {
                    words.extend([
                        (*option).to_owned(),
                        format!("{name}={}", one.as_str().unwrap_or_default()),
                    ]);
                }
            }
            other => words.extend([(*option).to_owned(), other.to_string()]),
        }
    }
    words
}

/// Values of a field in a list.
fn all(list: &Value, field: &str) -> Value {
    list.as_array().into_iter().flatten().map(|one| one[field].clone()).collect()
}

impl Runner {
    /// Runs a command with JSON for its result.
    async fn call(&self, words: &[&str]) -> Result<Outcome> {
        self.call_with(&self.cli, words, b"").await
    }

    async fn call_with(&self, cli: &Cli, words: &[&str], input: &[u8]) -> Result<Outcome> {
        let went = cli.with_input(&[&["--output", "json"], words].concat(), input).await?;
        if went.code != 0 {
            return Ok(Err(failed(&went)?));
        }
        match went.stdout.trim() {
            "" => Ok(Ok(Value::Null)),
            said => Ok(Ok(serde_json::from_str(said).with_context(|| format!("{words:?} wrote {said}"))?)),
        }
    }

    pub(super) async fn perform(&self, verb: &str, on: Option<&Value>, with: &Value) -> Result<Outcome> {
        let id = on.map(|on| text(on, "id").to_owned()).unwrap_or_default();
        let id = if id.is_empty() { text(with, "id") } else { &id };
        match verb {
            "create" => self.create(with).await,
            "get" => self.call(&["sandbox", "get", id]).await,
            "list" => {
                Ok(self.call(&["sandbox", "list"]).await?.map(|list| json!({ "ids": all(&list, "id") })))
            }
            "delete" => self.call(&["sandbox", "delete", id]).await,
            "state" => self.call(&["sandbox", text(with, "to"), id]).await,
            "patch" => self.patch(id, with).await,
            "lifecycle" => self.lifecycle(id, with).await,
            "exec" if with["stream"] == true => self.stream(id, with).await,
            "exec" => self.exec(id, with).await,
            "write" => self.write(id, with).await,
            "read" => self.read(id, with).await,
            "files" => self.files(id, with).await,
            "transfer" => self.transfer(id, with).await,
            "terminal" => self.terminal(id, with).await,
            "context" => self.context(id).await,
            "run" => self.run_code(on.context("nowhere to run")?, with).await,
            "snapshot" => self.call(&["sandbox", "snapshot", id]).await,
            "snapshots" => match text(with, "op") {
                "list" => {
                    let list =
                        self.call(&["snapshot", "list", "--sandbox", text(with, "sandbox_id")]).await?;
                    Ok(list.map(|list| json!({ "ids": all(&list, "id") })))
                }
                op => self.call(&["snapshot", op, text(with, "id")]).await,
            },
            "fork" => self.fork(id, with).await,
            "promote" => {
                let mut words = vec!["sandbox", "promote", id];
                if with["cleanup_siblings"] == true {
                    words.push("--cleanup-siblings");
                }
                if with["tree_id"].is_string() {
                    words.extend(["--tree-id", text(with, "tree_id")]);
                }
                self.call(&words).await
            }
            "volume" => self.volume(with).await,
            "token" => self.token(with).await,
            "show" => self.show(id, with).await,
            other => bail!("`{other}` is new in the table: map it to a command"),
        }
    }

    async fn create(&self, with: &Value) -> Result<Outcome> {
        let mut words = vec!["sandbox".to_owned(), "create".to_owned()];
        if with["from_snapshot"].is_null() && with["template"].is_null() {
            words.extend(["--template".to_owned(), self.template.clone()]);
        }
        words.extend(options(
            with,
            &[
                ("template", "--template"),
                ("from_snapshot", "--from-snapshot"),
                ("metadata", "--metadata"),
                ("env", "--env"),
                ("ttl_seconds", "--ttl"),
                ("network", "--network"),
            ],
        ));
        if with["persistent"] == true {
            words.push("--persistent".to_owned());
        }
        for volume in with["volumes"].as_array().into_iter().flatten() {
            let mode = if volume["read_only"] == true { ":ro" } else { "" };
            words.extend(["--volume".to_owned(), format!("{}{mode}", text(volume, "name"))]);
        }
        self.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    async fn patch(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut words = vec!["sandbox".to_owned(), "update".to_owned(), id.to_owned()];
        for (field, set, unset) in
            [("metadata", "--metadata", "--unset-metadata"), ("env", "--env", "--unset-env")]
        {
            for (name, value) in with[field].as_object().into_iter().flatten() {
                match value.as_str() {
                    Some(value) => words.extend([set.to_owned(), format!("{name}={value}")]),
                    None => words.extend([unset.to_owned(), name.clone()]),
                }
            }
        }
        self.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    async fn lifecycle(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut outcome = None;
        if let Some(seconds) = with["ttl_seconds"].as_i64() {
            outcome = Some(self.call(&["sandbox", "set-ttl", id, &seconds.to_string()]).await?);
        }
        if let Some(persistent) = with["persistent"].as_bool() {
            outcome = Some(self.call(&["sandbox", "set-persistent", id, &persistent.to_string()]).await?);
        }
        match outcome {
            Some(outcome) => Ok(outcome),
            None => self.call(&["sandbox", "lifecycle", id]).await,
        }
    }

    fn exec_words(id: &str, with: &Value) -> Vec<String> {
        let mut words = vec!["sandbox".to_owned(), "exec".to_owned()];
        words.extend(options(
            with,
            &[("cwd", "--cwd"), ("env", "--env"), ("user", "--user"), ("timeout_seconds", "--timeout")],
        ));
        words.extend([id.to_owned(), text(with, "cmd").to_owned()]);
        words
    }

    async fn exec(&self, id: &str, with: &Value) -> Result<Outcome> {
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
    async fn stream(&self, id: &str, with: &Value) -> Result<Outcome> {
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

    async fn write(&self, id: &str, with: &Value) -> Result<Outcome> {
        let once = match with["base64"].as_str() {
            Some(encoded) => decoded(encoded).await?,
            None => text(with, "text").as_bytes().to_vec(),
        };
        let content = once.repeat(with["repeat"].as_u64().unwrap_or(1) as usize);
        self.call_with(&self.cli, &["fs", "write", id, text(with, "path")], &content).await
    }

    async fn read(&self, id: &str, with: &Value) -> Result<Outcome> {
        let went = self.cli.run(&["--output", "json", "fs", "cat", id, text(with, "path")]).await?;
        if went.code != 0 {
            return Ok(Err(failed(&went)?));
        }
        let sum: String = Sha256::digest(&went.bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let encoded = encoded(&went).await?;
        let text = String::from_utf8(went.bytes.clone()).ok();
        Ok(Ok(json!({ "base64": encoded, "bytes": went.bytes.len(), "sha256": sum, "text": text })))
    }

    async fn files(&self, id: &str, with: &Value) -> Result<Outcome> {
        let path = text(with, "path");
        match text(with, "op") {
            "list" => Ok(self.call(&["fs", "ls", id, path]).await?.map(|mut listing| {
                listing["names"] = all(&listing["entries"], "name");
                listing
            })),
            "stat" => self.call(&["fs", "stat", id, path]).await,
            "exists" => match self.call(&["fs", "stat", id, path]).await? {
                Ok(_) => Ok(Ok(json!({ "exists": true }))),
                Err(failed) if failed.kind == "not_found" => Ok(Ok(json!({ "exists": false }))),
                other => Ok(other),
            },
            "mkdir" => self.call(&["fs", "mkdir", id, path]).await,
            "remove" => self.call(&["fs", "rm", id, path]).await,
            "rename" => self.call(&["fs", "mv", id, path, text(with, "to")]).await,
            other => bail!("`{other}` is new in the table: map it to a command"),
        }
    }

    async fn transfer(&self, id: &str, with: &Value) -> Result<Outcome> {
        let (sent, fetched) = (self.cli.home().join("sent"), self.cli.home().join("fetched"));
        let files = with["files"].as_object().context("no files")?;
        for (name, content) in files {
            let path = sent.join(name);
            fs::create_dir_all(path.parent().context("no directory")?)?;
            fs::write(path, content.as_str().unwrap_or_default())?;
        }
        let there = format!("{id}:{}", text(with, "path"));
        let mut progress = true;
        for words in [["sandbox", "cp", "sent", &there], ["sandbox", "cp", &there, "fetched"]] {
            let went = self.cli.run(&words).await?;
            ensure!(went.code == 0, "{went:?}");
            progress &= went.stderr.contains(&format!("{} files", files.len()));
        }
        let mut found = serde_json::Map::new();
        gather(&fetched, &fetched, &mut found)?;
        Ok(Ok(json!({ "files": found, "progress": progress })))
    }

    async fn terminal(&self, id: &str, with: &Value) -> Result<Outcome> {
        let side = |field: &str| with[field].as_u64().and_then(|side| u16::try_from(side).ok()).unwrap_or(24);
        let size = (side("rows"), side("cols"));
        let mut terminal = Terminal::start_with(&self.cli, &["sandbox", "ssh", id], size)?;
        terminal.until_raw().await?;
        terminal.type_in(text(with, "input"))?;
        let code = terminal.code().await?;
        Ok(Ok(json!({ "output": terminal.shown(), "exit_code": code })))
    }

    async fn context(&self, id: &str) -> Result<Outcome> {
        let went = self.cli.run(&["sandbox", "run-code", id, "--in-context", "new", "None"]).await?;
        ensure!(went.code == 0, "{went:?}");
        let context =
            went.stderr.lines().find_map(|line| line.strip_prefix("context: ")).context("no context")?;
        Ok(Ok(json!({ "id": context, "sandbox": id, "language": "python" })))
    }

    async fn run_code(&self, on: &Value, with: &Value) -> Result<Outcome> {
        let mut words =
            vec!["sandbox".to_owned(), "--output".to_owned(), "json".to_owned(), "run-code".to_owned()];
        match on["sandbox"].as_str() {
            Some(sandbox) => {
                words.extend([sandbox.to_owned(), "--in-context".to_owned(), text(on, "id").to_owned()])
            }
            None => words.push(text(on, "id").to_owned()),
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

    async fn fork(&self, id: &str, with: &Value) -> Result<Outcome> {
        let verb = if with["count"].is_null() { "fork" } else { "fork-tree" };
        let mut words = vec!["sandbox".to_owned(), verb.to_owned(), id.to_owned()];
        words.extend(options(with, &[("count", "--count"), ("metadata", "--metadata")]));
        self.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    async fn volume(&self, with: &Value) -> Result<Outcome> {
        let size = with["size_mb"].as_i64().unwrap_or(256).to_string();
        match text(with, "op") {
            "list" => {
                Ok(self.call(&["volume", "list"]).await?.map(|list| json!({ "names": all(&list, "name") })))
            }
            op @ ("create" | "resize") => {
                self.call(&["volume", op, text(with, "name"), "--size-mb", &size]).await
            }
            op => self.call(&["volume", op, text(with, "name")]).await,
        }
    }

    async fn token(&self, with: &Value) -> Result<Outcome> {
        match text(with, "op") {
            "list" => Ok(self
                .call(&["token", "list"])
                .await?
                .map(|list| json!({ "prefixes": all(&list, "prefix") }))),
            "revoke" => self.call(&["token", "revoke", text(with, "prefix")]).await,
            _ => {
                let mut words = vec!["token".to_owned(), "create".to_owned(), text(with, "label").to_owned()];
                words
                    .extend(options(with, &[("scope", "--scope"), ("expires_in_days", "--expires-in-days")]));
                self.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
            }
        }
    }

    async fn show(&self, id: &str, with: &Value) -> Result<Outcome> {
        let port = with["port"].as_u64().unwrap_or(0).to_string();
        match text(with, "what") {
            "me" => {
                let cli = Cli::new(&self.address)?;
                let cli = match with["api_key"].as_str() {
                    Some(key) => cli.with_key(key),
                    None => cli,
                };
                self.call_with(&cli, &["auth", "status"], b"").await
            }
            "templates" => {
                Ok(self.call(&["template", "list"]).await?.map(|list| json!({ "names": all(&list, "name") })))
            }
            "events" => {
                let events = self.call(&["sandbox", "events", id]).await?;
                Ok(events.map(|events| json!({ "types": all(&events["events"], "type") })))
            }
            "metrics" => self.call(&["sandbox", "metrics", id]).await,
            "add_port" => {
                let added =
                    self.call(&["sandbox", "add-port", id, &port, "--label", text(with, "label")]).await?;
                Ok(added.map(|port| json!({ "ports": [port["port"]] })))
            }
            "ports" => Ok(self
                .call(&["sandbox", "ports", id])
                .await?
                .map(|list| json!({ "ports": all(&list, "port") }))),
            "preview" => self.call(&["sandbox", "preview-url", id, &port]).await,
            "logs" => Ok(Ok(json!({ "text": self.cli.ok(&["sandbox", "logs", id]).await? }))),
            other => bail!("`{other}` is new in the table: map it to a command"),
        }
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

/// The host's own `base64`, so that both sides are not ours.
async fn filtered(arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let mut command = tokio::process::Command::new("/usr/bin/base64");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().context("no input")?;
    let input = input.to_vec();
    let writing = tokio::spawn(async move { stdin.write_all(&input).await });
    let output = child.wait_with_output().await?;
    writing.await??;
    Ok(output.stdout)
}

async fn decoded(encoded: &str) -> Result<Vec<u8>> {
    filtered(&["-d"], encoded.as_bytes()).await
}

async fn encoded(went: &Went) -> Result<String> {
    Ok(String::from_utf8(filtered(&["-w0"], &went.bytes).await?)?)
}

fn gather(root: &Path, folder: &Path, found: &mut serde_json::Map<String, Value>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            gather(root, &path, found)?;
        } else {
            let name = path.strip_prefix(root)?.to_str().context("not UTF-8")?.to_owned();
            found.insert(name, fs::read_to_string(&path)?.into());
        }
    }
    Ok(())
}
