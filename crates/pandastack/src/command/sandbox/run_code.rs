//! Code in a sandbox.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use client::Api;
use contract::interpreter::{CellAnswer, CreateContext, RunCell, RunOnce, RunOnceAnswer};

use crate::output::{self, Format};

/// Options of `run-code`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The sandbox.
    id: String,
    /// The code [default: standard input].
    code: Option<String>,
    /// Its language.
    #[arg(long, short, default_value = "python")]
    language: String,
    /// A context to run it in, which keeps its state; `new` makes one and says its id.
    #[arg(long, value_name = "ID")]
    in_context: Option<String>,
    /// Seconds after which it is stopped [default: 30].
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
}

pub(super) async fn run(api: &Api, arguments: Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let Arguments { id, code, language, in_context, timeout } = arguments;
    let code = given(code)?;
    match in_context {
        None => once(api, &id, &RunOnce { language, code, timeout_ms: milliseconds(timeout) }, format).await,
        Some(context) => {
            let context = match context.as_str() {
                "new" => {
                    let request = CreateContext { language: Some(language), cwd: None };
                    let made = api.create_context(&id, &request).await?;
                    output::say(format!("context: {}", made.id));
                    made.id
                }
                _ => context,
            };
            cell(api, (&id, &context), code, timeout, format).await
        }
    }
}

/// Code that was given, or comes from standard input.
pub(super) fn given(code: Option<String>) -> anyhow::Result<String> {
    match code {
        Some(code) => Ok(code),
        None => io::read_to_string(io::stdin()).context("read the code from standard input"),
    }
}

/// Runs code in a context of a sandbox.
pub(super) async fn cell(
    api: &Api,
    (id, context): (&str, &str),
    code: String,
    timeout: Option<f64>,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let answer = api
        .run_cell(id, context, &RunCell { code, timeout_ms: milliseconds(timeout), language: None })
        .await?;
    show(&answer, format)?;
    Ok(ended(answer.exit_code))
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

/// What a cell wrote and showed. Pictures are named, not drawn.
fn show(answer: &CellAnswer, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return Ok(output::result(format, answer, String::new)?);
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(answer.stdout.as_bytes())?;
    for result in &answer.results {
        match result.get("text/plain") {
            Some(text) => writeln!(stdout, "{text}")?,
            None => writeln!(stdout, "{}", result.keys().cloned().collect::<Vec<_>>().join(", "))?,
        }
    }
    io::stderr().write_all(answer.stderr.as_bytes())?;
    if let Some(error) = &answer.error {
        output::say(error.trim_end());
    }
    Ok(())
}
