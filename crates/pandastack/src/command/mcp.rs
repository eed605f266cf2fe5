//! `pandastack mcp`: the server's tools for programs that speak the Model Context Protocol over standard input and output.
//!
//! ```text
//! client ─► a line of JSON on stdin ─► POST /v1/mcp with the key ─► a line of JSON on stdout
//! ```
//!
//! Messages are passed on as they are. Calls run at the same time and are answered as they end. A call that waits for a template
//! is asked again while the template moves, and the client is told how far it is. Standard output carries answers and nothing else.

use std::collections::HashMap;
use std::io::{BufRead as _, Read as _, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use client::{Api, ClientError};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use crate::connection::Connection;
use crate::output::say;

/// Longest line that is read, as the server bounds messages.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Calls at the same time; further ones wait.
const CALLS_MAX: usize = 16;
/// How long a template may stay at the same step before waiting for it is given up.
const STUCK_TIMEOUT: Duration = Duration::from_secs(900);
/// How often a template that is being prepared is asked for.
const PREPARING_INTERVAL: Duration = Duration::from_secs(2);

/// JSON-RPC: what came is no JSON.
const PARSE_ERROR: i32 = -32700;
/// JSON-RPC: the server cannot be reached, or refuses.
const SERVER_ERROR: i32 = -32000;

/// Options of `mcp`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Offer the tools of this sandbox alone, by id or name, instead of those of the workspace.
    #[arg(long, value_name = "ID")]
    sandbox: Option<String>,
}

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let bridge = Arc::new(Bridge { api: connection.api()?, sandbox: arguments.sandbox });
    let mut lines = lines()?;
    let (mut calls, mut by_id) = (JoinSet::new(), HashMap::<String, AbortHandle>::new());
    let slots = Arc::new(Semaphore::new(CALLS_MAX));
    while let Some(line) = lines.recv().await {
        let line = line?;
        while calls.try_join_next().is_some() {}
        by_id.retain(|_, call| !call.is_finished());
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let Ok(message) = serde_json::from_slice::<Value>(&line) else {
            answer(&failed(&Value::Null, PARSE_ERROR, "the line is no JSON"))?;
            continue;
        };
        if message["method"] == "notifications/cancelled" {
            if let Some(call) = by_id.remove(&message["params"]["requestId"].to_string()) {
                call.abort();
            }
            continue;
        }
        let (bridge, slots, id) = (Arc::clone(&bridge), Arc::clone(&slots), message["id"].to_string());
        let call = calls.spawn(async move {
            let _slot = slots.acquire_owned().await;
            if let Err(error) = bridge.pass_on(message).await {
                say(format!("could not write an answer: {error:#}"));
            }
        });
        by_id.insert(id, call);
    }
    // The client is done asking; what it asked for is still answered.
    while calls.join_next().await.is_some() {}
    Ok(ExitCode::SUCCESS)
}

/// Lines of standard input, read by a thread of their own: a read cannot be given up, and ends with the program.
fn lines() -> anyhow::Result<mpsc::Receiver<anyhow::Result<Vec<u8>>>> {
    let (sender, receiver) = mpsc::channel(CALLS_MAX);
    let read = move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = (&mut input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
            let line = match read.context("read standard input") {
                Ok(0) => return,
                Ok(_) if line.len() as u64 > LINE_BYTES_MAX => {
                    Err(anyhow::anyhow!("a message is longer than {LINE_BYTES_MAX} bytes"))
                }
                other => other.map(|_| line),
            };
            let last = line.is_err();
            if sender.blocking_send(line).is_err() || last {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(read)
        .context("start reading standard input")?;
    Ok(receiver)
}

/// What messages are passed on to.
struct Bridge {
    api: Api,
    sandbox: Option<String>,
}

impl Bridge {
    /// Passes a message on and writes its answer, if it wants one.
    async fn pass_on(&self, message: Value) -> anyhow::Result<()> {
        let wants_answer = message.get("id").is_some() && message.get("method").is_some();
        let said = match self.ask(&message).await {
            Ok(said) => said.filter(|_| wants_answer),
            Err(error) if wants_answer => Some(failed(&message["id"], SERVER_ERROR, &sentence(&error))),
            Err(error) => {
                say(format!("a notification could not be passed on: {}", sentence(&error)));
                None
            }
        };
        said.map_or(Ok(()), |said| answer(&said))
    }

    /// Asks the server, again while a template is being prepared and moves.
    async fn ask(&self, message: &Value) -> Result<Option<Value>, ClientError> {
        let (mut step, mut moved) = (Value::Null, Instant::now());
        let mut told = 0_u32;
        loop {
            let said = self.api.mcp(self.sandbox.as_deref(), message).await?;
            let Some(progress) = said.as_ref().and_then(preparing) else { return Ok(said) };
            if progress["changed_at"] != step {
                (step, moved) = (progress["changed_at"].clone(), Instant::now());
            }
            if moved.elapsed() > STUCK_TIMEOUT {
                return Ok(said);
            }
            told += 1;
            self.tell_progress(message, told, &progress["step"]);
            tokio::time::sleep(PREPARING_INTERVAL).await;
        }
    }

    /// Tells a client that asked for it how far a call is.
    fn tell_progress(&self, message: &Value, count: u32, step: &Value) {
        let token = &message["params"]["_meta"]["progressToken"];
        if token.is_null() {
            return;
        }
        let params = json!({ "progressToken": token, "progress": count, "message": step });
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
        // A client that is gone is noticed when the answer cannot be written.
        let _ = answer(&note);
    }
}

/// How far the template is that a call waits for, if it waits for one.
fn preparing(said: &Value) -> Option<&Value> {
    let refused = &said["result"]["structuredContent"];
    (said["result"]["isError"] == true && refused["code"] == "template_preparing")
        .then_some(&refused["progress"])
}

fn failed(id: &Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

/// An error and what lies behind it, in one line.
fn sentence(error: &ClientError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(because) = cause {
        text.push_str(": ");
        text.push_str(&because.to_string());
        cause = because.source();
    }
    text
}

/// Writes one message as one line.
fn answer(message: &Value) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_template_that_is_being_prepared_is_waited_for() {
        let progress = json!({ "step": "installing", "changed_at": "now" });
        let said = |code: &str, is_error: bool| {
            let body = json!({ "code": code, "progress": progress });
            json!({ "result": { "isError": is_error, "structuredContent": body } })
        };
        assert_eq!(preparing(&said("template_preparing", true)), Some(&progress));
        assert_eq!(preparing(&said("template_preparing", false)), None);
        assert_eq!(preparing(&said("unavailable", true)), None);
        assert_eq!(preparing(&json!({ "error": {} })), None);
    }
}
