//! Which tests every run has, which only some have, and how long runs may take: `tests/tiers.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

use super::programs::Program;

/// From the workspace's root.
pub(super) const PLACE: &str = "tests/tiers.toml";

/// Tests or a command that the everyday run leaves out.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    /// Why it is worth its time.
    pub(super) reason: String,
    /// `package:target`, unless it is a command.
    pub(super) program: Option<String>,
    /// What names of its tests begin with.
    pub(super) tests: Vec<String>,
    /// A program of the tree instead of tests, with its arguments.
    pub(super) command: Option<Vec<String>>,
    /// For its tests.
    pub(super) environment: BTreeMap<String, String>,
    /// A change below one of these touches it.
    paths: Vec<String>,
    seconds: u64,
}

impl Part {
    /// Whether a test belongs to it.
    pub(super) fn has(&self, test: &str) -> bool {
        self.tests.iter().any(|beginning| test.starts_with(beginning.as_str()))
    }

    pub(super) fn touched_by(&self, changed: &[String]) -> bool {
        changed.iter().any(|file| self.paths.iter().any(|path| file.starts_with(path.as_str())))
    }

    /// How long it takes, by experience.
    pub(super) fn expected(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// The whole file.
#[derive(Debug)]
pub(super) struct Tiers {
    everyday_minutes: u32,
    since_minutes: u32,
    pub(super) second: Vec<Part>,
}

impl Tiers {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(PLACE)).with_context(|| format!("read {PLACE}"))?;
        parse(&text).with_context(|| format!("read {PLACE}"))
    }

    /// Whether a test belongs to every run.
    pub(super) fn everyday(&self, program: &str, test: &str) -> bool {
        !self.second.iter().any(|part| part.program.as_deref() == Some(program) && part.has(test))
    }

    pub(super) fn everyday_seconds(&self) -> f64 {
        f64::from(self.everyday_minutes) * 60.0
    }

    /// How long a run with parts of the second tier may take from its beginning.
    pub(super) fn since(&self) -> Duration {
        Duration::from_secs(u64::from(self.since_minutes) * 60)
    }

