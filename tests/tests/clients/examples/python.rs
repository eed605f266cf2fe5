//! The examples in Python.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use image::template::code_interpreter;
use tests::api::TEMPLATE;
use tests::published;
use tokio::process::Command;

use crate::examples::{Stage, examples, says, with_server};

/// What an agent that follows `primes.json` shows: an error that it makes, one that it mends, and state from call to call.
const AGENT_SAYS: [&str; 9] = [
    "I write a program and run it.",
    "→ write_file ",
    "← wrote 119 bytes to /root/primes.py",
    "NameError: name 'limt' is not defined",
    "(exit code 1)",
    "669\n(exit code 0)",
    "→ run_python ",
    "← sieve: 669\n669",
    "There are 669 primes below 5000.",
];
/// What every PNG file begins with.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The interpreter that has what examples need.
async fn interpreter() -> Result<PathBuf> {
    Ok(published::python("requirements-examples.txt").await?.join("python"))
}

impl Stage {
    /// Runs an example with an interpreter, which finds our client.
    async fn python(&self, command: &mut Command, name: &str) -> Result<String> {
        command.arg(examples()?.join("python").join(name));
        command.env("PYTHONPATH", examples()?.join("../sdk/python/src")).env("PYTHONDONTWRITEBYTECODE", "1");
        self.run(command).await.with_context(|| format!("run {name}"))
    }

    /// Runs an example of an agent.
    async fn agent(&self, name: &str) -> Result<()> {
        let mut command = self.with_model("primes.json")?;
        let said = self.python(command.arg(interpreter().await?), name).await?;
        says(&said, &AGENT_SAYS).with_context(|| format!("what {name} shows"))
    }

    /// Runs an example that needs no model, in sandboxes of a template.
    async fn plain(&self, name: &str, template: &str) -> Result<String> {
        let mut command = self.command(interpreter().await?);
        self.python(command.env("PANDASTACK_TEMPLATE", template), name).await
    }
}

/// The number that follows a text.
fn number_after(said: &str, before: &str) -> Result<f64> {
    let (_, after) = said.split_once(before).with_context(|| format!("{before:?} is missing in\n{said}"))?;
    let digits = after.split_whitespace().next().unwrap_or_default();
    digits.parse().with_context(|| format!("no number after {before:?} in\n{said}"))
}

/// Every branch went its own way from the same instant, and the best is left.
fn best_of_n(said: &str) -> Result<()> {
    let prepared = number_after(said, "prepared:")?;
    let nearest = number_after(said, "nearest city next")?;
    let uncrossed = number_after(said, "nearest, uncrossed")?;
    ensure!(uncrossed < nearest && nearest < prepared, "{said}");
    ensure!(number_after(said, "kept: nearest, uncrossed,")? == uncrossed, "{said}");
    ensure!(number_after(said, "the parent still has")? == prepared, "{said}");
    says(said, &["prepared", "nearest, uncrossed", "nearest city next", "kept", "of 4 branches 1 is left"])?;
    says(said, &["a mistake", "AttributeError"])?;
    says(said, &["every order", "time"])
}

#[test]
fn examples_in_python_show_what_they_say() -> Result<()> {
    with_server("examples-python", &[code_interpreter()], async |stage| {
        for agent in ["anthropic_tools.py", "openai_tools.py", "langchain_tool.py"] {
            stage.agent(agent).await?;
        }
        best_of_n(&stage.plain("best_of_n.py", TEMPLATE).await?)?;
        // The suites' template has only a part of Python's library.
        let said = stage.plain("web_preview.py", "code-interpreter").await?;
        says(&said, &["/v1/p/", "visit 1<", "visit 2<", "now it is hibernated", "visit 3<"])?;

        let said = stage.plain("data_analysis.py", "code-interpreter").await?;
        says(&said, &["36 sales", "chair", "2026-01", "2026-04", "revenue.html", "revenue.png"])?;
        let table = fs::read_to_string(stage.scratch.join("revenue.html"))?;
        says(&table, &["<table", "<th>chair</th>", "<th>2026-04</th>", "</table>"])?;
        let plot = fs::read(stage.scratch.join("revenue.png"))?;
        ensure!(plot.starts_with(PNG) && plot.len() > 5000, "a picture of {} bytes", plot.len());
        Ok(())
    })
}
