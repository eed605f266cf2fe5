//! Tells a caller that a command failed for want of a network, where its sandbox has none.

use store::{NetworkMode, SandboxRow};

use crate::control::Control;

/// What programs say when a name is not found or nothing answers.
const SIGNS: [&str; 15] = [
    "Temporary failure in name resolution",
    "Temporary failure resolving",
    "Name or service not known",
    "No address associated with hostname",
    "Could not resolve",
    "Couldn't resolve host",
    "unable to resolve host",
    "getaddrinfo",
    "EAI_AGAIN",
    "ENOTFOUND",
    "no such host",
    "dial tcp",
    "Network is unreachable",
    "No route to host",
    "Failed to establish a new connection",
];

/// Bytes of output that are looked at: what failed is told at the end.
const LOOKED_AT_BYTES: usize = 64 << 10;

const CLOSED: &str = "the sandbox's network is closed, so it reaches nothing outside itself; create it with network \"all\", or open the network of this one";
const NO_UPLINK: &str = "the sandbox's network is open, but this server has no uplink, so it reaches nothing outside itself; its operator adds one with --uplink";

/// Looks at output as it comes and remembers whether it tells of a network that is not there.
#[derive(Debug, Default)]
pub struct NetworkHint {
    /// Why the network reaches nothing, if it does not.
    reason: Option<&'static str>,
    /// The end of what was looked at, where a sign may have begun.
    rest: Vec<u8>,
    found: bool,
}

impl Control {
    /// Looks out for a command in this sandbox.
    pub(crate) fn network_hint(&self, row: &SandboxRow) -> NetworkHint {
        let reason = match row.network {
            NetworkMode::None => Some(CLOSED),
            NetworkMode::All if !self.node().has_uplink() => Some(NO_UPLINK),
            NetworkMode::All => None,
        };
        NetworkHint { reason, ..NetworkHint::default() }
    }
}

impl NetworkHint {
    /// Takes note of output.
    pub fn look(&mut self, output: &[u8]) {
        if self.reason.is_none() || self.found {
            return;
        }
        self.rest.extend_from_slice(&output[output.len().saturating_sub(LOOKED_AT_BYTES)..]);
        self.found = SIGNS.iter().any(|sign| {
            self.rest.windows(sign.len()).any(|window| window.eq_ignore_ascii_case(sign.as_bytes()))
        });
        let longest = SIGNS.iter().map(|sign| sign.len()).max().unwrap_or_default();
        self.rest.drain(..self.rest.len().saturating_sub(longest));
    }

    /// What to tell about a command that ended so.
    pub fn tell(&self, exit_code: i32) -> Option<String> {
        self.reason.filter(|_| self.found && exit_code != 0).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed() -> NetworkHint {
        NetworkHint { reason: Some(CLOSED), ..NetworkHint::default() }
    }

    #[test]
    fn only_a_command_that_failed_for_want_of_a_network_has_a_hint() {
        let told = |mut hint: NetworkHint, output: &[u8], code| {
            hint.look(output);
            hint.tell(code).is_some()
        };
        let failed = b"curl: (6) Could not resolve host: example.org\n";
        assert!(told(closed(), failed, 6));
        assert!(!told(closed(), failed, 0));
        assert!(!told(closed(), b"no such file\n", 1));
        assert!(!told(NetworkHint::default(), failed, 6));
        assert!(told(closed(), &[vec![b'x'; 1 << 20], failed.to_vec()].concat(), 1));
    }

    #[test]
    fn a_sign_may_come_in_pieces() {
        let mut hint = closed();
        for piece in ["Temporary failure in na", "me resol", "ution\n"] {
            hint.look(piece.as_bytes());
        }
        hint.look(b"and more");
        assert!(hint.tell(1).is_some());
    }
}