    /// Every beginning of a name is that of a test: what was renamed would come back into every run.
    pub(super) fn fit(&self, programs: &[Program]) -> Result<()> {
        for part in self.second.iter().filter(|part| part.command.is_none()) {
            let name = part.program.as_deref().unwrap_or_default();
            let program = programs.iter().find(|program| program.name == name);
            let tests = program.with_context(|| format!("{PLACE}: there is no program {name}"))?.tests()?;
            for beginning in &part.tests {
                let is_one = tests.iter().any(|test| test.starts_with(beginning.as_str()));
                ensure!(is_one, "{PLACE}: no test of {name} begins with {beginning}");
            }
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<Tiers> {
    let mut file: Table = text.parse()?;
    let mut minutes = |name: &str| -> Result<u32> {
        let value = file.remove(name).and_then(|value| value.as_integer());
        value
            .and_then(|value| value.try_into().ok())
            .with_context(|| format!("{name} is no number of minutes"))
    };
    let (everyday_minutes, since_minutes) = (minutes("everyday_minutes")?, minutes("since_minutes")?);
    let Some(Value::Array(parts)) = file.remove("second") else { bail!("there is no [[second]]") };
    ensure!(file.is_empty(), "{:?} means nothing here", file.keys().collect::<Vec<_>>());
    let second = parts.into_iter().map(part).collect::<Result<_>>()?;
    Ok(Tiers { everyday_minutes, since_minutes, second })
}

fn part(value: Value) -> Result<Part> {
    let Value::Table(mut table) = value else { bail!("[[second]] is no table") };
    let name = string(&mut table, "name")?.context("a part without a name")?;
    let read = |table: &mut Table| -> Result<Part> {
        let seconds = table.remove("seconds").and_then(|value| value.as_integer());
        let environment = match table.remove("environment") {
            None => BTreeMap::new(),
            Some(variables) => variables.try_into().context("environment is no table of strings")?,
        };
        Ok(Part {
            name: name.clone(),
            reason: string(table, "reason")?.context("it needs a reason")?,
            program: string(table, "program")?,
            tests: strings(table, "tests")?.unwrap_or_default(),
            command: strings(table, "command")?,
            environment,
            paths: strings(table, "paths")?.context("it needs paths")?,
            seconds: seconds.and_then(|value| value.try_into().ok()).context("seconds is no number")?,
        })
    };
    let part = read(&mut table).with_context(|| format!("the part {name:?}"))?;
    ensure!(table.is_empty(), "the part {name:?}: {:?} means nothing here", table.keys().collect::<Vec<_>>());
    let is_tests = part.program.is_some() && !part.tests.is_empty() && part.command.is_none();
    let is_command = part.program.is_none() && part.tests.is_empty() && part.command.is_some();
    ensure!(is_tests || is_command, "the part {name:?} has either a program and tests or a command");
    Ok(part)
}

fn string(table: &mut Table, name: &str) -> Result<Option<String>> {
    table
        .remove(name)
        .map(|value| value.try_into().with_context(|| format!("{name} is no string")))
        .transpose()
}

fn strings(table: &mut Table, name: &str) -> Result<Option<Vec<String>>> {
    table
        .remove(name)
        .map(|value| value.try_into().with_context(|| format!("{name} are no strings")))
        .transpose()
}

/// Files that differ from a commit, those that are not committed among them.
pub(super) fn changed_since(root: &Path, commit: &str) -> Result<Vec<String>> {
    let answer = Command::new("git").args(["diff", "--name-only", commit, "--"]).current_dir(root).output();
    let answer = answer.context("start git")?;
    ensure!(answer.status.success(), "git knows no commit {commit}");
    Ok(String::from_utf8_lossy(&answer.stdout).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        everyday_minutes = 24
        since_minutes = 70
        [[second]]
        name = "archive"
        reason = "a store in trouble"
        program = "tests:node"
        tests = ["archive::", "blobs::frail"]
        paths = ["crates/storage/"]
        seconds = 140
        [[second]]
        name = "first hour"
        reason = "what a newcomer does"
        command = ["scripts/first-hour"]
        paths = ["scripts/"]
        seconds = 300
    "#;

    #[test]
    fn a_test_belongs_to_every_run_or_to_a_part() {
        let tiers = parse(FILE).unwrap();
        assert!(tiers.everyday("tests:node", "fork::eight"));
        assert!(tiers.everyday("tests:node", "blobs::upload::whole"));
        assert!(tiers.everyday("tests:service", "archive::of_a_service"));
        assert!(!tiers.everyday("tests:node", "archive::trouble::stalls"));
        assert!((tiers.everyday_seconds() - 1440.0).abs() < 1e-9);
        assert_eq!(tiers.since(), Duration::from_secs(4200));
    }

    #[test]
    fn a_change_touches_what_lies_below_its_paths() {
        let tiers = parse(FILE).unwrap();
        let changed = ["crates/storage/src/pool.rs".to_owned(), "README.md".to_owned()];
        let touched: Vec<_> = tiers
            .second
            .iter()
            .filter(|part| part.touched_by(&changed))
            .map(|part| part.name.as_str())
            .collect();
        assert_eq!(touched, ["archive"]);
    }

    #[test]
    fn a_file_that_says_nothing_certain_is_refused() {
        let broken = [
            ("seconds = 140", ""),
            ("seconds = 140", "seconds = 140\nsecond = 1"),
            ("tests = [\"archive::\", \"blobs::frail\"]", ""),
            ("everyday_minutes = 24", "everyday_minutes = \"24\""),
            ("command = [\"scripts/first-hour\"]", ""),
            ("reason = \"a store in trouble\"", ""),
        ];
        for (old, new) in broken {
            assert!(FILE.contains(old), "{old}");
            assert!(parse(&FILE.replacen(old, new, 1)).is_err(), "{old} as {new}");
        }
    }
}
