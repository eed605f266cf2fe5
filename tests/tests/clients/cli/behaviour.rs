//! The table of behaviour (`sdk/behaviour/cases.json`) that every client runs, with commands.

mod matching;
mod verbs;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use image::template::base;
use serde_json::{Map, Value};
use tests::api::serve_process::ServeProcess;
use tests::{Lab, LabSettings, run_for};

use crate::cli::program::{Cli, Went};

/// The first run makes an image of more than a gigabyte.
const BUILD_TIMEOUT: Duration = Duration::from_secs(3600);

/// A step that failed as the server or the command said.
#[derive(Debug)]
pub(crate) struct Failed {
    kind: String,
    /// As the program says it in JSON, with what was written until a timeout as `partial`.
    error: Value,
    /// What a person sees of it.
    shown: String,
}

/// What a step gave: its result, or how it failed.
pub(crate) type Outcome = Result<Value, Failed>;

/// Runs the steps of a case.
pub(crate) struct Runner {
    cli: Cli,
    address: String,
    template: String,
    results: BTreeMap<String, Value>,
}

#[test]
fn commands_behave_as_all_clients_do() -> Result<()> {
    run_for(BUILD_TIMEOUT, async || {
        let mut lab = Lab::prepare(LabSettings::with_templates("cli-table", &[base()])).await?;
        let server = ServeProcess::start(&mut lab, &[]).await?;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/behaviour/cases.json");
        let table: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
        let (mut ran, mut failed) = (0, Vec::new());
        for case in table["cases"].as_array().context("no cases")? {
            let name = case["name"].as_str().context("a case without a name")?;
            let steps = case["steps"].as_array().context("a case without steps")?;
            let started = Instant::now();
            let template = case["template"].as_str().or(table["template"].as_str()).context("no template")?;
            let address = server.address().to_string();
            let cli = Cli::new(&address)?;
            let mut runner = Runner { cli, address, template: template.to_owned(), results: BTreeMap::new() };
            ran += 1;
            match runner.case(steps).await {
                Ok(()) => eprintln!("{name}: {:.1} s", started.elapsed().as_secs_f64()),
                Err(error) => {
                    eprintln!("FAILED: {name}: {error:#}");
                    failed.push(name.to_owned());
                }
            }
            server.client().delete_everything().await?;
        }
        ensure!(failed.is_empty(), "{} of {ran} cases failed: {failed:?}", failed.len());
        ensure!(ran >= 12, "only {ran} cases ran");
        server.stop().await?;
        lab.remove()
    })
}

