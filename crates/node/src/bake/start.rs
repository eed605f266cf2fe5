//! The command that a built template leaves running in its snapshot, and how it is known to be ready.

use std::time::{Duration, Instant};

use guest_link::client::{CallError, ExecLimits, Link, ProcessEvent};
use guest_link::message::{Exit, Offsets, ProcessId, ProcessInfo, ProcessSpec};

use super::built::{ReadyCheck, StartCommand};
use super::{Bake, BakeStage};
use crate::error::NodeError;

/// What is kept of a command's words for an error.
const OUTPUT_BYTES: u64 = 4096;
/// How long a command without a check is watched: one that cannot start ends soon.
const WATCH: Duration = Duration::from_secs(2);
/// Time between checks whose failure does not count.
const EARLY_INTERVAL: Duration = Duration::from_millis(500);
/// Longest that anything is waited for, whatever a check says.
const READY_PATIENCE_MAX: Duration = Duration::from_secs(15 * 60);
/// How long reading the last words of a command may take.
const WORDS_TIMEOUT: Duration = Duration::from_secs(5);

/// How a check came out.
struct Checked {
    passed: bool,
    status: String,
    output: String,
}

impl Bake<'_> {
    /// Starts the command and waits until it is ready.
    pub(super) async fn start(
        &self,
        start: &StartCommand,
        link: &Link,
        stages: &(dyn Fn(BakeStage) + Send + Sync),
    ) -> Result<(), NodeError> {
        stages(BakeStage::Warming(start.argv.join(" ")));
        let started = link.start_detached(ProcessSpec::argv(start.argv.clone())).await;
        let started = started.map_err(|error| match error {
            CallError::Guest(failure) => self.not_started(&start.argv, failure.to_string(), String::new()),
            error => NodeError::guest("run the start command")(error),
        })?;
        match &start.ready {
            Some(check) => {
                stages(BakeStage::Warming(check.argv.join(" ")));
                self.await_ready(start, check, link, started.process).await
            }
            None => self.watch(start, link, started.process).await,
        }
    }

    fn not_started(&self, command: &[String], status: String, output: String) -> NodeError {
        NodeError::NotStarted { template: self.name.clone(), command: command.join(" "), status, output }
    }

    /// Without a check a command is fine as long as it has not failed.
    async fn watch(&self, start: &StartCommand, link: &Link, process: ProcessId) -> Result<(), NodeError> {
        let ended = async {
            let mut followed = link.attach(process, Offsets::NOW).await?;
            while !matches!(followed.next().await?, ProcessEvent::Exited(_)) {}
            Ok::<_, CallError>(())
        };
        match tokio::time::timeout(WATCH, ended).await {
            Err(_) => Ok(()),
            Ok(Err(error)) => Err(NodeError::guest("watch the start command")(error)),
            Ok(Ok(())) => self.check_alive(start, link, process).await,
        }
    }

    /// An error when the command has failed.
    async fn check_alive(
        &self,
        start: &StartCommand,
        link: &Link,
        process: ProcessId,
    ) -> Result<(), NodeError> {
        let info = link.process(process).await.map_err(NodeError::guest("watch the start command"))?;
        match info.exit {
            Some(exit) if exit.status.shell_code() != 0 => {
                let status = format!("ended with {}", said(&exit));
                Err(self.not_started(&start.argv, status, last_words(link, &info).await))
            }
            _ => Ok(()),
        }
    }

    /// Checks until it is ready: often at first, then as the check says.
    async fn await_ready(
        &self,
        start: &StartCommand,
        check: &ReadyCheck,
        link: &Link,
        process: ProcessId,
    ) -> Result<(), NodeError> {
        let begun = Instant::now();
        // A container's first check comes after one interval, so that nothing before it counts.
        let grace = check.start_period.max(check.interval).min(READY_PATIENCE_MAX);
        let mut failures = 0;
        loop {
            let counts = begun.elapsed() >= grace;
            let checked = self.check(check, link).await?;
            if checked.passed {
                return Ok(());
            }
            self.check_alive(start, link, process).await?;
            failures += u32::from(counts);
            if failures >= check.retries.max(1) || begun.elapsed() > READY_PATIENCE_MAX {
                let info =
                    link.process(process).await.map_err(NodeError::guest("watch the start command"))?;
                let words = last_words(link, &info).await;
                let output = format!("{}\n`{}` said: {words}", checked.output, start.argv.join(" "));
                let status = format!("{} {failures} times", checked.status);
                return Err(self.not_started(&check.argv, status, output));
            }
            let rest = if counts { check.interval } else { EARLY_INTERVAL.min(check.interval) };
            tokio::time::sleep(rest.min(READY_PATIENCE_MAX)).await;
        }
    }

    async fn check(&self, check: &ReadyCheck, link: &Link) -> Result<Checked, NodeError> {
        let kept = usize::try_from(OUTPUT_BYTES).unwrap_or(usize::MAX);
        let limits = ExecLimits { stdout_bytes_max: kept, stderr_bytes_max: kept };
        let mut spec = ProcessSpec::argv(check.argv.clone());
        spec.timeout_ms = Some(u64::try_from(check.timeout.as_millis()).unwrap_or(u64::MAX).max(1));
        let output = match link.exec(spec, b"", limits).await {
            Ok(output) => output,
            Err(CallError::Guest(failure)) => {
                return Ok(Checked { passed: false, status: failure.to_string(), output: String::new() });
            }
            Err(error) => return Err(NodeError::guest("run the readiness check")(error)),
        };
        let passed = output.exit.status.shell_code() == 0 && !output.exit.timed_out;
        let status = format!("ended with {}", said(&output.exit));
        let words = [output.stdout, output.stderr].concat();
        Ok(Checked { passed, status, output: String::from_utf8_lossy(&words).trim().to_owned() })
    }
}

fn said(exit: &Exit) -> String {
    match exit.timed_out {
        true => "its time".to_owned(),
        false => format!("exit code {}", exit.status.shell_code()),
    }
}

/// The last of what a command wrote.
async fn last_words(link: &Link, info: &ProcessInfo) -> String {
    let from = Offsets {
        stdout: info.stdout.end.saturating_sub(OUTPUT_BYTES),
        stderr: info.stderr.end.saturating_sub(OUTPUT_BYTES),
    };
    let (mut words, due) = (Vec::new(), (info.stdout.end - from.stdout) + (info.stderr.end - from.stderr));
    let reading = async {
        let mut followed = link.attach(info.process, from).await?;
        while (words.len() as u64) < due {
            match followed.next().await? {
                ProcessEvent::Output { data, .. } => words.extend_from_slice(&data),
                ProcessEvent::Gap { .. } => {}
                ProcessEvent::Exited(_) => break,
            }
        }
        Ok::<_, CallError>(())
    };
    // What cannot be read is missing in an error that says enough without it.
    drop(tokio::time::timeout(WORDS_TIMEOUT, reading).await);
    String::from_utf8_lossy(&words).trim().to_owned()
}
