//! Runs the tests and says what they cost. Which belong to the everyday run and which to the second tier is in `tests/tiers.toml`.
//!
//! `cargo xtask test` builds all test programs and runs those of the tier asked for, one program after the other; what every
//! test took is kept in `target/test-times.json`. `cargo xtask budget` adds that up.

mod libtest;
mod programs;
mod run;
mod tiers;
mod times;

use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{Findings, say};
use run::Runner;
use tiers::Tiers;
use times::Times;

/// Most tests that are run once more by themselves. More failures than these are no accident.
const RUN_AGAIN_MAX: usize = 5;
/// How many of the dearest tests are named.
const DEAREST: usize = 20;

/// What `cargo xtask test` is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Everything, however long it takes.
    all: bool,
    /// Of the second tier what a change since this commit touches, as far as time allows.
    since: Option<String>,
    /// What the whole run has taken before it came here.
    spent: Duration,
}

impl Options {
    /// Reads what stands behind `cargo xtask test`.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--all" => options.all = true,
                "--since" => options.since = Some(rest.next().context("--since needs a commit")?.clone()),
                "--spent" => {
                    let seconds = rest.next().context("--spent needs seconds")?;
                    options.spent = Duration::from_secs(seconds.parse().context("--spent needs seconds")?);
                }
                other => bail!("{other} is no option of `cargo xtask test`"),
            }
        }
        if options.all && options.since.is_some() {
            bail!("--all runs whatever --since would choose: give one of them");
        }
        Ok(options)
    }
}

/// Where cargo puts what it builds.
fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Builds and runs the tests.
pub(crate) fn test(root: &Path, options: &Options) -> Result<Findings> {
    let began = Instant::now();
    let tiers = Tiers::read(root)?;
    let changed = options.since.as_deref().map(|commit| tiers::changed_since(root, commit)).transpose()?;
    say("building every test program");
    let programs = programs::build(root)?;
    say(format!("built in {} s", began.elapsed().as_secs()));

    let mut runner = Runner::create(root, &target(root))?;
    let mut findings = Findings::default();
    for program in &programs {
        let everyday: Vec<_> =
            program.tests()?.into_iter().filter(|test| tiers.everyday(&program.name, test)).collect();
        runner.run(program, &everyday, "everyday")?;
    }
    let mut not_run = Vec::new();
    for part in &tiers.second {
        if !options.all && !changed.as_ref().is_some_and(|files| part.touched_by(files)) {
            continue;
        }
        let spent = options.spent + began.elapsed();
        if !options.all && spent + part.expected() > tiers.since() {
            not_run.push(format!(
                "NOT RUN: {}, for want of time; `scripts/test --all` runs it. What it is for: {}",
                part.name, part.reason
            ));
            continue;
        }
        match &part.command {
            Some(command) => runner.command(&part.name, command)?,
            None => {
                for program in programs.iter().filter(|program| part.program.as_ref() == Some(&program.name))
                {
                    let tests: Vec<_> = program.tests()?.into_iter().filter(|test| part.has(test)).collect();
                    runner.run_with(program, &tests, &part.name, &part.environment)?;
                }
            }
        }
    }
    // Said before what failed is run again, which may take a while.
    runner.show_failures();
    runner.run_again(&programs, RUN_AGAIN_MAX)?;
    runner.times().write(&target(root))?;
    runner.report(&mut findings);
    findings.lines.append(&mut not_run);
    if let Err(error) = tiers.fit(&programs) {
        findings.errors.push(format!("{error:#}"));
    }
    Ok(findings)
}

/// Says what the tests of the last run took, and whether the everyday ones fit.
pub(crate) fn budget(root: &Path) -> Result<Findings> {
    let tiers = Tiers::read(root)?;
    let times = Times::read(&target(root))?;
    let mut findings = Findings { lines: times.dearest(DEAREST), ..Findings::default() };
    findings.lines.push(String::new());
    findings.lines.extend(times.by_program());
    let (taken, allowed) = (times.of_tier("everyday"), tiers.everyday_seconds());
    findings.looked_at = format!("everyday tests took {taken:.0} s of {allowed:.0} s");
    if taken > allowed {
        let over =
            format!("the everyday tests are {:.0} s over their budget: make some cheaper,", taken - allowed);
        findings.errors.push(format!("{over} or move long runs to the second tier in {}", tiers::PLACE));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options> {
        Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        assert_eq!(parse("").unwrap(), Options::default());
        let since = Options { since: Some("HEAD~3".to_owned()), spent: Duration::from_secs(7), all: false };
        assert_eq!(parse("--since HEAD~3 --spent 7").unwrap(), since);
        assert!(parse("--all").unwrap().all);
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        for text in ["--since", "--spent x", "--every", "--all --since HEAD"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
