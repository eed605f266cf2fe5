//! Shells in terminals.

use guest_link::message::{ProcessSpec, Terminal, TerminalSize};

use crate::access::InUse;
use crate::connection_process::{ConnectionProcess, OnDisconnect};
use crate::control::Control;
use crate::error::ControlError;
use crate::exec::furnish;

/// Bash where there is one.
const SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash -l; exec sh -l";
const TERM_DEFAULT: &str = "xterm-256color";
/// Longest name of a kind of terminal.
const TERM_BYTES_MAX: usize = 64;
/// Shown as the processes' tag.
const TAG: &str = "terminal";

/// What a shell is started with.
#[derive(Debug, Clone)]
pub struct ShellRequest {
    /// Size of its terminal.
    pub size: TerminalSize,
    /// Kind of terminal, for `TERM`; that of most emulators when absent.
    pub term: Option<String>,
    /// Working directory; the user's home when absent.
    pub cwd: Option<String>,
}

fn term(given: Option<String>) -> Result<String, ControlError> {
    let Some(term) = given.filter(|term| !term.is_empty()) else { return Ok(TERM_DEFAULT.to_owned()) };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'+' | b'.');
    if term.len() > TERM_BYTES_MAX || !term.bytes().all(plain) {
        return Err(ControlError::invalid("term must be the name of a terminal, such as xterm-256color"));
    }
    Ok(term)
}

impl Control {
    /// Starts a login shell in a terminal. It is hung up when it is no longer attended to.
    pub async fn start_shell(
        &self,
        sandbox: InUse,
        request: ShellRequest,
    ) -> Result<ConnectionProcess, ControlError> {
        let terminal = Terminal { size: request.size, term: term(request.term)? };
        let mut spec = furnish(ProcessSpec::shell(SHELL), &sandbox, None, request.cwd.as_deref(), None)?;
        spec.terminal = Some(terminal);
        spec.tag = Some(TAG.to_owned());
        let process = sandbox.link.start(spec).await?;
        Ok(ConnectionProcess::new(self, sandbox, process, OnDisconnect::HangUp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_terminals_are_plain_names() {
        let check = |given: Option<&str>| term(given.map(str::to_owned)).ok();
        assert_eq!(check(None).as_deref(), Some(TERM_DEFAULT));
        assert_eq!(check(Some("")).as_deref(), Some(TERM_DEFAULT));
        assert_eq!(check(Some("screen.xterm-256color")).as_deref(), Some("screen.xterm-256color"));
        for bad in ["a b", "x\0", "../../etc/passwd", "é", &"x".repeat(65)] {
            assert_eq!(check(Some(bad)), None, "{bad}");
        }
    }
}
