//! One branch: its command, its score, and the files that changed.

use std::time::Instant;

use client::{Api, ClientError, Command, ExecEvent};

use super::candidate::Candidate;
use super::outcome::Outcome;

/// Where changed files are looked for.
pub(super) const ROOTS: &str = "/app /work /root /home";
const MARKER: &str = "/tmp/.pandastack-explore-marker";
const FILES_MAX: usize = 200;
/// How much of an output is kept.
const TAIL_BYTES: usize = 4096;
/// How long marking, measuring and looking for files may take.
const ASIDE_SECONDS: f64 = 30.0;

/// How branches are tried.
pub(super) struct Trial {
    /// What measures a branch.
    pub(super) score: Option<String>,
    /// Where changed files are looked for, quoted for the shell; nothing to leave that.
    pub(super) roots: Option<String>,
}

/// How a command ended.
struct Done {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    code: i32,
}

impl Trial {
    /// Tries a candidate in a sandbox. What goes wrong there stays there.
    pub(super) async fn run(&self, api: &Api, sandbox: &str, candidate: &Candidate) -> Outcome {
        let mut outcome = Outcome::new(&candidate.label, sandbox);
        let started = Instant::now();
        match self.command(api, sandbox, candidate).await {
            Ok(done) => {
                outcome.exit_code = Some(done.code);
                outcome.ok = done.code == 0;
                outcome.stdout_tail = tail(&done.stdout);
                outcome.stderr_tail = tail(&done.stderr);
            }
            Err(error) => {
                outcome.timed_out = error.to_string().contains("timeout");
                outcome.error = Some(error.to_string());
            }
        }
        outcome.duration_ms = started.elapsed().as_millis() as u64;
        if outcome.ok {
            self.files(api, sandbox, &mut outcome).await;
        }
        outcome.score = match (candidate.score, &self.score) {
            (Some(score), _) => score,
            (None, Some(line)) => match measured(api, sandbox, line).await {
                Ok(score) => score,
                Err(why) => {
                    // A measure that fails costs its branch, not the experiment.
                    outcome.error.get_or_insert(why);
                    0.0
                }
            },
            (None, None) => f64::from(u8::from(outcome.ok)),
        };
        outcome
    }

    async fn command(&self, api: &Api, sandbox: &str, candidate: &Candidate) -> Result<Done, ClientError> {
        if self.roots.is_some() {
            aside(api, sandbox, &format!("touch {MARKER}")).await?;
        }
        let command = Command {
            cmd: candidate.cmd.clone().into(),
            env: candidate.env.clone(),
            timeout_seconds: Some(candidate.timeout_seconds),
            ..Command::default()
        };
        finished(api, sandbox, &command).await
    }

    async fn files(&self, api: &Api, sandbox: &str, outcome: &mut Outcome) {
        let Some(roots) = &self.roots else { return };
        let line = format!("find {roots} -type f -newer {MARKER} 2>/dev/null | head -n {FILES_MAX}");
        match aside(api, sandbox, &line).await {
            Ok(done) => {
                let listed = String::from_utf8_lossy(&done.stdout).into_owned();
                outcome.files_changed = listed.lines().map(str::to_owned).collect();
            }
            Err(error) => outcome.error = Some(format!("what changed is unknown: {error}")),
        }
    }
}

/// The last word that a command writes, as a number.
async fn measured(api: &Api, sandbox: &str, line: &str) -> Result<f64, String> {
    let done = aside(api, sandbox, line).await.map_err(|error| format!("the score is unknown: {error}"))?;
    if done.code != 0 {
        return Err(format!("the score is unknown: its command ended with {}", done.code));
    }
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let word = said.split_whitespace().next_back().unwrap_or_default();
    let score: Option<f64> = word.parse().ok().filter(|score: &f64| score.is_finite());
    score.ok_or_else(|| format!("the score is unknown: `{word}` is no number"))
}

async fn aside(api: &Api, sandbox: &str, line: &str) -> Result<Done, ClientError> {
    let command = Command { cmd: line.into(), timeout_seconds: Some(ASIDE_SECONDS), ..Command::default() };
    finished(api, sandbox, &command).await
}

/// Runs a command to its end.
async fn finished(api: &Api, sandbox: &str, command: &Command) -> Result<Done, ClientError> {
    // Dropping its input would be to end it.
    let (_input, mut output) = api.exec(sandbox, command).await?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match output.next().await? {
            ExecEvent::Stdout(bytes) => keep(&mut stdout, &bytes),
            ExecEvent::Stderr(bytes) => keep(&mut stderr, &bytes),
            ExecEvent::Taken | ExecEvent::Deaf => {}
            ExecEvent::Exited { code, .. } => return Ok(Done { stdout, stderr, code }),
        }
    }
}

/// Keeps what may be asked for later of an output that may be long: its end, and a list of files whole.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    const KEPT_BYTES_MAX: usize = 1 << 20;
    kept.extend_from_slice(bytes);
    if kept.len() > 2 * KEPT_BYTES_MAX {
        kept.drain(..kept.len() - KEPT_BYTES_MAX);
    }
}

fn tail(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned()
}
