//! Standard output is data, standard error is talk.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use client::ClientError;
use node::OpenError;
use serde::Serialize;
use serde_json::json;
use telemetry::SpanLayer;
use tracing_subscriber::prelude::*;

use crate::config::LogFormat;
use crate::connection::{API_VARIABLE, KEY_VARIABLE, NoKey};
use crate::hints;
use crate::table::{fields, table};

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[value(alias = "text")]
    Table,
    /// For programs: one JSON document.
    Json,
}

/// An error that knows what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Hinted {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// Logs go to standard error; `PANDASTACK_LOG` chooses what is logged. Traces are watched by a layer of their own, whatever is logged.
pub(crate) fn start_logging(traces: Option<SpanLayer>, format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_env(crate::config::LOG_VARIABLE)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let log = match format {
        LogFormat::Text => log.with_ansi(colors(&io::stderr())).boxed(),
        LogFormat::Json => log.json().flatten_event(true).with_span_list(false).boxed(),
    };
    let log = log.with_filter(filter);
    let logged = tracing_subscriber::registry().with(log);
    match traces {
        Some(layer) => logged.with(layer.watching_marked()).init(),
        None => logged.init(),
    }
}

/// Whether a stream is a terminal whose user did not ask for plain text.
pub(crate) fn colors(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes a result: `text` for people, `value` for programs.
pub(crate) fn result(
    format: Format,
    value: &impl Serialize,
    text: impl FnOnce() -> String,
) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut stdout, value)?;
            stdout.write_all(b"\n")
        }
        Format::Table => {
            let text = text();
            stdout.write_all(text.as_bytes())?;
            if text.is_empty() || text.ends_with('\n') { Ok(()) } else { stdout.write_all(b"\n") }
        }
    }
}

/// Writes a list: JSON as it is, or a table with a row for each.
pub(crate) fn list<T: Serialize, const N: usize>(
    format: Format,
    items: &[T],
    headings: [&str; N],
    row: impl Fn(&T) -> [String; N],
) -> io::Result<()> {
    result(format, &items, || table(headings, &items.iter().map(row).collect::<Vec<_>>()))
}

/// Writes what names each of a list, one a line; JSON as it is.
pub(crate) fn names<T: Serialize>(
    format: Format,
    items: &[T],
    name: impl Fn(&T) -> String,
) -> io::Result<()> {
    result(format, &items, || items.iter().map(|one| format!("{}\n", name(one))).collect())
}

/// Writes one object: JSON as it is, or its fields one a line.
pub(crate) fn object(format: Format, value: &impl Serialize) -> io::Result<()> {
    result(format, value, || fields(value))
}

/// What the server wants its caller to know.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        say(format!("warning: {}", hints::translated(warning)));
    }
}

/// One line of talk.
pub(crate) fn say(line: impl AsRef<str>) {
    // Nobody is left to tell when standard error is gone.
    drop(writeln!(io::stderr(), "{}", line.as_ref()));
}

/// The exit code of a program whose reader has gone.
pub(crate) const READER_GONE: u8 = 141;

/// Whether all that went wrong is that nobody reads what is written any more, as with `| head`.
pub(crate) fn reader_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// An error with its causes and what to do about it: lines for people, one JSON object for programs.
pub(crate) fn report_error(error: &anyhow::Error, format: Format) {
    let refusal = error.chain().find_map(|cause| cause.downcast_ref::<ClientError>()?.refusal());
    let causes: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
    if format == Format::Json {
        let mut value = json!({ "error": error.to_string(), "causes": causes, "hint": hint(error) });
        if let Some(refusal) = refusal {
            value["status"] = refusal.status.into();
            value["code"] = refusal.code.clone().into();
            value["request_id"] = refusal.request_id.clone().into();
            if let Some(partial) = &refusal.partial {
                value["partial"] = json!(partial);
            }
        }
        return say(value.to_string());
    }
    let of_server = |text: String| if refusal.is_some() { hints::translated(&text) } else { text };
    say(format!("error: {}", of_server(error.to_string())));
    for cause in causes {
        say(format!("  because: {}", of_server(cause)));
    }
    if let Some(id) =
        refusal.filter(|refusal| refusal.status >= 500).and_then(|refusal| refusal.request_id.as_ref())
    {
        say(format!("  request: {id}"));
    }
    if let Some(hint) = hint(error) {
        say(format!("hint: {hint}"));
    }
}

fn hint(error: &anyhow::Error) -> Option<String> {
    if error.chain().any(|cause| cause.is::<NoKey>()) {
        return Some(format!("pandastack auth login, or set {KEY_VARIABLE}"));
    }
    if let Some(hinted) = error.chain().find_map(|cause| cause.downcast_ref::<Hinted>()) {
        return hinted.hint.clone();
    }
    match error.chain().find_map(|cause| cause.downcast_ref::<OpenError>()) {
        Some(OpenError::Addresses(in_use)) => {
            let other = in_use.free.map(|free| format!("use other addresses: --addresses {free}"));
            let remains =
                in_use.is_over.then(|| "remove what is left of the other instance: pandastack gc".to_owned());
            return [remains, other].into_iter().flatten().reduce(|one, other| format!("{one}, or {other}"));
        }
        Some(OpenError::HalfRestored { .. }) => {
            return Some("remove it with pandastack uninstall, then restore again".to_owned());
        }
        _ => {}
    }
    let client = error.chain().find_map(|cause| cause.downcast_ref::<ClientError>());
    match client {
        Some(ClientError::Refused(refusal)) => return hints::hint(refusal),
        Some(ClientError::Unreachable { .. }) if format!("{error:#}").contains("peer certificate") => {
            return Some("SSL_CERT_FILE=authorities.pem names the certificates to trust".to_owned());
        }
        Some(ClientError::Unreachable { .. } | ClientError::Silent { .. } | ClientError::Protocol { .. }) => {
            return Some(format!(
                "name another server with --api or {API_VARIABLE}, or run one here: pandastack serve"
            ));
        }
        Some(ClientError::Address { .. }) => {
            return Some("an address is such as http://127.0.0.1:8080".to_owned());
        }
        _ => {}
    }
    let text = format!("{error:#}");
    if text.contains("there is no context") {
        Some("pandastack context list".to_owned())
    } else if text.contains("has the tag") {
        Some("pandastack sandbox process list SANDBOX".to_owned())
    } else if text.contains("engine") || text.contains("QEMU") {
        Some("pandastack doctor".to_owned())
    } else if text.contains("data directory") && text.contains("in use") {
        Some("stop the other process, or choose another directory with --data-dir".to_owned())
    } else {
        None
    }
}
