//! The host's name servers, as a guest can use them.

use std::net::Ipv4Addr;

/// Where hosts say them; a resolver of the host's own tells its real ones in the second.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
/// As many as resolvers look at.
const SERVERS_MAX: usize = 3;

/// Text of a guest's `/etc/resolv.conf`; `None` when the host names no server that a guest could reach.
pub(super) fn of_host() -> Option<String> {
    FILES.iter().find_map(|file| text(&std::fs::read_to_string(file).ok()?))
}

fn text(configured: &str) -> Option<String> {
    let servers = configured.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<Ipv4Addr>().ok()).flatten()
    });
    // The host's loopback is not the guest's, and link-local addresses are the host's alone.
    let reachable =
        |server: &Ipv4Addr| !server.is_loopback() && !server.is_unspecified() && !server.is_link_local();
    let text: String =
        servers.filter(reachable).take(SERVERS_MAX).map(|server| format!("nameserver {server}\n")).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn only_servers_that_a_guest_can_reach_are_told() {
        let check =
            |configured: &str, expected: Option<&str>| assert_eq!(text(configured).as_deref(), expected);
        check("# none\nsearch example.org\n", None);
        check("nameserver 127.0.0.53\noptions edns0\n", None);
        check(
            "nameserver 127.0.0.1\nnameserver 10.1.2.3 # here\nnameserver ::1\nnameserver 192.0.2.1\n",
            Some("nameserver 10.1.2.3\nnameserver 192.0.2.1\n"),
        );
    }
}
