//! What is wrong with a Dockerfile, and what is worth knowing about one that is fine.

use std::fmt;

/// Something in a Dockerfile that cannot be built: where, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct DockerfileError {
    /// The line of the file, from 1, on which the instruction begins.
    pub line: usize,
    /// What is wrong, in a sentence without a full stop.
    pub problem: String,
    /// What to do about it, where that is not obvious.
    pub hint: Option<String>,
}

impl DockerfileError {
    pub(crate) fn new(line: usize, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Something accepted that has less effect than its author may expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The line of the file, from 1.
    pub line: usize,
    /// A sentence.
    pub text: String,
}

impl Note {
    pub(crate) fn new(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.text)
    }
}

/// A problem found where the line is not known; whoever knows it adds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) problem: String,
    pub(crate) hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn at(self, line: usize) -> DockerfileError {
        DockerfileError { line, problem: self.problem, hint: self.hint }
    }
}
