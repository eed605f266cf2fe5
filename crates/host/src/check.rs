//! One thing that was tried on the host, and what came of it.

use serde::{Deserialize, Serialize};

/// One thing that was tried on the host, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Stable name for programs, e.g. `reflink`.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// How it went.
    pub status: Status,
    /// What was found, for people.
    pub detail: String,
    /// The command that mends it.
    pub fix: Option<String>,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Tried, and it works.
    Ok,
    /// Tried; PandaStack works, but worse than it could.
    Warning,
    /// Tried, and it does not work: machines will not run.
    Problem,
    /// Not tried, so nothing is claimed.
    NotTried,
}

/// Name and title of a check, from which each outcome is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
}

impl Subject {
    pub(crate) fn ok(self, detail: impl Into<String>) -> Check {
        self.check(Status::Ok, detail, None)
    }

    pub(crate) fn warning(self, detail: impl Into<String>, fix: impl Into<String>) -> Check {
        self.check(Status::Warning, detail, Some(fix.into()))
    }

    pub(crate) fn problem(self, detail: impl Into<String>, fix: impl Into<String>) -> Check {
        self.check(Status::Problem, detail, Some(fix.into()))
    }

    pub(crate) fn not_tried(self, detail: impl Into<String>) -> Check {
        self.check(Status::NotTried, detail, None)
    }

    pub(crate) fn check(self, status: Status, detail: impl Into<String>, fix: Option<String>) -> Check {
        Check { name: self.name.to_owned(), title: self.title.to_owned(), status, detail: detail.into(), fix }
    }
}
