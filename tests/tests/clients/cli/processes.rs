//! Processes that nobody waits for, and code contexts: what outlives a command.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tests::{in_api, wait};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cli::program::{Cli, TIMEOUT};

#[test]
fn a_process_goes_on_and_is_found_again() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let line = "trap 'echo caught; exit 7' INT; echo ready; echo no >&2; while :; do sleep 0.1; done";
        let process = cli.ok(&["sandbox", "process", "start", "--tag", "job", &id, line]).await?;
        let about = cli.json(&["sandbox", "process", "get", &id, "job"]).await?;
        ensure!(about["id"] == process.parse::<u32>()? && about["running"] == true, "{about}");
        let listed = cli.ok(&["sandbox", "process", "list", &id]).await?;
        let row = listed.lines().find(|row| row.starts_with(&format!("{process} "))).context("not listed")?;
        ensure!(row.contains("running") && row.contains("job") && row.contains("trap"), "{listed}");
        let ids = cli.ok(&["sandbox", "process", "list", "-q", &id]).await?;
        ensure!(ids.lines().any(|line| line == process), "{ids}");

        // Leaving it ends what watches it, not the process; being with it passes Ctrl-C on.
        for (verb, by, code) in [
            ("logs", Signal::INT, 130),
            ("logs", Signal::TERM, 143),
            ("attach", Signal::TERM, 143),
            ("attach", Signal::INT, 7),
        ] {
            let mut command = cli.command(&["sandbox", "process", verb, &id, "job"])?;
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
            let pid = Pid::from_raw(child.id().context("no id")? as i32).context("no process")?;
            let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
            ensure!(tokio::time::timeout(TIMEOUT, lines.next_line()).await??.as_deref() == Some("ready"));
            kill_process(pid, by)?;
            let ended = tokio::time::timeout(TIMEOUT, child.wait()).await??;
            ensure!(ended.code() == Some(code), "{verb} {by:?}: {ended:?}");
        }
        let went = cli.run(&["sandbox", "process", "attach", &id, &process]).await?;
        ensure!((went.code, went.stdout.as_str(), went.stderr.as_str()) == (7, "ready\ncaught\n", "no\n"));
        let kept = cli.json(&["sandbox", "process", "logs", &id, "job"]).await?;
        ensure!(kept == json!({ "stdout": "ready\ncaught\n", "stderr": "no\n", "exit_code": 7 }), "{kept}");

        // One that reads, one that is killed, one that is not there.
        cli.ok(&["sandbox", "process", "start", "--tag", "cat", "--stdin", &id, "--", "cat"]).await?;
        let write = ["sandbox", "process", "write", &id, "cat"];
        cli.ok(&[&write[..], &["typed "]].concat()).await?;
        let went = cli.with_input(&[&write[..], &["--close"]].concat(), "grüße\n".as_bytes()).await?;
        ensure!(went.code == 0, "{went:?}");
        ensure!(cli.ok(&["sandbox", "process", "attach", &id, "cat"]).await? == "typed grüße");
        cli.ok(&["sandbox", "process", "start", "--tag", "sleeper", &id, "sleep 600"]).await?;
        cli.ok(&["sandbox", "process", "kill", &id, "sleeper", "9"]).await?;
        ensure!(cli.run(&["sandbox", "process", "attach", &id, "sleeper"]).await?.code == 137);
        let said = cli.fails(1, &["sandbox", "process", "get", &id, "nonesuch"]).await?;
        ensure!(
            said.contains("tag `nonesuch`") && said.contains("hint: pandastack sandbox process"),
            "{said}"
        );
        ensure!(cli.fails(1, &["sandbox", "process", "get", &id, "4000000"]).await?.starts_with("error: "));
        api.remove(&id).await
    })
}

#[test]
fn contexts_are_made_used_listed_and_ended() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let context = cli.ok(&["sandbox", "context", "create", &id, "--cwd", "/tmp"]).await?;
        let run = ["sandbox", "context", "run", &id, &context];
        ensure!(cli.ok(&[&run[..], &["x = 41"]].concat()).await?.is_empty());
        let went = cli.with_input(&run, b"import os\nprint(os.getcwd())\nx + 1").await?;
        ensure!(went.code == 0 && went.stdout == "/tmp\n42\n", "{went:?}");
        let went = cli.run(&[&run[..], &["1 / 0"]].concat()).await?;
        ensure!(went.code == 1 && went.stderr.contains("ZeroDivisionError"), "{went:?}");
        let listed = cli.json(&["sandbox", "context", "list", &id]).await?;
        ensure!(listed[0]["id"] == context.as_str() && listed[0]["cells"] == 3, "{listed}");
        cli.ok(&["sandbox", "context", "delete", &id, &context]).await?;
        ensure!(cli.json(&["sandbox", "context", "list", &id]).await? == json!([]));
        ensure!(cli.fails(1, &[&run[..], &["x"]].concat()).await?.starts_with("error: "));
        api.remove(&id).await
    })
}

#[test]
fn changes_are_in_the_audit_log() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = cli.ok(&["sandbox", "create", "-t", tests::api::TEMPLATE]).await?;
        cli.ok(&["sandbox", "delete", &id]).await?;
        let path = format!("/v1/sandboxes/{id}");
        wait::until_async("the deletion is written down", TIMEOUT, async || {
            let listed = cli.json(&["audit", "list", "--limit", "50"]).await?;
            let mut entries = listed.as_array().context("no list")?.iter();
            Ok(entries.any(|one| one["path"] == path.as_str() && one["method"] == "DELETE"))
        })
        .await?;
        let shown = cli.ok(&["audit", "list", "--since", "2020-01-01T00:00:00Z", "--limit", "1"]).await?;
        ensure!(shown.lines().count() == 2 && shown.starts_with("TIME"), "{shown}");
        ensure!(cli.ok(&["audit", "list", "--since", "4000000000"]).await?.is_empty());
        ensure!(cli.fails(1, &["audit", "list", "--since", "yesterday"]).await?.contains("since must be"));
        Ok(())
    })
}
