//! Commands in a workshop.

use std::time::Duration;

use guest_link::GuestPath;
use guest_link::client::{CallError, ProcessEvent};
use guest_link::message::{Channel, ExitStatus};
use guest_link::tool::{Mount, RunRequest, ToolRequest};

use super::{ATTACHED, Workshop, guest_path, tool};
use crate::error::NodeError;

/// A command to run. It is the first process of its own, and everything it starts ends when it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkshopCommand {
    /// The program, looked up on `PATH` unless it has a slash, and its arguments.
    pub argv: Vec<String>,
    /// All its variables, besides `PATH` and `HOME` where they are missing here.
    pub env: Vec<(String, String)>,
    /// Working directory; `/` when absent.
    pub cwd: Option<GuestPath>,
    /// Who runs it, as `user`, `uid`, `user:group` or `uid:gid`; root when absent.
    pub user: Option<String>,
    /// Its standard input.
    pub stdin: Vec<u8>,
    /// When it is killed, with everything it started.
    pub timeout: Option<Duration>,
    /// What is mounted for it, in this order.
    pub mounts: Vec<Mount>,
}

impl WorkshopCommand {
    /// A command run by root in `/`, with nothing else.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd: None,
            user: None,
            stdin: Vec::new(),
            timeout: None,
            mounts: Vec::new(),
        }
    }
}

impl Workshop {
    /// Runs a command to its end and hands over what it writes as it comes. A command that could not be run at all says so on
    /// its standard error and ends with 125, 126 or 127. Dropping the future leaves the command running, as long as the workshop is open.
    pub async fn run(
        &self,
        command: WorkshopCommand,
        output: &mut (dyn FnMut(Channel, &[u8]) + Send),
    ) -> Result<ExitStatus, NodeError> {
        const WHAT: &str = "run a command";
        let WorkshopCommand { argv, env, cwd, user, stdin, timeout, mounts } = command;
        let request = ToolRequest::Run(RunRequest {
            argv,
            env,
            cwd,
            user,
            mounts,
            resolver: self.resolver.clone(),
            hidden: Some(guest_path(ATTACHED)),
        });
        let request = tool::encoded(WHAT, &request)?;
        let running = async {
            let mut process = self.link.start(tool::spec(timeout)).await?;
            let input = process.take_input();
            let feed = async {
                if let Some(input) = &input
                    && input.write(&request).await?
                    && input.write(&stdin).await?
                {
                    input.close();
                }
                Ok::<(), CallError>(())
            };
            let follow = async {
                loop {
                    match process.next().await? {
                        ProcessEvent::Output { channel, data, .. } => output(channel, &data),
                        ProcessEvent::Gap { .. } => {}
                        ProcessEvent::Exited(exit) => return Ok(exit),
                    }
                }
            };
            let ((), exit) = tokio::try_join!(feed, follow)?;
            Ok(exit)
        };
        let exit = self.attended(WHAT, running).await?;
        match (exit.timed_out, timeout) {
            (true, Some(timeout)) => Err(NodeError::StepTimeout { seconds: timeout.as_secs() }),
            _ => Ok(exit.status),
        }
    }
}
