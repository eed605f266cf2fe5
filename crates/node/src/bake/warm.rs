//! Warm-up commands of a template.

use std::time::Duration;

use guest_link::client::{ExecLimits, Link};
use guest_link::message::{ProcessSpec, User};

use super::Bake;
use crate::error::NodeError;

/// How long one warm-up command may take.
const WARM_TIMEOUT: Duration = Duration::from_secs(300);
/// What is kept of a warm-up command's words for an error.
const WARM_OUTPUT_BYTES: usize = 4096;

impl Bake<'_> {
    pub(super) async fn warm_up(&self, link: &Link, command: &[String]) -> Result<(), NodeError> {
        match self.run_to_its_end(link, command).await? {
            (0, _) => Ok(()),
            (code, output) => Err(self.not_warm(command, format!("exit code {code}"), output)),
        }
    }

    pub(super) fn not_warm(&self, command: &[String], status: String, output: String) -> NodeError {
        NodeError::Warm { template: self.name.clone(), command: command.join(" "), status, output }
    }

    /// A command's exit code and what it said about its errors.
    async fn run_to_its_end(&self, link: &Link, command: &[String]) -> Result<(i32, String), NodeError> {
        let limits = ExecLimits { stdout_bytes_max: WARM_OUTPUT_BYTES, stderr_bytes_max: WARM_OUTPUT_BYTES };
        let mut spec = ProcessSpec::argv(command.to_vec());
        spec.user = Some(User::ROOT);
        let running = link.exec(spec, b"", limits);
        let silent =
            NodeError::GuestSilent { what: "finish a warm-up command", seconds: WARM_TIMEOUT.as_secs() };
        let output = tokio::time::timeout(WARM_TIMEOUT, running)
            .await
            .map_err(|_| silent)?
            .map_err(NodeError::guest("run a warm-up command"))?;
        Ok((output.exit.status.shell_code(), String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}
