//! Subjects of commits fit into a line of `git log`: at most 72 characters.

use std::path::Path;
use std::process::Command;

use crate::Findings;

const CHARACTERS_MAX: usize = 72;
/// Older ones stay as they are.
const SINCE: &str = "2026-11-19T00:00:00Z";

/// Looks at the history, where there is one: an archive of the sources has none.
pub(super) fn check(root: &Path, findings: &mut Findings) {
    if !root.join(".git").exists() {
        return;
    }
    let format = ["log", "--format=%h %s", "--no-merges"];
    let answer =
        Command::new("git").arg("-C").arg(root).args(format).arg(format!("--since={SINCE}")).output();
    match answer {
        Ok(answer) if answer.status.success() => {
            findings.errors.extend(too_long(&String::from_utf8_lossy(&answer.stdout)));
        }
        _ => findings.warnings.push("subjects of commits were not looked at: git gave no history".to_owned()),
    }
}

fn too_long(log: &str) -> Vec<String> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let long = commits.filter(|(_, subject)| subject.chars().count() > CHARACTERS_MAX);
    long.map(|(commit, subject)| {
        format!("commit {commit}: its subject has more than {CHARACTERS_MAX} characters: {subject}")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_counts_characters_of_the_subject() {
        let log = format!("abc1234 {}\ndef5678 {}\n", "é".repeat(72), "x".repeat(73));
        let found = too_long(&log);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("commit def5678"), "{found:?}");
    }
}
