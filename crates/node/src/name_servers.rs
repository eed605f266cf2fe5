//! The name servers that guests with an open network are told.

use std::net::Ipv4Addr;

use network::Policy;

/// Where hosts say them; a resolver of the host's own tells its real ones in the second.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
/// As many as resolvers look at.
const SERVERS_MAX: usize = 3;

/// Which name servers guests with an open network are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NameServers {
    /// Those of the host that a guest can reach.
    #[default]
    Host,
    /// These.
    These(Vec<Ipv4Addr>),
}

impl NameServers {
    /// What a guest with this policy is told: nothing unless its network is open.
    pub(crate) fn told_to(&self, policy: Policy) -> Vec<Ipv4Addr> {
        match self {
            _ if policy == Policy::Closed => Vec::new(),
            Self::These(servers) => servers.clone(),
            Self::Host => {
                let read = |file: &&str| std::fs::read_to_string(file).ok();
                let told = FILES.iter().filter_map(read).map(|text| reachable(&text));
                told.into_iter().find(|servers| !servers.is_empty()).unwrap_or_default()
            }
        }
    }
}

/// Text of a guest's `/etc/resolv.conf`.
pub(crate) fn resolver_text(servers: &[Ipv4Addr]) -> Option<String> {
    let lines = servers.iter().map(|server| format!("nameserver {server}\n"));
    (!servers.is_empty()).then(|| lines.collect())
}

/// Servers of a host's file that a guest can reach.
fn reachable(configured: &str) -> Vec<Ipv4Addr> {
    let servers = configured.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<Ipv4Addr>().ok()).flatten()
    });
    // The host's loopback is not the guest's, and link-local addresses are the host's alone.
    let reachable =
        |server: &Ipv4Addr| !server.is_loopback() && !server.is_unspecified() && !server.is_link_local();
    servers.filter(reachable).take(SERVERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::{reachable, resolver_text};

    #[test]
    fn only_servers_that_a_guest_can_reach_are_told() {
        let check = |configured: &str, expected: Option<&str>| {
            assert_eq!(resolver_text(&reachable(configured)).as_deref(), expected)
        };
        check("# none\nsearch example.org\n", None);
        check("nameserver 127.0.0.53\noptions edns0\n", None);
        check(
            "nameserver 127.0.0.1\nnameserver 10.1.2.3 # here\nnameserver ::1\nnameserver 192.0.2.1\n",
            Some("nameserver 10.1.2.3\nnameserver 192.0.2.1\n"),
        );
    }
}
