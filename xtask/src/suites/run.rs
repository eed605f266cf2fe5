//! Runs programs one after the other, keeps everything that they say in a file, and shows what matters.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use super::libtest::{self, Outcome};
use super::programs::Program;
use super::times::{Ran, Times};
use crate::{Findings, say};

/// Everything that was said, in the build directory.
const LOG: &str = "test.log";
/// How much of what failed is shown; the log has all of it.
const SHOWN_BYTES_MAX: usize = 200_000;

/// A test that did not pass, or a whole program or command that ended badly.
#[derive(Debug)]
struct Failure {
    program: String,
    /// `None` where no test of it can be named.
    test: Option<String>,
    environment: BTreeMap<String, String>,
}

impl Failure {
    fn name(&self) -> String {
        self.test.as_ref().map_or_else(|| self.program.clone(), |test| format!("{} {test}", self.program))
    }
}

/// A run of many programs.
pub(super) struct Runner {
    root: PathBuf,
    log: File,
    log_path: PathBuf,
    times: Times,
    /// A line for each test.
    lines: Vec<String>,
    skipped: Vec<String>,
    unsteady: Vec<String>,
    failures: Vec<Failure>,
    /// What the failed ones said.
    said: String,
    tests: usize,
}

/// What one program did.
struct Seen {
    tests: Vec<libtest::Reported>,
    succeeded: bool,
    seconds: f64,
    said: String,
}

impl Runner {
    pub(super) fn create(root: &Path, target: &Path) -> Result<Self> {
        let log_path = target.join(LOG);
        let log = File::create(&log_path).with_context(|| format!("create {}", log_path.display()))?;
        Ok(Self {
            root: root.to_owned(),
            log,
            log_path,
            times: Times::default(),
            lines: Vec::new(),
            skipped: Vec::new(),
            unsteady: Vec::new(),
            failures: Vec::new(),
            said: String::new(),
            tests: 0,
        })
    }

    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// Runs these tests of a program.
    pub(super) fn run(&mut self, program: &Program, tests: &[String], tier: &str) -> Result<()> {
        self.run_with(program, tests, tier, &BTreeMap::new())
    }

    /// The same with variables.
    pub(super) fn run_with(
        &mut self,
        program: &Program,
        tests: &[String],
        tier: &str,
        environment: &BTreeMap<String, String>,
    ) -> Result<()> {
        if tests.is_empty() {
            return Ok(());
        }
        let seen = self.watch(&mut command(program, tests, environment))?;
        let failed: Vec<_> = seen.tests.iter().filter(|test| test.outcome == Outcome::Failed).collect();
        let failure = |test: Option<&str>| Failure {
            program: program.name.clone(),
            test: test.map(str::to_owned),
            environment: environment.clone(),
        };
        if !seen.succeeded && failed.is_empty() {
            // It died under its tests: none of those that did not end can be trusted.
            self.failures.push(failure(None));
        }
        self.failures.extend(failed.iter().map(|test| failure(Some(&test.name))));
        self.add(&program.name, tier, &seen, failed.len());
        Ok(())
    }

    /// Runs a command of the tree, in its root.
    pub(super) fn command(&mut self, name: &str, words: &[String]) -> Result<()> {
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        let mut command = Command::new(self.root.join(program));
        command.args(arguments).current_dir(&self.root);
        let seen = self.watch(&mut command)?;
        if !seen.succeeded {
            self.failures.push(Failure {
                program: name.to_owned(),
                test: None,
                environment: BTreeMap::new(),
            });
        }
        self.add(name, name, &seen, usize::from(!seen.succeeded));
        Ok(())
    }

    fn add(&mut self, program: &str, tier: &str, seen: &Seen, failed: usize) {
        self.tests += seen.tests.len();
        let passed = seen.tests.iter().filter(|test| test.outcome == Outcome::Passed).count();
        let verdict = if seen.succeeded { "passed" } else { "FAILED" };
        say(format!(
            "{verdict}: {program} ({tier}), {passed} passed, {failed} failed, {:.0} s",
            seen.seconds
        ));
        for test in &seen.tests {
            let outcome = match test.outcome {
                Outcome::Passed => "ok",
                Outcome::Failed => "FAILED",
                Outcome::Ignored => "ignored",
            };
            self.lines.push(format!("test {program} {} ... {outcome} {:.1} s", test.name, test.seconds));
        }
        if !seen.succeeded {
            self.said.push_str(&seen.said);
        }
        self.times.add(Ran {
            program: program.to_owned(),
            tier: tier.to_owned(),
            seconds: seen.seconds,
            tests: seen.tests.iter().map(|test| (test.name.clone(), test.seconds)).collect(),
        });
    }

