//! What fields must be, as `sdk/behaviour/README.md` says.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// An error unless a field is what it must be.
pub(crate) fn check(path: &str, found: Option<&Value>, wanted: &Value) -> Result<()> {
    let found = found.unwrap_or(&Value::Null);
    let matcher = wanted.as_object().filter(|map| map.len() == 1).and_then(|map| map.iter().next());
    let holds = match matcher {
        Some((name, value)) => match name.as_str() {
            "contains" => contains(found, value)?,
            "lacks" => !contains(found, value)?,
            "matches" => matches(found, value)?,
            "length" => length(found)? == value.as_u64().context("a length that is no number")?,
            "at_least" => found.as_f64() >= value.as_f64(),
            "set" => found.is_null() != value.as_bool().context("set is true or false")?,
            "not" => found != value,
            _ => found == wanted,
        },
        None => found == wanted,
    };
    let shown = found.to_string();
    ensure!(holds, "{path} is {}, and not {wanted}", shown.chars().take(2000).collect::<String>());
    Ok(())
}

fn contains(found: &Value, value: &Value) -> Result<bool> {
    match (found, value) {
        (Value::String(text), Value::String(part)) => Ok(text.contains(part)),
        (Value::Array(list), _) => Ok(list.contains(value)),
        _ => bail!("{found} can contain nothing"),
    }
}

fn length(found: &Value) -> Result<u64> {
    match found {
        Value::String(text) => Ok(text.chars().count() as u64),
        Value::Array(list) => Ok(list.len() as u64),
        _ => bail!("{found} has no length"),
    }
}

/// The host's own `grep` knows the expressions of the table.
fn matches(found: &Value, pattern: &Value) -> Result<bool> {
    let (text, pattern) = (found.as_str().context("not a string")?, pattern.as_str().context("no pattern")?);
    let mut grep = Command::new("/usr/bin/grep");
    grep.args(["-qzP", "--", pattern]).stdin(Stdio::piped()).env("LC_ALL", "C.UTF-8");
    let mut grep = grep.spawn().context("start grep")?;
    let written = grep.stdin.take().context("no input")?.write_all(text.as_bytes());
    let status = grep.wait()?;
    // It may have seen enough before it read all.
    ensure!(written.is_ok() || status.success(), "{written:?}");
    Ok(status.success())
}