impl Runner {
    async fn case(&mut self, steps: &[Value]) -> Result<()> {
        for (number, step) in steps.iter().enumerate() {
            let deadline = Instant::now() + Duration::from_secs(step["within"].as_u64().unwrap_or(0));
            loop {
                match self.step(step).await {
                    Ok(()) => break,
                    Err(error) if Instant::now() >= deadline => {
                        return Err(error).with_context(|| format!("step {}, {step}", number + 1));
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                }
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Value) -> Result<()> {
        let arguments = self.filled(&step["with"])?;
        let on = match step["on"].as_str() {
            Some(name) => Some(self.look_up(name)?),
            None => None,
        };
        let verb = step["do"].as_str().context("a step that does nothing")?;
        let outcome = self.perform(verb, on.as_ref(), &arguments).await?;
        let result = match (outcome, step.get("error")) {
            (Ok(result), None) => result,
            (Ok(result), Some(_)) => bail!("it did not fail, but gave {result}"),
            (Err(failed), None) => bail!("{failed:?}"),
            (Err(failed), Some(wanted)) => return check_failure(&failed, &self.filled(wanted)?),
        };
        if let Some(wanted) = step.get("expect") {
            for (path, wanted) in self.filled(wanted)?.as_object().context("no fields")? {
                matching::check(path, find(&result, path), wanted)?;
            }
        }
        if let Some(name) = step["as"].as_str() {
            self.results.insert(name.to_owned(), result);
        }
        Ok(())
    }

    /// A result, or a field of one: `box`, `box.id`, `tree.1.id`.
    fn look_up(&self, path: &str) -> Result<Value> {
        let (name, rest) = path.split_once('.').unwrap_or((path, ""));
        let result = self.results.get(name).with_context(|| format!("nothing is called {name}"))?;
        // A child of a tree is reached by its number alone.
        let child = rest.split('.').next().and_then(|first| first.parse::<usize>().ok());
        let found = match child {
            Some(_) => find(&result["children"], rest),
            None => find(result, rest),
        };
        found.cloned().with_context(|| format!("there is no {path} in {result}"))
    }

    /// Arguments with what earlier steps gave in place of `$name.field`; other text stays, the shell has variables too.
    fn filled(&self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::String(text) => match reference(text) {
                Some(path) => self.look_up(path)?,
                None => Value::String(self.filled_within(text)?),
            },
            Value::Array(list) => list.iter().map(|one| self.filled(one)).collect::<Result<_>>()?,
            Value::Object(map) => {
                let filled = map.iter().map(|(name, one)| Ok((name.clone(), self.filled(one)?)));
                Value::Object(filled.collect::<Result<Map<_, _>>>()?)
            }
            other => other.clone(),
        })
    }

    /// The same for `${name.field}` within a text.
    fn filled_within(&self, text: &str) -> Result<String> {
        let Some((before, (path, after))) =
            text.split_once("${").and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        else {
            return Ok(text.to_owned());
        };
        let named = path.split('.').next().is_some_and(|name| self.results.contains_key(name));
        let filled = match named.then(|| self.look_up(path)).transpose()? {
            Some(Value::String(found)) => found,
            Some(found) => found.to_string(),
            None => format!("${{{path}}}"),
        };
        Ok(format!("{before}{filled}{}", self.filled_within(after)?))
    }
}

/// What `$name.field` refers to; nothing for other text.
fn reference(text: &str) -> Option<&str> {
    let path = text.strip_prefix('$')?;
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|one| one.is_alphanumeric() || one == '_');
    let holds = path.starts_with(|first: char| first.is_ascii_alphabetic()) && path.contains('.');
    (holds && path.split('.').all(is_name)).then_some(path)
}

/// A field by its dotted path; MIME types have dots and slashes, so the longest name that fits counts.
fn find<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return Some(value);
    }
    if let Some(found) = value.get(path) {
        return Some(found);
    }
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let next = match first.parse::<usize>() {
        Ok(at) if value.is_array() => value.get(at),
        _ => value.get(first),
    };
    next.and_then(|next| find(next, rest))
}

fn check_failure(failed: &Failed, wanted: &Value) -> Result<()> {
    ensure!(wanted["kind"] == failed.kind.as_str(), "it failed as {failed:?}");
    let has_status = failed.error["status"].as_u64().is_some_and(|status| status > 0);
    for field in ["status", "code"].into_iter().filter(|_| has_status) {
        if let Some(wanted) = wanted.get(field) {
            ensure!(failed.error[field] == *wanted, "{field}: {failed:?}");
        }
    }
    if has_status {
        ensure!(failed.error["request_id"].as_str().is_some_and(|id| !id.is_empty()), "{failed:?}");
    }
    let partial = &failed.error["partial"];
    for (field, found) in [
        ("message", &failed.error["error"]),
        ("stdout", &partial["stdout"]),
        ("stderr", &partial["stderr"]),
        ("text", &Value::from(&*failed.shown)),
    ] {
        if let Some(wanted) = wanted.get(field) {
            matching::check(field, Some(found), wanted)?;
        }
    }
    Ok(())
}

/// How a command failed, from what it said in JSON.
fn failed(went: &Went) -> Result<Failed> {
    ensure!(went.code == 1, "{went:?}");
    let last = went.stderr.trim_end().lines().last().unwrap_or_default();
    let error: Value =
        serde_json::from_str(last).with_context(|| format!("not an error in JSON: {went:?}"))?;
    let kind = match (error["status"].as_u64().unwrap_or(0), error["code"].as_str().unwrap_or_default()) {
        (_, "timeout") => "timeout",
        (401, _) => "auth",
        (403, _) => "permission",
        // What is said within a stream has a code only.
        (404, _) | (0, "not_found") => "not_found",
        (409, _) | (0, "conflict") => "conflict",
        (429, _) => "rate_limited",
        (0 | 400..500, _) => "bad_request",
        _ => "server",
    };
    Ok(Failed { kind: kind.to_owned(), error, shown: format!("{}{}", went.stdout, went.stderr) })
}
