//! Code in a sandbox.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use client::{Api, Cell, CellEvent, CellRun, DEFAULT_CONTEXT};
use contract::interpreter::{CreateContext, RunOnce, RunOnceAnswer};

use crate::duration::seconds;
use crate::output::{self, Format, say};
use crate::signals::Signals;

/// What it is when none is named.
const LANGUAGE: &str = "python";

/// Options of `run-code`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The sandbox.
    id: String,
    /// The code [default: standard input].
    code: Option<String>,
    /// Its language.
    #[arg(long, short, default_value = LANGUAGE)]
    language: String,
    /// Run it by itself: it sees nothing of code that ran before, and leaves nothing.
    #[arg(long, conflicts_with = "in_context")]
    once: bool,
    /// A context of your own to run it in; `new` makes one and says its id [default: the sandbox's context of that language].
    #[arg(long, value_name = "ID")]
    in_context: Option<String>,
    /// Time after which it is stopped, such as 90 or 5m [default: 30].
    #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<f64>,
}

pub(super) async fn run(api: &Api, arguments: Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let Arguments { id, code, language, once: is_once, in_context, timeout } = arguments;
    let code = given(code)?;
    let timeout_ms = milliseconds(timeout);
    if is_once {
        return once(api, &id, &RunOnce { language, code, timeout_ms }, format).await;
    }
    let (context, cell) = match in_context.as_deref() {
        None => {
            let language = Some(language).filter(|language| language != LANGUAGE);
            (DEFAULT_CONTEXT.to_owned(), Cell { code, timeout_ms, language })
        }
        Some("new") => {
            let request = CreateContext { language: Some(language), cwd: None };
            let made = api.create_context(&id, &request).await?;
            say(format!("context: {}", made.id));
            (made.id, Cell { code, timeout_ms, language: None })
        }
        Some(context) => (context.to_owned(), Cell { code, timeout_ms, language: None }),
    };
    perform(api, (&id, &context), &cell, format).await
}

/// Code that was given, or comes from standard input.
pub(super) fn given(code: Option<String>) -> anyhow::Result<String> {
    match code {
        Some(code) => Ok(code),
        None => io::read_to_string(io::stdin()).context("read the code from standard input"),
    }
}

/// Runs code in a context of a sandbox that exists.
pub(super) async fn cell(
    api: &Api,
    place: (&str, &str),
    code: String,
    timeout: Option<f64>,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let cell = Cell { code, timeout_ms: milliseconds(timeout), language: None };
    perform(api, place, &cell, format).await
}

fn milliseconds(seconds: Option<f64>) -> Option<i64> {
    seconds.map(|seconds| (seconds * 1000.0) as i64)
}

fn ended(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(255))
}

async fn once(api: &Api, id: &str, request: &RunOnce, format: Format) -> anyhow::Result<ExitCode> {
    let answer: RunOnceAnswer = api.run_once(id, request).await?;
    match format {
        Format::Json => output::result(format, &answer, String::new)?,
        Format::Table => {
            io::stdout().write_all(answer.stdout.as_bytes())?;
            io::stderr().write_all(answer.stderr.as_bytes())?;
        }
    }
    Ok(ended(answer.exit_code))
}

/// Runs a cell: for people what it writes as it comes, for programs its answer. Ctrl-C leaves the cell running.
async fn perform(
    api: &Api,
    (id, context): (&str, &str),
    cell: &Cell,
    format: Format,
) -> anyhow::Result<ExitCode> {
    if format == Format::Json {
        let run: CellRun = api.run_cell(id, context, cell).await?;
        output::result(format, &run, String::new)?;
        return Ok(ended(run.exit_code));
    }
    let mut signals = Signals::watch()?;
    let mut output = api.follow_cell(id, context, cell).await?;
    loop {
        let event = tokio::select! {
            event = output.next() => event?,
            told = signals.next() => return Ok(ExitCode::from(told.exit_code())),
        };
        match event {
            CellEvent::Stdout(text) => put(&mut io::stdout().lock(), &text)?,
            CellEvent::Stderr(text) => put(&mut io::stderr().lock(), &text)?,
            // Pictures are named, not drawn.
            CellEvent::Shown(result) => match result.get("text/plain") {
                Some(text) => put(&mut io::stdout().lock(), &format!("{text}\n"))?,
                None => {
                    let kinds = result.into_keys().collect::<Vec<_>>().join(", ");
                    put(&mut io::stdout().lock(), &format!("{kinds}\n"))?;
                }
            },
            CellEvent::Ended { exit_code, error } => {
                if let Some(error) = error {
                    say(error.trim_end());
                }
                return Ok(ended(exit_code));
            }
        }
    }
}

fn put(stream: &mut impl Write, text: &str) -> io::Result<()> {
    // The cell goes on meanwhile: its server keeps what it writes.
    tokio::task::block_in_place(|| {
        stream.write_all(text.as_bytes())?;
        stream.flush()
    })
}
