//! Finds machine processes that no sandbox claims: started by a node that was killed before it could write them down.

use std::fs;
use std::io;

use machine::{ProcessIdentity, VmProcess};

/// The options after which QEMU and Firecracker have a machine's name.
const NAME_OPTIONS: [&[u8]; 2] = [b"-name", b"--id"];

/// Ends every machine process of this node except those in `claimed`; returns when they are gone.
pub(crate) async fn end_unclaimed(prefix: &str, claimed: &[ProcessIdentity]) -> io::Result<()> {
    for identity in processes_named(prefix)? {
        if claimed.contains(&identity) {
            continue;
        }
        if let Some(process) = VmProcess::open(identity)? {
            tracing::info!(
                pid = identity.pid,
                "ending machine process {} that no sandbox claims",
                identity.pid
            );
            process.kill().await;
        }
    }
    Ok(())
}

/// Processes of machines whose name starts with `prefix`.
fn processes_named(prefix: &str) -> io::Result<Vec<ProcessIdentity>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while we look: then it is none of ours to end.
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let mut arguments = line.split(|&byte| byte == 0);
        let named = arguments.any(|argument| NAME_OPTIONS.contains(&argument))
            && arguments.next().is_some_and(|name| name.starts_with(prefix.as_bytes()));
        if named && let Ok(identity) = ProcessIdentity::of(pid) {
            found.push(identity);
        }
    }
    Ok(found)
}
