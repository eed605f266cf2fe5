//! Finds machine processes that no sandbox claims: started by a node that was killed before it could write them down.

use std::fs;
use std::io;

use network::InstanceTag;

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
pub(crate) fn processes_named(prefix: &str) -> io::Result<Vec<ProcessIdentity>> {
    let mut found = Vec::new();
    visit_processes(|pid, line| {
        if name(line).is_some_and(|name| name.starts_with(prefix.as_bytes()))
            && let Ok(identity) = ProcessIdentity::of(pid)
        {
            found.push(identity);
        }
    })?;
    Ok(found)
}

/// The instance of every machine process of this host.
pub(crate) fn machines() -> io::Result<Vec<InstanceTag>> {
    let mut found = Vec::new();
    visit_processes(|_, line| found.extend(instance(line)))?;
    Ok(found)
}

fn visit_processes(mut visit: impl FnMut(u32, &[u8])) -> io::Result<()> {
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while we look: then it is none of ours to end.
        if let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) {
            visit(pid, &line);
        }
    }
    Ok(())
}

/// The machine's name in a command line.
fn name(line: &[u8]) -> Option<&[u8]> {
    let mut arguments = line.split(|&byte| byte == 0);
    arguments.any(|argument| NAME_OPTIONS.contains(&argument)).then(|| arguments.next())?
}

/// The instance of a machine, from its command line.
fn instance(line: &[u8]) -> Option<InstanceTag> {
    let name = std::str::from_utf8(name(line)?).ok()?.strip_prefix("pandastack-")?;
    InstanceTag::parse(name.split_once('-')?.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_understood() {
        let of = |line: &[u8]| instance(line).map(|tag| tag.to_string());
        let qemu = b"program\0-name\0pandastack-ab12cd-7,debug-threads=off\0-sandbox\0on\0";
        assert_eq!(of(qemu).as_deref(), Some("ab12cd"));
        assert_eq!(of(b"firecracker\0--id\0pandastack-ab12-31\0").as_deref(), Some("ab12"));
        for other in
            [&b"bash\0-c\0echo pandastack-ab12-1\0"[..], b"", b"x\0-name", b"x\0-name\0pandastack-7\0"]
        {
            assert_eq!(of(other), None);
        }
    }
}
