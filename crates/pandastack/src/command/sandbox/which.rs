//! Which sandboxes are meant: filters of `list` and `delete`, which the server applies.

use clap::{Args, ValueEnum};
use contract::sandbox::{SandboxFilter, SandboxStatus};

/// Filters. All that are given have to fit.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Which {
    /// Only those in this status; several mean any of them.
    #[arg(long, value_enum)]
    pub(super) status: Vec<Status>,
    /// Only those made from this template.
    #[arg(long, short)]
    pub(super) template: Option<String>,
    /// Only the one of this name.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Only those with this metadata; of whatever value where none is given.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(super) metadata: Vec<String>,
    /// Only those forked from this sandbox, or made from a snapshot of it.
    #[arg(long, value_name = "ID")]
    pub(super) parent: Option<String>,
}

/// What a sandbox may be doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Status {
    /// Being made.
    Creating,
    /// Running, or being woken.
    Running,
    /// Its CPUs are stopped.
    Paused,
    /// Being deleted.
    Stopping,
    /// Its machine ended by itself.
    Failed,
    /// Asleep.
    #[value(alias = "sleeping")]
    Hibernated,
}

impl Status {
    const fn of_contract(self) -> SandboxStatus {
        match self {
            Self::Creating => SandboxStatus::Creating,
            Self::Running => SandboxStatus::Running,
            Self::Paused => SandboxStatus::Paused,
            Self::Stopping => SandboxStatus::Stopping,
            Self::Failed => SandboxStatus::Failed,
            Self::Hibernated => SandboxStatus::Hibernated,
        }
    }
}

impl Which {
    /// As the API takes it.
    pub(super) fn filter(&self) -> SandboxFilter {
        let metadata = self.metadata.iter().map(|text| match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (text.clone(), None),
        });
        SandboxFilter {
            status: self.status.iter().map(|status| status.of_contract()).collect(),
            template: self.template.clone(),
            name: self.name.clone(),
            metadata: metadata.collect(),
            parent: self.parent.clone(),
            root: None,
        }
    }
}