    /// Runs a command to its end; what it says goes into the log.
    fn watch(&mut self, command: &mut Command) -> Result<Seen> {
        let began = Instant::now();
        writeln!(self.log, "── {:?}", command.get_program())?;
        let (reader, writer) = std::io::pipe().context("make a pipe")?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().with_context(|| format!("start {:?}", command.get_program()))?;
        // The writing ends in this process would keep the pipe open.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let (mut tests, mut said) = (Vec::new(), Vec::new());
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.context("read what a test program says")?;
            self.log.write_all(&line)?;
            self.log.write_all(b"\n")?;
            let text = String::from_utf8_lossy(&line).into_owned();
            if let Some(test) = libtest::line(&text) {
                tests.push(test);
            }
            if let Some(at) = text.find("SKIPPED") {
                self.skipped.push(text[at..].to_owned());
            }
            said.push(text);
        }
        let succeeded = child.wait().context("wait for a test program")?.success();
        // Of a program what failed tests said; of one that reports none, all of it.
        let told = said.iter().position(|line| line == "failures:").unwrap_or(0);
        Ok(Seen {
            tests,
            succeeded,
            seconds: began.elapsed().as_secs_f64(),
            said: said[told..].join("\n") + "\n",
        })
    }

    /// Shows what the failed tests said.
    pub(super) fn show_failures(&self) {
        if self.failures.is_empty() {
            return;
        }
        say(format!("everything that the tests said is in {}; what failed:", self.log_path.display()));
        let mut end = self.said.len().min(SHOWN_BYTES_MAX);
        while !self.said.is_char_boundary(end) {
            end -= 1;
        }
        say(&self.said[..end]);
    }

    /// Runs the tests that failed once more, each by itself: the host may have been too busy, or a neighbour in the way. One that
    /// passes only then is unsteady, and a bug to look into.
    pub(super) fn run_again(&mut self, programs: &[Program], most: usize) -> Result<()> {
        if self.failures.len() > most {
            return Ok(());
        }
        for failure in std::mem::take(&mut self.failures) {
            let program = programs.iter().find(|program| program.name == failure.program);
            let (Some(program), Some(test)) = (program, &failure.test) else {
                self.failures.push(failure);
                continue;
            };
            say(format!("once more, by itself: {}", failure.name()));
            let again =
                self.watch(&mut command(program, std::slice::from_ref(test), &failure.environment))?;
            let passed = again.succeeded && again.tests.iter().any(|seen| seen.outcome == Outcome::Passed);
            if passed {
                self.unsteady.push(failure.name());
            } else {
                self.said = again.said;
                self.failures.push(failure);
                self.show_failures();
            }
        }
        Ok(())
    }

    /// The end of it all.
    pub(super) fn report(&mut self, findings: &mut Findings) {
        findings.lines.append(&mut self.lines);
        self.skipped.sort();
        self.skipped.dedup();
        findings.lines.append(&mut self.skipped);
        let unsteady = |name: &String| format!("UNSTEADY: {name} failed, and passed when it was run alone");
        findings.warnings.extend(self.unsteady.iter().map(unsteady));
        findings.errors.extend(self.failures.iter().map(|failure| format!("{} failed", failure.name())));
        findings.looked_at = format!("{} tests", self.tests);
    }
}

/// A program with these tests only. Times are an unstable option of the test harness, so it is told that this is known.
fn command(program: &Program, tests: &[String], environment: &BTreeMap<String, String>) -> Command {
    let mut command = Command::new(&program.path);
    command.args(["--exact", "--show-output", "-Zunstable-options", "--report-time"]).args(tests);
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUST_BACKTRACE", "0")
        .env("CARGO_MANIFEST_DIR", &program.package);
    command.envs(environment).current_dir(&program.package);
    command
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that says what a test harness says: `broken` fails, `shy` fails unless it is alone.
    const HARNESS: &str = r#"#!/bin/sh
names=; count=0; bad=0
for word in "$@"; do case $word in -*) ;; *) names="$names $word"; count=$((count + 1)) ;; esac; done
echo "SKIPPED: no printer on this host"
for name in $names; do
  case $name-$count in broken-*|shy-[2-9]) echo "test $name ... FAILED <0.100s>"; bad=1 ;; *) echo "test $name ... ok <0.200s>" ;; esac
done
[ $bad = 0 ] || { echo; echo failures:; echo "it broke"; exit 101; }
"#;

    fn program(directory: &Path) -> Program {
        let path = directory.join("harness");
        std::fs::write(&path, HARNESS).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Program { name: "some:harness".to_owned(), path, package: directory.to_owned() }
    }

    fn findings(tests: &[&str]) -> Findings {
        let directory = tempfile::tempdir().unwrap();
        let programs = [program(directory.path())];
        let mut runner = Runner::create(directory.path(), directory.path()).unwrap();
        let tests: Vec<_> = tests.iter().map(|&test| test.to_owned()).collect();
        runner.run(&programs[0], &tests, "everyday").unwrap();
        runner.run_again(&programs, 5).unwrap();
        let mut findings = Findings::default();
        runner.report(&mut findings);
        findings
    }

    #[test]
    fn what_passes_is_listed_with_its_time_and_what_was_skipped() {
        let found = findings(&["one", "two"]);
        let lines = [
            "test some:harness one ... ok 0.2 s",
            "test some:harness two ... ok 0.2 s",
            "SKIPPED: no printer on this host",
        ];
        assert_eq!(found.lines, lines);
        assert_eq!((found.errors.len(), found.warnings.len()), (0, 0));
        assert_eq!(found.looked_at, "2 tests");
    }

    #[test]
    fn what_fails_twice_fails_and_what_passes_alone_is_unsteady() {
        let found = findings(&["one", "shy", "broken"]);
        assert_eq!(found.errors, ["some:harness broken failed"]);
        assert_eq!(found.warnings, ["UNSTEADY: some:harness shy failed, and passed when it was run alone"]);
    }

    #[test]
    fn a_command_that_fails_is_not_run_again() {
        let directory = tempfile::tempdir().unwrap();
        program(directory.path());
        let mut runner = Runner::create(directory.path(), directory.path()).unwrap();
        runner.command("story", &["harness".to_owned(), "broken".to_owned()]).unwrap();
        runner.run_again(&[], 5).unwrap();
        let mut findings = Findings::default();
        runner.report(&mut findings);
        assert_eq!(findings.errors, ["story failed"]);
    }
}
