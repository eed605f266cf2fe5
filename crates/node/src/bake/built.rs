//! Templates that were built elsewhere: a disk, and what its image says about the processes in it.

use std::path::PathBuf;
use std::time::Duration;

use domain::{MachineShape, TemplateName};
use guest_link::GuestPath;
use guest_link::client::{CallError, Link};
use guest_link::message;
use serde::{Deserialize, Serialize};

use super::{Bake, BakeStage};
use crate::error::NodeError;

/// A template that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltTemplate {
    /// Its name.
    pub name: TemplateName,
    /// Its root disk. Cloned, never written.
    pub disk: PathBuf,
    /// Digest of the disk: two disks of the same digest are the same.
    pub digest: String,
    /// Its size.
    pub shape: MachineShape,
    /// What processes get where their callers say nothing.
    pub defaults: ProcessDefaults,
    /// What runs in its snapshot.
    pub start: Option<StartCommand>,
}

/// What the processes of a template's sandboxes get where their callers say nothing. Kept by the guest, in its memory and on its
/// disk, so that it goes wherever the sandbox goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessDefaults {
    /// Variables.
    pub env: Vec<(String, String)>,
    /// Working directory, absolute.
    pub cwd: Option<String>,
    /// Who runs them, as `user`, `uid`, `user:group` or `uid:gid`.
    pub user: Option<String>,
}

/// A command that is left running in a template's snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCommand {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// How to tell that it is ready.
    pub ready: Option<ReadyCheck>,
}

/// A command that succeeds when what was started is ready. The first success is enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyCheck {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Time between checks that count.
    pub interval: Duration,
    /// How long one check may take.
    pub timeout: Duration,
    /// Failures before this has passed do not count.
    pub start_period: Duration,
    /// So many failures one after another, and it will never be ready.
    pub retries: u32,
}

impl Bake<'_> {
    /// Tells a guest what its image says, and starts what it starts.
    pub(super) async fn furnish(
        &self,
        template: &BuiltTemplate,
        link: &Link,
        stages: &(dyn Fn(BakeStage) + Send + Sync),
    ) -> Result<(), NodeError> {
        self.set_defaults(&template.defaults, link).await?;
        match &template.start {
            Some(start) => self.start(start, link, stages).await,
            None => Ok(()),
        }
    }

    async fn set_defaults(&self, defaults: &ProcessDefaults, link: &Link) -> Result<(), NodeError> {
        if *defaults == ProcessDefaults::default() {
            return Ok(());
        }
        let unusable = |reason: String| NodeError::Defaults { template: self.name.clone(), reason };
        let cwd = defaults.cwd.as_deref().map(GuestPath::try_from).transpose();
        let user = defaults.user.clone().filter(|user| !user.is_empty());
        let asked = message::ProcessDefaults {
            env: defaults.env.clone(),
            cwd: cwd.map_err(|error| unusable(format!("its working directory's {error}")))?,
            user: user.clone(),
        };
        link.set_process_defaults(asked).await.map_err(|error| match error {
            CallError::Guest(message::Failure::Process(message::ProcessFailure::UnknownUser)) => {
                unusable(format!("there is no user or group `{}` in it", user.unwrap_or_default()))
            }
            CallError::Guest(failure) => unusable(failure.to_string()),
            error => NodeError::guest("keep the image's defaults")(error),
        })
    }
}
