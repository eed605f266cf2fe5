//! The guest program as a tool of its own guest.

use std::time::Duration;

use guest_link::GuestPath;
use guest_link::client::{CallError, ExecLimits, Process, ProcessEvent, ProcessInput};
use guest_link::message::{ProcessSpec, Stdin, User};
use guest_link::tool::{ARGUMENT, FOUND_BYTES_MAX, HOLD_SECONDS_MAX, PROGRAM, Place, ToolRequest};

use super::{ATTACHED, Workshop, guest_path};
use crate::error::NodeError;

/// What is kept of the tool's trouble.
const SAID_BYTES_MAX: usize = 4096;

/// How to start the tool.
pub(super) fn spec(timeout: Option<Duration>) -> ProcessSpec {
    let mut spec = ProcessSpec::argv([PROGRAM, ARGUMENT]);
    spec.user = Some(User::ROOT);
    spec.cwd = Some(guest_path("/"));
    spec.stdin = Stdin::Pipe;
    spec.timeout_ms = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    spec
}

/// A request as the tool reads it.
pub(super) fn encoded(what: &'static str, request: &ToolRequest) -> Result<Vec<u8>, NodeError> {
    request.encode().map_err(|error| NodeError::Tool { what, said: error.to_string() })
}

/// A path that may lie in an attached disk, with the directory that its links cannot lead out of.
pub(super) fn place(path: &GuestPath) -> Place {
    let inside = path.as_bytes().strip_prefix(ATTACHED.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
    let split = inside.map(|inside| {
        let length = inside.iter().position(|byte| *byte == b'/').unwrap_or(inside.len());
        (ATTACHED.len() + 1 + length, &inside[length..])
    });
    let whole = || Place { root: guest_path("/"), path: path.clone() };
    let Some((end, rest)) = split else { return whole() };
    let rest = if rest.is_empty() { b"/" } else { rest };
    match (GuestPath::parse(&path.as_bytes()[..end]), GuestPath::parse(rest)) {
        (Ok(root), Ok(path)) => Place { root, path },
        _ => whole(),
    }
}

impl Workshop {
    /// Has the tool do something; what it writes.
    pub(super) async fn tool(
        &self,
        what: &'static str,
        request: &ToolRequest,
        timeout: Duration,
    ) -> Result<Vec<u8>, NodeError> {
        let request = encoded(what, request)?;
        let limits = ExecLimits { stdout_bytes_max: FOUND_BYTES_MAX, stderr_bytes_max: SAID_BYTES_MAX };
        let output = self.attended(what, self.link.exec(spec(Some(timeout)), &request, limits)).await?;
        if output.exit.timed_out {
            return Err(NodeError::GuestSilent { what, seconds: timeout.as_secs() });
        }
        if output.exit.status.shell_code() == 0 {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let said = if said.is_empty() { format!("it ended with {:?}", output.exit.status) } else { said };
        Err(NodeError::Tool { what, said })
    }

    /// Lets nobody write the file system at a path.
    pub(super) async fn hold(&self, path: &GuestPath) -> Result<Held, NodeError> {
        const WHAT: &str = "hold a file system";
        let request = encoded(WHAT, &ToolRequest::Hold(path.clone()))?;
        let patience = Duration::from_secs(u64::from(HOLD_SECONDS_MAX));
        let begun = async {
            let mut process = self.link.start(spec(None)).await?;
            let input = process.take_input();
            if let Some(input) = &input {
                input.write_all(&request).await?;
            }
            let mut said = Vec::new();
            // It says one line when it holds, and ends without one when it cannot.
            while !said.contains(&b'\n') {
                match process.next().await? {
                    ProcessEvent::Output { data, .. } => said.extend_from_slice(&data),
                    ProcessEvent::Gap { .. } => {}
                    ProcessEvent::Exited(_) => break,
                }
                said.truncate(SAID_BYTES_MAX);
            }
            Ok::<_, CallError>((said, Held { process, input }))
        };
        let begun = self.attended(WHAT, begun);
        let silent = NodeError::GuestSilent { what: WHAT, seconds: patience.as_secs() };
        let (said, held) = tokio::time::timeout(patience, begun).await.map_err(|_| silent)??;
        match said == b"held\n" {
            true => Ok(held),
            false => {
                Err(NodeError::Tool { what: WHAT, said: String::from_utf8_lossy(&said).trim().to_owned() })
            }
        }
    }
}

/// A file system that nobody can write, until it is let go. The guest lets go by itself after [`HOLD_SECONDS_MAX`].
pub(super) struct Held {
    process: Process,
    input: Option<ProcessInput>,
}

impl Held {
    /// Lets go. An error when it was not held all the time.
    pub(super) async fn let_go(&mut self, workshop: &Workshop) -> Result<(), NodeError> {
        const WHAT: &str = "let go of a file system";
        if let Some(input) = self.input.take() {
            input.close();
        }
        let limits = ExecLimits { stdout_bytes_max: 0, stderr_bytes_max: SAID_BYTES_MAX };
        let output = workshop.attended(WHAT, self.process.collect(limits)).await?;
        match output.exit.status.shell_code() {
            0 => Ok(()),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(NodeError::Tool { what: WHAT, said })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_attached_disks_stay_in_them() {
        let check = |path: &str, root: &str, inside: &str| {
            assert_eq!(place(&guest_path(path)), Place { root: guest_path(root), path: guest_path(inside) });
        };
        check("/srv/a", "/", "/srv/a");
        check("/dev/attached/0", "/dev/attached/0", "/");
        check("/dev/attached/12/etc/../../x", "/dev/attached/12", "/etc/../../x");
        check("/dev/attachedness/0", "/", "/dev/attachedness/0");
    }
}
