//! The instance's firewall table. The only file that runs `nft`.
//!
//! One table for all sandboxes, loaded once and replaced in one transaction, so there is never a moment without it.
//! Its chains speak only of our own veths; the rest of the host's traffic passes by, that of other instances too. What is
//! sent to an address of the pool that no guest has is not the firewall's matter: a route refuses it (`reserve`).

use std::{io, path::Path, process::Stdio, time::Duration};

use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use crate::{address::AddressPool, tag::InstanceTag, uplink::InterfaceName};

/// `nft` needs milliseconds; one that takes longer is stuck.
const NFT_TIMEOUT: Duration = Duration::from_secs(20);
/// As much of what `nft` says as an error carries.
const STDERR_CHARS_MAX: usize = 2000;

/// Why the firewall could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum FirewallError {
    /// The program could not be run.
    #[error("could not run `{program}`")]
    Run {
        /// Its path.
        program: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It did not end.
    #[error("`{program}` did not finish in {} seconds", NFT_TIMEOUT.as_secs())]
    TimedOut {
        /// Its path.
        program: String,
    },
    /// It said no.
    #[error("`{program}` refused the rules: {stderr}")]
    Refused {
        /// Its path.
        program: String,
        /// Its own words.
        stderr: String,
    },
}

/// Loads the instance's table in place of the one that is there, if any.
pub(crate) async fn load(
    nft: &Path,
    tag: &InstanceTag,
    pool: &AddressPool,
    uplink: Option<&InterfaceName>,
) -> Result<(), FirewallError> {
    run(nft, &format!("{}{}", removal(tag), table(tag, pool, uplink))).await
}

/// Removes the instance's table. Absent is fine.
pub(crate) async fn unload(nft: &Path, tag: &InstanceTag) -> Result<(), FirewallError> {
    run(nft, &removal(tag)).await
}

/// `delete` fails on a table that is not there, so it is made first.
fn removal(tag: &InstanceTag) -> String {
    let table = tag.table();
    format!("table inet {table}\ndelete table inet {table}\n")
}

fn table(tag: &InstanceTag, pool: &AddressPool, uplink: Option<&InterfaceName>) -> String {
    let (table, veths) = (tag.table(), tag.veth_pattern());
    // Without an uplink everything from and to guests is dropped, and the host need not track connections for us.
    let (leave, answer, errors, translate) = match uplink {
        None => Default::default(),
        Some(uplink) => (
            format!(
                "        oifname != \"{uplink}\" drop\n        \
                 tcp flags syn / syn,rst tcp option maxseg size set rt mtu\n        accept\n"
            ),
            format!("        iifname \"{uplink}\" ct state established,related accept\n"),
            format!("        oifname \"{veths}\" ct state related accept\n"),
            format!(
                "    chain postrouting {{\n        type nat hook postrouting priority srcnat; policy accept;\n        \
                 ip saddr {pool} oifname \"{uplink}\" masquerade\n    }}\n"
            ),
        ),
    };
    format!(
        "table inet {table} {{
    chain forward {{
        type filter hook forward priority filter - 10; policy accept;
        iifname \"{veths}\" jump from_guest
        oifname \"{veths}\" jump to_guest
    }}
    chain from_guest {{
        ip saddr != {pool} drop
        ip daddr {pool} drop
        ip daddr {{ 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/3 }} drop
        meta nfproto ipv6 drop
{leave}        drop
    }}
    chain to_guest {{
{answer}        drop
    }}
    chain input {{
        type filter hook input priority filter - 10; policy accept;
        iifname \"{veths}\" drop
    }}
    chain output {{
        type filter hook output priority filter - 10; policy accept;
{errors}        oifname \"{veths}\" drop
    }}
{translate}}}
"
    )
}

/// The text of every table that an instance made, this host's own words for it.
pub(crate) async fn tables(nft: &Path) -> Result<Vec<(InstanceTag, String)>, FirewallError> {
    let mut found = Vec::new();
    for line in ask(nft, "list tables\n").await?.lines() {
        let Some(tag) = line.strip_prefix("table inet ").and_then(InstanceTag::of_table) else { continue };
        // One that went meanwhile is not there.
        if let Ok(text) = ask(nft, &format!("list table inet {}\n", tag.table())).await {
            found.push((tag, text));
        }
    }
    Ok(found)
}

async fn run(nft: &Path, script: &str) -> Result<(), FirewallError> {
    ask(nft, script).await.map(drop)
}

/// Runs a script and returns what `nft` prints.
async fn ask(nft: &Path, script: &str) -> Result<String, FirewallError> {
    let program = nft.display().to_string();
    let failed = |source| FirewallError::Run { program: program.clone(), source };
    let mut child = Command::new(nft)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take().expect("stdin was asked for");
    let finish = async {
        // Our scripts are far smaller than a pipe, so this does not wait for `nft` to say anything. One that exits
        // without reading is told apart by its status.
        match stdin.write_all(script.as_bytes()).await {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => drop(stdin),
        }
        child.wait_with_output().await
    };
    match timeout(NFT_TIMEOUT, finish).await {
        Err(_) => Err(FirewallError::TimedOut { program }),
        Ok(Err(source)) => Err(failed(source)),
        Ok(Ok(output)) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(Ok(output)) => {
            let stderr =
                String::from_utf8_lossy(&output.stderr).trim().chars().take(STDERR_CHARS_MAX).collect();
            Err(FirewallError::Refused { program, stderr })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag() -> InstanceTag {
        InstanceTag::parse("ab12").unwrap()
    }

    #[test]
    fn without_uplink_nothing_is_accepted_or_translated() {
        let text = table(&tag(), &AddressPool::DEFAULT, None);
        assert!(text.contains("iifname \"pab12v*\" jump from_guest"));
        for word in [" accept\n", "masquerade", "ct state"] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn with_uplink_only_the_pool_is_translated() {
        let uplink = InterfaceName::parse("eth0").unwrap();
        let text = table(&tag(), &AddressPool::DEFAULT, Some(&uplink));
        assert!(text.contains("ip saddr 10.201.0.0/16 oifname \"eth0\" masquerade"));
        assert!(text.contains("iifname \"eth0\" ct state established,related accept"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }

    #[test]
    fn no_rule_of_a_hook_speaks_of_other_interfaces() {
        let uplink = InterfaceName::parse("eth0").unwrap();
        for uplink in [None, Some(&uplink)] {
            let text = table(&tag(), &AddressPool::DEFAULT, uplink);
            let hooks = text.split("    chain ").filter(|chain| chain.contains("type filter hook"));
            for rule in hooks.flat_map(|chain| chain.lines().filter(|line| line.contains("drop"))) {
                assert!(rule.contains("ifname \"pab12v*\""), "{rule}");
            }
        }
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = unload(Path::new("/nonexistent/nft"), &tag()).await.unwrap_err();
        assert!(matches!(error, FirewallError::Run { program, .. } if program == "/nonexistent/nft"));
    }
}
