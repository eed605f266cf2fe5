//! What became of the branches, and which is best.

use std::cmp::Ordering;

use clap::ValueEnum;
use serde::Serialize;

use crate::table::table;

/// Longest label in a table.
const LABEL_CHARACTERS_MAX: usize = 40;

/// Which score is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Select {
    /// The highest.
    Max,
    /// The lowest.
    Min,
}

/// What became of one candidate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Outcome {
    pub(super) label: String,
    pub(super) sandbox_id: String,
    /// Whether its command ended with 0.
    pub(super) ok: bool,
    pub(super) score: f64,
    pub(super) exit_code: Option<i32>,
    /// The end of what it wrote.
    pub(super) stdout_tail: String,
    pub(super) stderr_tail: String,
    pub(super) files_changed: Vec<String>,
    pub(super) duration_ms: u64,
    pub(super) error: Option<String>,
    pub(super) timed_out: bool,
}

impl Outcome {
    /// Of a branch in which nothing was done yet.
    pub(super) fn new(label: &str, sandbox_id: &str) -> Self {
        Self {
            label: label.to_owned(),
            sandbox_id: sandbox_id.to_owned(),
            ok: false,
            score: 0.0,
            exit_code: None,
            stdout_tail: String::new(),
            stderr_tail: String::new(),
            files_changed: Vec::new(),
            duration_ms: 0,
            error: None,
            timed_out: false,
        }
    }

    /// Why it did not do well.
    pub(super) fn trouble(&self) -> String {
        match (&self.error, self.exit_code) {
            (Some(error), _) => format!("{}: {error}", self.label),
            (None, Some(code)) => format!("{}: exit code {code}", self.label),
            (None, None) => self.label.clone(),
        }
    }
}

/// From best to worst: by score, then the quicker, then by label. Where success is required, those that failed come last, whatever
/// their score is.
pub(super) fn ranked(mut outcomes: Vec<Outcome>, select: Select, require_success: bool) -> Vec<Outcome> {
    let by_score = |one: &Outcome, other: &Outcome| match select {
        Select::Max => other.score.total_cmp(&one.score),
        Select::Min => one.score.total_cmp(&other.score),
    };
    outcomes.sort_by(|one, other| {
        let failed = if require_success { other.ok.cmp(&one.ok) } else { Ordering::Equal };
        failed
            .then_with(|| by_score(one, other))
            .then_with(|| one.duration_ms.cmp(&other.duration_ms))
            .then_with(|| one.label.cmp(&other.label))
    });
    outcomes
}

/// Outcomes for people.
pub(super) fn shown(outcomes: &[Outcome], winner: &str) -> String {
    let row = |one: &Outcome| {
        let mark = if one.sandbox_id == winner { "*" } else { "" };
        let exit = one.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        [
            mark.to_owned(),
            one.label.chars().take(LABEL_CHARACTERS_MAX).collect(),
            one.score.to_string(),
            exit,
            one.duration_ms.to_string(),
            one.files_changed.len().to_string(),
            one.error.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = outcomes.iter().map(row).collect();
    table(["", "LABEL", "SCORE", "EXIT", "MS", "FILES", "ERROR"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &[(&str, bool, f64, u64)], select: Select, require_success: bool, expected: &str) {
        let outcome = |(label, ok, score, duration_ms): &(&str, bool, f64, u64)| Outcome {
            ok: *ok,
            score: *score,
            duration_ms: *duration_ms,
            ..Outcome::new(label, label)
        };
        let ranked = ranked(given.iter().map(outcome).collect(), select, require_success);
        let labels: Vec<_> = ranked.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(labels.join(" "), expected);
    }

    #[test]
    fn the_best_comes_first() {
        let given = [("a", true, 1.0, 9), ("b", false, 5.0, 1), ("c", true, 3.0, 9), ("d", true, 3.0, 8)];
        check(&given, Select::Max, true, "d c a b");
        check(&given, Select::Min, true, "a d c b");
        check(&given, Select::Max, false, "b d c a");
        check(&[("z", true, 1.0, 1), ("y", true, 1.0, 1)], Select::Max, true, "y z");
    }
}
