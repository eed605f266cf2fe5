//! Finds machine processes that no sandbox claims: started by a node that was killed before it could write them down.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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

/// The instance of every machine process of this host, and its data directory where the command line names it.
pub(crate) fn machines() -> io::Result<Vec<(InstanceTag, Option<PathBuf>)>> {
    let mut found = Vec::new();
    visit_processes(|_, line| {
        let name = name(line).and_then(|name| std::str::from_utf8(name).ok()?.strip_prefix("pandastack-"));
        let tag = name.and_then(|name| InstanceTag::parse(name.rsplit_once('-')?.0).ok());
        found.extend(tag.map(|tag| (tag, data_directory(line))));
    })?;
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

/// The data directory of a machine whose files lie in `<data directory>/pool/sandboxes` or `…/waiting`.
fn data_directory(line: &[u8]) -> Option<PathBuf> {
    line.split(|&byte| matches!(byte, 0 | b',' | b'=' | b':')).find_map(|part| {
        if !part.starts_with(b"/") {
            return None;
        }
        let path = Path::new(std::ffi::OsStr::from_bytes(part));
        let pool = path.ancestors().find(|path| {
            path.file_name().is_some_and(|name| name == "pool")
                && path.parent().is_some_and(|parent| parent.parent().is_some())
        })?;
        let inside = path.strip_prefix(pool).ok()?.iter().next()?;
        (inside == "sandboxes" || inside == "waiting").then(|| pool.parent().map(Path::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_understood() {
        let line = b"/usr/bin/qemu-system-x86_64\0-name\0pandastack-ab12cd-7\0-chardev\0\
            socket,id=c,path=/srv/panda stack/pool/sandboxes/abc/control.sock\0";
        assert_eq!(name(line), Some(&b"pandastack-ab12cd-7"[..]));
        assert_eq!(data_directory(line), Some("/srv/panda stack".into()));
        for other in [&b"bash\0-c\0echo /srv/pool/other\0"[..], b"", b"x\0-name"] {
            assert_eq!((name(other), data_directory(other)), (None, None));
        }
    }
}
