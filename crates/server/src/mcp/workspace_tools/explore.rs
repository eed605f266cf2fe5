//! `explore`: fork a sandbox, try another command in each fork, keep the best.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use contract::exec::{ExecAnswer, ExecRequest};
use contract::snapshot::{ForkRequest, PromoteRequest};
use control::{ControlError, Kind};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use super::work::timeout_seconds;
use crate::mcp::tool::{ToolAnswer, ToolCall};

/// Branches of one call.
const BRANCHES: std::ops::RangeInclusive<usize> = 2..=16;
/// How many run at the same time.
const AT_ONCE: usize = 4;
/// Seconds without use after which a branch goes that no call chose: its caller went away.
const FORGOTTEN_SECONDS: &str = "600";
/// As much of a branch's output as is told, from its end.
const OUTPUT_CHARS_MAX: usize = 2000;

#[derive(Debug, Deserialize)]
struct Explore {
    sandbox_id: String,
    commands: Vec<String>,
    score_command: Option<String>,
    timeout_seconds: Option<f64>,
    keep_all: Option<bool>,
}

/// One way that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Branch {
    sandbox_id: String,
    command: String,
    /// Absent when it was killed at its timeout.
    exit_code: Option<i32>,
    /// 1 when the command succeeded and 0 when not, or what `score_command` wrote; absent when that was no number.
    score: Option<f64>,
    stdout_tail: String,
    stderr_tail: String,
}

/// What came of all of them.
#[derive(Debug, Serialize)]
struct Explored {
    /// The best; absent when none did well.
    winner: Option<String>,
    /// From best to worst.
    branches: Vec<Branch>,
    /// Forks that were deleted.
    deleted: Vec<String>,
    /// What went wrong beside the commands.
    errors: Vec<String>,
}

pub(super) async fn explore(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let arguments: Explore = call.arguments()?;
    let timeout = timeout_seconds(arguments.timeout_seconds);
    if !BRANCHES.contains(&arguments.commands.len()) {
        let (least, most) = BRANCHES.into_inner();
        return Err(ControlError::invalid(format!("commands must be {least} to {most} shell commands")));
    }
    let metadata = [("explore", "1"), ("explore_ttl", FORGOTTEN_SECONDS)];
    let metadata: BTreeMap<_, _> =
        metadata.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let count = i64::try_from(arguments.commands.len()).ok();
    let request = ForkRequest { count, metadata: Some(metadata), ..ForkRequest::default() };
    let tree = call.control.fork(call.caller, &arguments.sandbox_id, request).await?;
    let mut errors: Vec<String> =
        tree.errors.iter().map(|failure| format!("fork {}: {}", failure.index, failure.err)).collect();
    let score = arguments.score_command.as_deref();
    let trials = tree.children.iter().zip(&arguments.commands);
    let trials: Vec<_> =
        trials.map(|(child, command)| tried(&call, &child.id, command, score, timeout)).collect();
    let mut branches: Vec<Branch> = stream::iter(trials).buffered(AT_ONCE).collect().await;
    rank(&mut branches);
    let winner =
        branches.first().filter(|best| does_well(best, score.is_some())).map(|best| best.sandbox_id.clone());
    let mut deleted = Vec::new();
    match (&winner, arguments.keep_all.unwrap_or(false)) {
        (_, true) => {}
        (Some(winner), false) => {
            let request =
                PromoteRequest { cleanup_siblings: Some(true), tree_id: Some(tree.tree_id.clone()) };
            let promoted = call.control.promote(call.caller, winner, request).await?;
            deleted = promoted.deleted;
            errors.extend(promoted.failures.into_iter().map(|(id, why)| format!("delete {id}: {why}")));
        }
        (None, false) => {
            for child in &tree.children {
                match call.control.delete_sandbox(call.caller, &child.id).await {
                    Ok(()) => deleted.push(child.id.clone()),
                    Err(error) => errors.push(format!("delete {}: {error}", child.id)),
                }
            }
        }
    }
    let explored = Explored { winner, branches, deleted, errors };
    let answer = ToolAnswer::text(told(&explored)).structured(&explored)?;
    Ok(if explored.winner.is_some() { answer } else { answer.failed() })
}

