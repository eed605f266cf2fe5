//! What every test of a run took, kept in a file beside what cargo built.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// In the build directory.
const FILE: &str = "test-times.json";

/// One program or command, as it ran in one tier.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ran {
    pub(super) program: String,
    /// `everyday`, or the name of a part of the second tier.
    pub(super) tier: String,
    /// From beginning to end. Tests of one program overlap, so their seconds add up to more.
    pub(super) seconds: f64,
    pub(super) tests: Vec<(String, f64)>,
}

/// A whole run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Times(Vec<Ran>);

impl Times {
    pub(super) fn add(&mut self, ran: Ran) {
        self.0.push(ran);
    }

    pub(super) fn write(&self, target: &Path) -> Result<()> {
        let runs = self.0.iter().map(|ran| {
            let tests: BTreeMap<_, _> = ran.tests.iter().map(|(name, seconds)| (name, seconds)).collect();
            json!({"program": ran.program, "tier": ran.tier, "seconds": ran.seconds, "tests": tests})
        });
        let text = serde_json::to_string_pretty(&runs.collect::<Vec<_>>())?;
        fs::write(target.join(FILE), text + "\n").with_context(|| format!("write {FILE}"))
    }

    pub(super) fn read(target: &Path) -> Result<Self> {
        let path = target.join(FILE);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("read {}; `scripts/test` writes it", path.display()))?;
        let runs: Vec<Value> = serde_json::from_str(&text)?;
        let read = |run: &Value| -> Option<Ran> {
            let tests = run["tests"].as_object()?.iter();
            Some(Ran {
                program: run["program"].as_str()?.to_owned(),
                tier: run["tier"].as_str()?.to_owned(),
                seconds: run["seconds"].as_f64()?,
                tests: tests
                    .map(|(name, seconds)| Some((name.clone(), seconds.as_f64()?)))
                    .collect::<Option<_>>()?,
            })
        };
        let runs: Option<Vec<_>> = runs.iter().map(read).collect();
        runs.map(Self).with_context(|| format!("{FILE} was not written by this version"))
    }

    /// Seconds of all programs of a tier.
    pub(super) fn of_tier(&self, tier: &str) -> f64 {
        self.0.iter().filter(|ran| ran.tier == tier).map(|ran| ran.seconds).sum()
    }

    /// The dearest tests, a line each.
    pub(super) fn dearest(&self, count: usize) -> Vec<String> {
        let all =
            self.0.iter().flat_map(|ran| ran.tests.iter().map(move |(name, seconds)| (*seconds, ran, name)));
        let mut all: Vec<_> = all.collect();
        all.sort_by(|one, other| other.0.total_cmp(&one.0));
        let line = |(seconds, ran, name): &(f64, &Ran, &String)| {
            format!("{seconds:7.1} s  {} {name}  ({})", ran.program, ran.tier)
        };
        all.iter().take(count).map(line).collect()
    }

    /// What each suite took, a line each: a suite is a module of one of the programs that drive machines, else the program.
    /// Tests overlap, so a program's share of time goes to its suites by what their tests took.
    pub(super) fn by_program(&self) -> Vec<String> {
        let mut suites: BTreeMap<(String, &str), (f64, usize)> = BTreeMap::new();
        for ran in &self.0 {
            let sum: f64 = ran.tests.iter().map(|(_, seconds)| seconds).sum();
            let share = if sum > 0.0 { ran.seconds / sum } else { 0.0 };
            if ran.tests.is_empty() {
                suites.entry((ran.program.clone(), &ran.tier)).or_default().0 += ran.seconds;
            }
            for (name, seconds) in &ran.tests {
                let suite = match (ran.program.strip_prefix("tests:"), name.split_once("::")) {
                    (Some(_), Some((suite, _))) => format!("{}:{suite}", ran.program),
                    _ => ran.program.clone(),
                };
                let entry = suites.entry((suite, &ran.tier)).or_default();
                *entry = (entry.0 + seconds * share, entry.1 + 1);
            }
        }
        let mut suites: Vec<_> = suites.into_iter().collect();
        suites.sort_by(|one, other| other.1.0.total_cmp(&one.1.0));
        suites
            .iter()
            .map(|((suite, tier), (seconds, tests))| {
                format!("{seconds:7.1} s  {suite}, {tests} tests  ({tier})")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> Times {
        let ran = |program: &str, tier: &str, seconds: f64, tests: &[(&str, f64)]| Ran {
            program: program.to_owned(),
            tier: tier.to_owned(),
            seconds,
            tests: tests.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds)).collect(),
        };
        Times(vec![
            ran("tests:node", "everyday", 10.0, &[("fork::a", 15.0), ("disk::b", 5.0)]),
            ran("memory:lib", "everyday", 1.0, &[("sums::c", 1.0)]),
            ran("tests:node", "archive", 50.0, &[("archive::d", 50.0)]),
        ])
    }

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        times().write(directory.path()).unwrap();
        let read = Times::read(directory.path()).unwrap();
        assert_eq!(read.by_program(), times().by_program());
        assert_eq!(read.dearest(9), times().dearest(9));
    }

    #[test]
    fn time_is_added_up_by_tier_and_suite() {
        assert!((times().of_tier("everyday") - 11.0).abs() < 1e-9);
        assert_eq!(times().dearest(1), ["   50.0 s  tests:node archive::d  (archive)"]);
        let expected = [
            "   50.0 s  tests:node:archive, 1 tests  (archive)",
            "    7.5 s  tests:node:fork, 1 tests  (everyday)",
            "    2.5 s  tests:node:disk, 1 tests  (everyday)",
            "    1.0 s  memory:lib, 1 tests  (everyday)",
        ];
        assert_eq!(times().by_program(), expected);
    }
}
