//! Standard output is data, standard error is talk.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde::Serialize;
use telemetry::SpanLayer;
use tracing_subscriber::prelude::*;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs: one JSON document.
    Json,
}

/// Logs go to standard error; `PANDASTACK_LOG` chooses what is logged. Traces are watched by a layer of their own, whatever is logged.
pub(crate) fn start_logging(traces: Option<SpanLayer>) {
    let filter = tracing_subscriber::EnvFilter::try_from_env(crate::config::LOG_VARIABLE)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(colors(&io::stderr()))
        .with_filter(filter);
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
        Format::Text => {
            let text = text();
            stdout.write_all(text.as_bytes())?;
            if text.is_empty() || text.ends_with('\n') { Ok(()) } else { stdout.write_all(b"\n") }
        }
    }
}

/// One line of talk.
pub(crate) fn say(line: impl AsRef<str>) {
    // Nobody is left to tell when standard error is gone.
    drop(writeln!(io::stderr(), "{}", line.as_ref()));
}

/// An error with its causes.
pub(crate) fn report_error(error: &anyhow::Error) {
    say(format!("error: {error}"));
    for cause in error.chain().skip(1) {
        say(format!("  because: {cause}"));
    }
    let text = format!("{error:#}");
    let hint = if text.contains("engine") || text.contains("QEMU") {
        Some("pandastack doctor")
    } else if text.contains("data directory") && text.contains("in use") {
        Some("stop the other process, or choose another directory with --data-dir")
    } else {
        None
    };
    if let Some(hint) = hint {
        say(format!("hint: {hint}"));
    }
}
