//! `sandbox logs`: what a console said, and what it says.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tests::{Api, in_api, wait};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::cli::program::{Cli, TIMEOUT};

/// Writes a line on the console of a sandbox.
async fn say(api: &Api, id: &str, line: &str) -> Result<()> {
    api.shell(id, &format!("echo {line} > /dev/console")).await.map(drop)
}

/// A program that follows a console, and the lines it writes.
fn follow(cli: &Cli, id: &str) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let mut command = cli.command(&["sandbox", "logs", "-f", id])?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    Ok((child, lines))
}

/// Reads until a line comes.
async fn until(lines: &mut Lines<BufReader<ChildStdout>>, wanted: &str) -> Result<()> {
    let reading = async {
        while let Some(line) = lines.next_line().await? {
            if line.contains(wanted) {
                return Ok(());
            }
        }
        anyhow::bail!("it ended without `{wanted}`")
    };
    tokio::time::timeout(TIMEOUT, reading).await.with_context(|| format!("no `{wanted}`"))?
}

#[test]
fn a_console_is_followed_until_somebody_leaves() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        say(api, &id, "said before").await?;
        wait::until_async("the console is read", TIMEOUT, async || {
            Ok(cli.ok(&["sandbox", "logs", &id]).await?.contains("said before"))
        })
        .await?;
        ensure!(cli.ok(&["sandbox", "logs", "--tail", "1", &id]).await?.lines().count() == 1);

        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let (mut child, mut lines) = follow(&cli, &id)?;
            until(&mut lines, "said before").await?;
            say(api, &id, &format!("said meanwhile {code}")).await?;
            until(&mut lines, &format!("said meanwhile {code}")).await?;
            let pid = Pid::from_raw(child.id().context("no id")? as i32).context("no process")?;
            kill_process(pid, signal)?;
            let ended = tokio::time::timeout(TIMEOUT, child.wait()).await??;
            ensure!(ended.code() == Some(code), "{ended:?}");
        }

        // A sandbox that goes ends it, as it should.
        let (mut child, mut lines) = follow(&cli, &id)?;
        until(&mut lines, "said before").await?;
        api.remove(&id).await?;
        let ended = tokio::time::timeout(TIMEOUT, child.wait()).await??;
        ensure!(ended.success(), "{ended:?}");
        ensure!(cli.fails(1, &["sandbox", "logs", "-f", &id]).await?.starts_with("error: "));
        Ok(())
    })
}