/// Runs a command in a fork and scores what came of it. Nothing that happens in one branch ends the others.
async fn tried(call: &ToolCall<'_>, id: &str, command: &str, score: Option<&str>, timeout: f64) -> Branch {
    let (exit_code, stdout, stderr) = match exec(call, id, command, timeout).await {
        Ok(answer) => (Some(answer.exit_code), answer.stdout, answer.stderr),
        Err(error) => {
            let partial = error.partial.as_deref().cloned().unwrap_or_default();
            (None, partial.stdout, format!("{}{}", partial.stderr, error.message))
        }
    };
    let score = match score {
        None => Some(if exit_code == Some(0) { 1.0 } else { 0.0 }),
        Some(score) => exec(call, id, score, timeout).await.ok().and_then(|answer| number(&answer)),
    };
    Branch {
        sandbox_id: id.to_owned(),
        command: command.to_owned(),
        exit_code,
        score,
        stdout_tail: tail(&stdout),
        stderr_tail: tail(&stderr),
    }
}

async fn exec(
    call: &ToolCall<'_>,
    id: &str,
    command: &str,
    timeout: f64,
) -> Result<ExecAnswer, ControlError> {
    let request =
        ExecRequest { cmd: command.into(), timeout_seconds: Some(timeout), ..ExecRequest::default() };
    match call.control.exec(call.caller, id, request).await {
        Err(error) if error.kind != Kind::Timeout => {
            tracing::info!(?error, sandbox.id = id, "a branch could not be tried");
            Err(error)
        }
        other => other,
    }
}

/// The last word that a scoring command wrote, as a number.
fn number(answer: &ExecAnswer) -> Option<f64> {
    let word = answer.stdout.split_whitespace().next_back()?;
    word.parse().ok().filter(|score: &f64| score.is_finite() && answer.exit_code == 0)
}

/// From best to worst: those with the highest score first; of equals, the one whose command was given first.
fn rank(branches: &mut [Branch]) {
    let score = |branch: &Branch| branch.score.unwrap_or(f64::NEG_INFINITY);
    branches.sort_by(|one, other| score(other).total_cmp(&score(one)));
}

/// Whether a branch may win: it has a score, and where nothing scores it, its command succeeded.
fn does_well(branch: &Branch, scored: bool) -> bool {
    branch.score.is_some_and(|score| scored || score > 0.0)
}

fn tail(text: &str) -> String {
    let dropped = text.chars().count().saturating_sub(OUTPUT_CHARS_MAX);
    text.chars().skip(dropped).collect()
}

/// A table for the model, and what to do next.
fn told(explored: &Explored) -> String {
    let mut text = match &explored.winner {
        Some(winner) => format!("The best branch is sandbox {winner}; go on in it.\n"),
        None => "No branch did well.\n".to_owned(),
    };
    for branch in &explored.branches {
        let score = branch.score.map_or("none".to_owned(), |score| score.to_string());
        let exit = branch.exit_code.map_or("timeout".to_owned(), |code| format!("exit {code}"));
        // Writing to a string does not fail.
        let _ = write!(text, "\n## {} (score {score}, {exit})\n", branch.command);
        for (title, output) in [("stdout", &branch.stdout_tail), ("stderr", &branch.stderr_tail)] {
            if !output.is_empty() {
                let _ = writeln!(text, "[{title}]\n{}", output.trim_end());
            }
        }
    }
    for error in &explored.errors {
        let _ = writeln!(text, "\n[{error}]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(command: &str, exit_code: Option<i32>, score: Option<f64>) -> Branch {
        Branch {
            sandbox_id: command.to_owned(),
            command: command.to_owned(),
            exit_code,
            score,
            stdout_tail: String::new(),
            stderr_tail: String::new(),
        }
    }

    #[test]
    fn the_highest_score_comes_first_and_of_equals_the_first() {
        let mut branches = vec![
            branch("a", Some(0), Some(1.0)),
            branch("b", Some(0), None),
            branch("c", Some(0), Some(7.0)),
            branch("d", Some(1), Some(7.0)),
        ];
        rank(&mut branches);
        let order: Vec<&str> = branches.iter().map(|branch| branch.command.as_str()).collect();
        assert_eq!(order, ["c", "d", "a", "b"]);
    }

    #[test]
    fn who_may_win() {
        assert!(does_well(&branch("a", Some(0), Some(1.0)), false));
        assert!(!does_well(&branch("a", Some(1), Some(0.0)), false));
        assert!(does_well(&branch("a", Some(1), Some(-3.0)), true), "a score may be below zero");
        assert!(!does_well(&branch("a", Some(0), None), true));
    }

    #[test]
    fn output_is_told_from_its_end() {
        assert_eq!(tail("short"), "short");
        assert_eq!(tail(&format!("{}é", "x".repeat(OUTPUT_CHARS_MAX))).chars().count(), OUTPUT_CHARS_MAX);
        assert!(tail(&format!("{}é", "x".repeat(OUTPUT_CHARS_MAX))).ends_with('é'));
    }
}
