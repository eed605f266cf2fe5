//! What is tried.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Context, bail};
use serde::Deserialize;

/// The most children one fork may have.
const BRANCHES_MAX: usize = 16;

/// One way to try.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidate {
    pub(super) label: String,
    /// A line for the shell.
    pub(super) cmd: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) timeout_seconds: f64,
    /// A score that is known beforehand.
    pub(super) score: Option<f64>,
}

/// A candidate as people write it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Written {
    Line(String),
    Object(Whole),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    label: Option<String>,
    cmd: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    timeout_s: Option<f64>,
    score: Option<f64>,
}

impl Written {
    fn candidate(self, timeout_seconds: f64) -> Candidate {
        let whole = match self {
            Self::Line(cmd) => Whole { label: None, cmd, env: BTreeMap::new(), timeout_s: None, score: None },
            Self::Object(whole) => whole,
        };
        Candidate {
            label: whole.label.unwrap_or_else(|| whole.cmd.clone()),
            cmd: whole.cmd,
            env: whole.env,
            timeout_seconds: whole.timeout_s.unwrap_or(timeout_seconds),
            score: whole.score,
        }
    }
}

/// The candidates of a file, or else of the command line.
pub(super) fn given(
    file: Option<&str>,
    commands: &[String],
    timeout_seconds: f64,
) -> anyhow::Result<Vec<Candidate>> {
    let written = match file {
        None => commands.iter().cloned().map(Written::Line).collect(),
        Some("-") => read(&io::read_to_string(io::stdin()).context("read candidates from standard input")?)?,
        Some(path) => read(&std::fs::read_to_string(path).with_context(|| format!("read {path}"))?)?,
    };
    match written.len() {
        0 => bail!("explore: there are no candidates"),
        1..=BRANCHES_MAX => {}
        many => bail!("explore: {many} candidates are more than {BRANCHES_MAX}; do it in rounds"),
    }
    Ok(written.into_iter().map(|one| one.candidate(timeout_seconds)).collect())
}

fn read(text: &str) -> anyhow::Result<Vec<Written>> {
    serde_json::from_str(text)
        .context("understand the candidates: a JSON list of lines, or of objects with `cmd`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_lines_or_objects() {
        let text =
            r#"["make", {"cmd": "true", "label": "yes", "env": {"A": "b"}, "timeout_s": 5, "score": 2}]"#;
        let read: Vec<_> = read(text).unwrap().into_iter().map(|one| one.candidate(60.0)).collect();
        assert_eq!(
            (read[0].label.as_str(), read[0].cmd.as_str(), read[0].timeout_seconds),
            ("make", "make", 60.0)
        );
        let env = BTreeMap::from([("A".to_owned(), "b".to_owned())]);
        let (label, cmd) = ("yes".to_owned(), "true".to_owned());
        assert_eq!(read[1], Candidate { label, cmd, env, timeout_seconds: 5.0, score: Some(2.0) });
        for wrong in ["{}", "[1]", r#"[{"label": "no command"}]"#, r#"[{"cmd": "x", "unknown": 1}]"#] {
            assert!(super::read(wrong).is_err(), "{wrong}");
        }
        assert!(given(None, &[], 60.0).is_err());
        assert!(given(None, &vec!["true".to_owned(); 17], 60.0).is_err());
        assert_eq!(given(None, &vec!["true".to_owned(); 16], 60.0).unwrap().len(), 16);
    }
}
