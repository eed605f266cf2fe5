//! Short commands in a guest that this program needs for itself; what they write is kept.

use anyhow::{Context, ensure};
use client::{Api, ClientError, Command, ExecEvent};

/// Most of each stream that is kept.
const KEPT_BYTES_MAX: usize = 1 << 20;
const TIMEOUT_SECONDS: f64 = 60.0;
/// Most bytes of arguments of one command.
const ARGUMENT_BYTES_MAX: usize = 64 << 10;

/// How a command ended.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) code: i32,
}

/// Runs a line for the shell with arguments `$1`, `$2` and so on.
pub(crate) async fn run(
    api: &Api,
    sandbox: &str,
    line: &str,
    arguments: &[String],
) -> Result<Done, ClientError> {
    let words = ["/bin/sh", "-c", line, "sh"].into_iter().map(str::to_owned);
    let words: Vec<String> = words.chain(arguments.iter().cloned()).collect();
    let command = Command { cmd: words.into(), timeout_seconds: Some(TIMEOUT_SECONDS), ..Command::default() };
    // Dropping its input would be to end it.
    let (_input, mut output) = api.exec(sandbox, &command).await?;
    let mut done = Done::default();
    let keep = |kept: &mut Vec<u8>, bytes: &[u8]| {
        kept.extend_from_slice(&bytes[..bytes.len().min(KEPT_BYTES_MAX - kept.len().min(KEPT_BYTES_MAX))]);
    };
    loop {
        match output.next().await? {
            ExecEvent::Stdout(bytes) => keep(&mut done.stdout, &bytes),
            ExecEvent::Stderr(bytes) => keep(&mut done.stderr, &bytes),
            ExecEvent::Taken | ExecEvent::Deaf => {}
            ExecEvent::Exited { code, .. } => {
                done.code = code;
                return Ok(done);
            }
        }
    }
}

/// Runs a line for the shell for pairs of arguments, as many at once as fit. The line takes `$1` and `$2`.
pub(crate) async fn for_pairs(
    api: &Api,
    sandbox: &str,
    line: &str,
    pairs: &[(String, String)],
) -> anyhow::Result<()> {
    let line = format!("while [ $# -gt 0 ]; do {line} || exit 1; shift 2; done");
    for batch in batches(pairs) {
        let arguments: Vec<String> =
            batch.iter().flat_map(|(one, other)| [one.clone(), other.clone()]).collect();
        let done = run(api, sandbox, &line, &arguments).await?;
        ensure!(done.code == 0, "{}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

fn batches(pairs: &[(String, String)]) -> Vec<&[(String, String)]> {
    let (mut batches, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, (one, other)) in pairs.iter().enumerate() {
        let more = one.len() + other.len() + 2;
        if bytes + more > ARGUMENT_BYTES_MAX && at > from {
            batches.push(&pairs[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += more;
    }
    if from < pairs.len() {
        batches.push(&pairs[from..]);
    }
    batches
}

/// A path in a sandbox: those that are not absolute begin at the home directory of its user.
pub(crate) async fn absolute(api: &Api, sandbox: &str, path: &str) -> anyhow::Result<String> {
    if path.starts_with('/') {
        return Ok(path.to_owned());
    }
    let done =
        run(api, sandbox, "echo ~", &[]).await.context("ask the sandbox for its user's home directory")?;
    let home = String::from_utf8(done.stdout).unwrap_or_default();
    let home = home.trim_end_matches('\n');
    ensure!(home.starts_with('/'), "the sandbox's user has no home directory: name an absolute path");
    Ok(below(home, path))
}

fn below(home: &str, path: &str) -> String {
    let home = home.trim_end_matches('/');
    let path = path.strip_prefix("~/").or_else(|| path.strip_prefix("./")).unwrap_or(path);
    match path {
        "" | "~" | "." => format!("{home}/"),
        path => format!("{home}/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_home() {
        for (path, expected) in [
            ("", "/root/"),
            ("~", "/root/"),
            (".", "/root/"),
            ("a/b", "/root/a/b"),
            ("~/a", "/root/a"),
            ("./a/", "/root/a/"),
            ("~a", "/root/~a"),
        ] {
            assert_eq!(below("/root", path), expected, "{path}");
        }
        assert_eq!(below("/", "a"), "/a");
    }

    #[test]
    fn batches_hold_everything_once() {
        let pair = |size: usize| ("x".repeat(size), String::new());
        let check = |sizes: &[usize], expected: &[usize]| {
            let pairs: Vec<_> = sizes.iter().map(|size| pair(*size)).collect();
            let found: Vec<_> = batches(&pairs).iter().map(|batch| batch.len()).collect();
            assert_eq!(found, expected, "{sizes:?}");
        };
        check(&[], &[]);
        check(&[1, 2, 3], &[3]);
        check(&[40_000, 40_000, 100_000, 10], &[1, 1, 1, 1]);
        check(&[30_000, 30_000, 30_000], &[2, 1]);
    }
}
