//! Looking at sandboxes.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use client::Api;
use contract::port::{AddPort, CreatePreview};
use serde::Deserialize;
use serde_json::Value;

use crate::duration::whole_seconds;
use crate::output::{self, Format, say};
use crate::signals::Signals;
use crate::table::table;

pub(super) async fn get(api: &Api, id: &str, format: Format) -> anyhow::Result<()> {
    Ok(output::object(format, &api.sandbox(id).await?)?)
}

/// Options of `logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// The sandbox.
    id: String,
    /// Go on with what it says from now on.
    #[arg(long, short)]
    follow: bool,
    /// Only so many of the newest lines.
    #[arg(long)]
    tail: Option<u32>,
}

pub(super) async fn logs(api: &Api, arguments: &LogsArguments) -> anyhow::Result<ExitCode> {
    if !arguments.follow {
        let text = api.logs(&arguments.id, arguments.tail).await?;
        io::stdout().write_all(&text)?;
        if text.iter().all(u8::is_ascii_whitespace) {
            let id = &arguments.id;
            say(format!(
                "hint: the kernel's console says nothing; what processes write: pandastack sandbox process logs {id} PROCESS"
            ));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = Signals::watch()?;
    tokio::select! {
        followed = follow(api, arguments) => followed.map(|()| ExitCode::SUCCESS),
        told = signals.next() => Ok(ExitCode::from(told.exit_code())),
    }
}

/// Writes what a console says until its sandbox goes.
async fn follow(api: &Api, arguments: &LogsArguments) -> anyhow::Result<()> {
    /// A line of a console, with its end.
    #[derive(Deserialize)]
    struct Line {
        line: String,
    }
    let mut events = api.follow_logs(&arguments.id, arguments.tail).await?;
    while let Some(event) = events.next().await? {
        if let Ok(line) = serde_json::from_str::<Line>(&event.data) {
            let mut stdout = io::stdout().lock();
            stdout.write_all(line.line.as_bytes())?;
            stdout.flush()?;
        }
    }
    Ok(())
}

pub(super) async fn events(api: &Api, id: &str, tail: u32, format: Format) -> anyhow::Result<()> {
    let events = api.sandbox_events(id, tail).await?;
    Ok(output::result(format, &events, || {
        let row = |one: &contract::event::Event| {
            let payload = one.payload.as_ref().map(Value::to_string).unwrap_or_default();
            [one.time.clone(), one.kind.clone(), payload]
        };
        let rows: Vec<_> = events.events.iter().map(row).collect();
        table(["TIME", "TYPE", "MORE"], &rows)
    })?)
}

pub(super) async fn metrics(api: &Api, id: &str, format: Format) -> anyhow::Result<()> {
    Ok(output::object(format, &api.sandbox_metrics(id).await?)?)
}

pub(super) async fn ports(api: &Api, id: &str, quiet: bool, format: Format) -> anyhow::Result<()> {
    if quiet {
        return Ok(output::names(format, &api.ports(id).await?, |one| one.port.to_string())?);
    }
    let headings = ["PORT", "LABEL", "LISTENING", "SOURCE", "WITH A KEY"];
    Ok(output::list(format, &api.ports(id).await?, headings, |one| {
        let listening = if one.listening { "yes" } else { "no" };
        let label = one.label.clone().unwrap_or_default();
        [one.port.to_string(), label, listening.to_owned(), one.source.clone(), one.proxy_url.clone()]
    })?)
}

pub(super) async fn add_port(
    api: &Api,
    id: &str,
    port: u16,
    label: Option<String>,
    format: Format,
) -> anyhow::Result<()> {
    Ok(output::object(format, &api.add_port(id, &AddPort { port: i64::from(port), label }).await?)?)
}

/// Options of `preview-url`.
#[derive(Debug, Args)]
pub(crate) struct PreviewArguments {
    /// The sandbox.
    id: String,
    /// The port.
    port: u16,
    /// Time until the link stops working, such as 600 or 12h [default: an hour].
    #[arg(long, value_name = "TIME", value_parser = whole_seconds, allow_negative_numbers = true)]
    expires: Option<i64>,
    /// A path that the link is limited to, with everything below it [default: all].
    #[arg(long)]
    path: Vec<String>,
}

pub(super) async fn preview_url(
    api: &Api,
    arguments: PreviewArguments,
    format: Format,
) -> anyhow::Result<()> {
    let request = CreatePreview {
        port: i64::from(arguments.port),
        ttl_seconds: arguments.expires,
        paths: Some(arguments.path).filter(|paths| !paths.is_empty()),
    };
    let preview = api.preview(&arguments.id, &request).await?;
    Ok(output::result(format, &preview, || preview.url.clone())?)
}
