//! `pandastack run`: from a file here to its output, and nothing left over.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tests::api::TEMPLATE;
use tests::{Api, in_api, wait};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cli::program::{Cli, TIMEOUT};

/// Sandboxes that a program with this mark has made.
async fn marked(api: &Api, mark: &str) -> Result<Vec<String>> {
    let all = api.get("/v1/sandboxes").await?.expect(200)?.json()?;
    let all = all.as_array().context("no list")?.iter();
    let marked = all.filter(|one| one["metadata"]["mark"] == mark);
    Ok(marked.filter_map(|one| Some(one["id"].as_str()?.to_owned())).collect())
}

#[test]
fn code_is_sent_runs_and_leaves_nothing() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        fs::write(
            cli.home().join("script.py"),
            "import sys\nprint(open(sys.argv[1]).read().strip(), sys.stdin.read().strip())\nsys.exit(5)\n",
        )?;
        fs::create_dir(cli.home().join("data"))?;
        fs::write(cli.home().join("data/in.txt"), "from the file\n")?;
        let words = ["run", "-t", TEMPLATE, "--metadata", "mark=run", "python3", "script.py", "data/in.txt"];
        let went = cli.with_input(&words, b"from the pipe").await?;
        ensure!(went.code == 5 && went.stdout == "from the file from the pipe\n", "{went:?}");
        ensure!(marked(api, "run").await?.is_empty(), "a sandbox is left");

        // A program of one's own stays executable; a directory comes whole.
        let tool = cli.home().join("tool.sh");
        fs::write(&tool, "#!/bin/sh\npwd; cat \"$1\"/in.txt; echo $WHO\n")?;
        fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let words = ["run", "-t", TEMPLATE, "--env", "WHO=panda", "--", "./tool.sh", "data"];
        ensure!(cli.ok(&words).await? == "/workspace\nfrom the file\npanda");

        // A file named by its whole path comes too; one that the sandbox has is its own.
        let script = cli.home().join("script.py").display().to_string();
        let input = cli.home().join("in").display().to_string();
        fs::write(&input, "whole path\n")?;
        let words = ["run", "-t", TEMPLATE, "-n", "--", "python3", &script, &input];
        let went = cli.run(&words).await?;
        ensure!(went.code == 5 && went.stdout == "whole path \n", "{went:?}");
        let words = ["run", "-t", TEMPLATE, "-n", "--", "cat", "/etc/machine-id"];
        ensure!(cli.ok(&words).await? != fs::read_to_string("/etc/machine-id").unwrap_or_default().trim());

        // Wrong from the start, and wrong on the way: nothing is left either.
        let said = cli.fails(1, &["run", "-t", "nonesuch", "true"]).await?;
        ensure!(said.contains("error: make a sandbox"), "{said}");
        let words =
            ["run", "-t", TEMPLATE, "--metadata", "mark=run", "--user", "nobody-of-that-name", "--", "true"];
        ensure!(cli.run(&words).await?.code == 1);
        ensure!(marked(api, "run").await?.is_empty(), "a sandbox is left");
        let words = ["run", "-t", TEMPLATE, "--file", "nonesuch", "true"];
        ensure!(cli.fails(1, &words).await?.contains("nonesuch"));

        let kept = cli.run(&["run", "-t", TEMPLATE, "--keep", "--", "touch", "/root/here"]).await?;
        let id =
            kept.stderr.lines().find_map(|line| line.strip_prefix("kept: ")).context("no id")?.to_owned();
        ensure!(api.shell(&id, "test -e /root/here; echo $?").await? == "0");
        api.remove(&id).await
    })
}

#[test]
fn stopping_stops_the_command_and_deletes_the_sandbox() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let line = "echo ready; sleep 600";
            let mark = format!("mark=stop-{code}");
            let mut command = cli.command(&["run", "-t", TEMPLATE, "--metadata", &mark, line])?;
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
            let pid = Pid::from_raw(child.id().context("no id")? as i32).context("no process")?;
            let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
            ensure!(tokio::time::timeout(TIMEOUT, lines.next_line()).await??.as_deref() == Some("ready"));
            ensure!(marked(api, &format!("stop-{code}")).await?.len() == 1);
            kill_process(pid, signal)?;
            let ended = tokio::time::timeout(TIMEOUT, child.wait()).await??;
            ensure!(ended.code() == Some(code), "{ended:?}");
            ensure!(marked(api, &format!("stop-{code}")).await?.is_empty(), "a sandbox is left");
        }

        // While the sandbox is being made: it is waited for and deleted.
        let mut command = cli.command(&["run", "-t", TEMPLATE, "--metadata", "mark=early", "sleep 600"])?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let pid = Pid::from_raw(child.id().context("no id")? as i32).context("no process")?;
        wait::until_async("it has begun", TIMEOUT, async || {
            let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))?;
            // It watches for SIGINT from just before it asks for a sandbox on.
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
            Ok(u64::from_str_radix(caught.trim(), 16).unwrap_or(0) & 2 != 0)
        })
        .await?;
        kill_process(pid, Signal::INT)?;
        let ended = tokio::time::timeout(TIMEOUT, child.wait()).await??;
        ensure!(ended.code() == Some(130), "{ended:?}");
        ensure!(
            marked(api, "early").await?.is_empty(),
            "a sandbox is left: {}",
            json!(marked(api, "early").await?)
        );
        Ok(())
    })
}
