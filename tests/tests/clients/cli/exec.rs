//! Commands in sandboxes, as if they ran here.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tests::{in_api, wait};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::cli::program::{Cli, TIMEOUT};

#[test]
fn output_input_and_exit_codes_pass_through() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let went = cli.run(&["sandbox", "exec", &id, "echo out; echo no >&2; exit 9"]).await?;
        ensure!((went.code, went.stdout.as_str(), went.stderr.as_str()) == (9, "out\n", "no\n"), "{went:?}");
        let went = cli.run(&["sandbox", "exec", &id, "--", "printf", "%s|", "a b", "$HOME", "it's"]).await?;
        ensure!(went.stdout == "a b|$HOME|it's|", "{went:?}");
        let went = cli.run(&["sandbox", "exec", &id, "kill -TERM $$"]).await?;
        ensure!(went.code == 143, "{went:?}");
        let words = ["sandbox", "exec", "--cwd", "/tmp", "--env", "A=b c", &id, "pwd; echo $A"];
        ensure!(cli.ok(&words).await? == "/tmp\nb c");
        let went = cli.run(&["sandbox", "exec", "--timeout", "1", &id, "echo begun; sleep 600"]).await?;
        ensure!(went.code == 1 && went.stdout == "begun\n" && went.stderr.contains("timeout"), "{went:?}");
        let kept = cli.json(&["sandbox", "exec", &id, "echo a; echo b >&2"]).await?;
        ensure!(kept == json!({ "stdout": "a\n", "stderr": "b\n", "exit_code": 0 }), "{kept}");

        // Byte for byte both ways, and more of it than fits into any window.
        let bytes: Vec<u8> =
            (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let went = cli.with_input(&["sandbox", "exec", &id, "--", "cat"], &bytes).await?;
        ensure!(went.code == 0 && went.bytes == bytes, "{} bytes came back", went.bytes.len());
        // One that does not read holds nothing up.
        let went = cli.with_input(&["sandbox", "exec", &id, "echo done"], &bytes).await?;
        ensure!(went.code == 0 && went.stdout == "done\n", "{}", went.stderr);
        let went = cli.with_input(&["sandbox", "exec", "-n", &id, "--", "cat"], b"ignored").await?;
        ensure!(went.code == 0 && went.stdout.is_empty(), "{went:?}");
        api.remove(&id).await
    })
}

#[test]
fn output_comes_as_it_is_written_and_a_reader_may_leave() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let line = "echo first; until test -e /tmp/go; do sleep 0.1; done; echo second";
        let mut command = cli.command(&["sandbox", "exec", &id, line])?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let first = tokio::time::timeout(TIMEOUT, lines.next_line()).await??;
        ensure!(first.as_deref() == Some("first"), "{first:?}");
        api.shell(&id, "touch /tmp/go").await?;
        let second = tokio::time::timeout(TIMEOUT, lines.next_line()).await??;
        ensure!(second.as_deref() == Some("second"), "{second:?}");
        ensure!(tokio::time::timeout(TIMEOUT, child.wait()).await??.success());

        // As with `| head -1`: the command is ended too, and nothing is complained about.
        let line = "echo $$ > /tmp/pid; while :; do echo more; done";
        let mut command = cli.command(&["sandbox", "exec", &id, line])?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        ensure!(lines.next_line().await?.as_deref() == Some("more"));
        drop(lines);
        let ended = tokio::time::timeout(TIMEOUT, child.wait()).await??;
        let mut said = String::new();
        child.stderr.take().context("no errors")?.read_to_string(&mut said).await?;
        ensure!(ended.code() == Some(141) && said.is_empty(), "{ended:?}: {said}");
        gone(api, &id, "/tmp/pid").await?;
        api.remove(&id).await
    })
}

/// Waits until the process whose id a file in the sandbox holds is gone.
pub(crate) async fn gone(api: &tests::Api, id: &str, file: &str) -> Result<()> {
    let line = format!("kill -0 $(cat {file}) 2>/dev/null && echo alive || echo gone");
    wait::until_async("the command is gone", TIMEOUT, async || Ok(api.shell(id, &line).await? == "gone"))
        .await
}

#[test]
fn signals_reach_the_command() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        for (signal, name) in [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::HUP, "HUP")] {
            let line =
                format!("trap 'echo caught {name}; exit 7' {name}; echo ready; while :; do sleep 0.1; done");
            let mut command = cli.command(&["sandbox", "exec", &id, &line])?;
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
            let pid = Pid::from_raw(child.id().context("no id")? as i32).context("no process")?;
            let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
            let ready = tokio::time::timeout(TIMEOUT, lines.next_line()).await??;
            ensure!(ready.as_deref() == Some("ready"), "{ready:?}");
            kill_process(pid, signal)?;
            let caught = tokio::time::timeout(TIMEOUT, lines.next_line()).await??;
            ensure!(caught == Some(format!("caught {name}")), "{caught:?}");
            let ended = tokio::time::timeout(TIMEOUT, child.wait()).await??;
            ensure!(ended.code() == Some(7), "{name}: {ended:?}");
        }

        // One that goes on is left at the third Ctrl-C, and the server ends it. So it does when this program is killed.
        for signals in [&[Signal::INT; 3][..], &[Signal::KILL]] {
            let line = "trap 'echo again' INT; echo $$ > /tmp/pid; echo ready; while :; do sleep 0.1; done";
            let mut command = cli.command(&["sandbox", "exec", &id, line])?;
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
            let pid = Pid::from_raw(child.id().context("no id")? as i32).context("no process")?;
            let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
            for signal in signals {
                // Signals of one kind that come at once are one, so each waits for the answer to the one before.
                ensure!(tokio::time::timeout(TIMEOUT, lines.next_line()).await??.is_some());
                kill_process(pid, *signal)?;
            }
            let ended = tokio::time::timeout(TIMEOUT, child.wait()).await??;
            let expected = if signals.len() == 3 { Some(130) } else { None };
            ensure!(ended.code() == expected, "{ended:?}");
            gone(api, &id, "/tmp/pid").await?;
        }
        api.remove(&id).await
    })
}
