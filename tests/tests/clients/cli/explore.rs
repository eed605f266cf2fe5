//! `sandbox explore`: the best of several ways is kept, and nothing else.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::{Api, in_api, wait};

use crate::cli::program::{Cli, TIMEOUT};

/// Children of a sandbox.
async fn branches(api: &Api, parent: &str) -> Result<Vec<String>> {
    let all = api.get("/v1/sandboxes").await?.expect(200)?.json()?;
    let all = all.as_array().context("no list")?.iter();
    let of_it = all.filter(|one| one["metadata"]["fork_parent_id"] == parent);
    Ok(of_it.filter_map(|one| Some(one["id"].as_str()?.to_owned())).collect())
}

fn labels(found: &Value) -> Vec<&str> {
    found["outcomes"].as_array().into_iter().flatten().filter_map(|one| one["label"].as_str()).collect()
}

#[test]
fn the_best_branch_is_kept() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let ways = ["echo 3 > /root/n", "echo 7 > /root/n", "echo 9 > /root/n; exit 1"];
        let explore = [&["sandbox", "explore", id.as_str(), "--score", "cat /root/n"], &ways[..]].concat();
        let went = cli.run(&explore).await?;
        ensure!(went.code == 0, "{went:?}");
        let winner = went.stdout.trim().to_owned();
        ensure!(branches(api, &id).await? == [winner.clone()], "{went:?}");
        ensure!(api.shell(&winner, "cat /root/n").await? == "7");
        // It does not go any more when it is forgotten.
        let kept = cli.json(&["sandbox", "get", &winner]).await?;
        ensure!(kept["metadata"]["explore_ttl"].is_null(), "{kept}");
        // The table is for people: the best is marked, the failed one is last.
        let rows: Vec<&str> = went.stderr.lines().collect();
        ensure!(rows.len() == 4 && rows[1].starts_with("* ") && rows[1].contains(ways[1]), "{went:?}");
        ensure!(rows[3].contains("exit 1"), "{went:?}");
        api.remove(&winner).await?;

        // The least, with those that failed; the others are left, and the tree is one.
        let more = ["--select", "max", "--allow-failed", "--keep-losers", "--no-promote"];
        let found = cli.json(&[&explore[..], &more].concat()).await?;
        ensure!(labels(&found) == [ways[2], ways[1], ways[0]], "{found}");
        ensure!(
            found["winner_outcome"]["exit_code"] == 1 && found["reaped"] == serde_json::json!([]),
            "{found}"
        );
        ensure!(branches(api, &id).await?.len() == 3, "{found}");
        for branch in branches(api, &id).await? {
            api.remove(&branch).await?;
        }

        // Candidates of a file, with labels, variables, scores and times of their own.
        fs::write(
            cli.home().join("ways.json"),
            r#"["true", {"label": "slow", "cmd": "sleep 600", "timeout_s": 1},
                {"label": "rated", "cmd": "echo $A > /root/made", "env": {"A": "b c"}, "score": 5}]"#,
        )?;
        let found = cli.json(&["sandbox", "explore", &id, "--candidates", "ways.json"]).await?;
        ensure!(labels(&found) == ["rated", "true", "slow"], "{found}");
        ensure!(found["winner_outcome"]["files_changed"] == serde_json::json!(["/root/made"]), "{found}");
        ensure!(found["outcomes"][2]["timed_out"] == true, "{found}");
        let winner = found["winner"].as_str().context("no winner")?;
        ensure!(api.shell(winner, "cat /root/made").await? == "b c");
        ensure!(branches(api, &id).await? == [winner], "{found}");
        api.remove(winner).await?;
        api.remove(&id).await
    })
}

#[test]
fn what_leads_nowhere_leaves_nothing() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let said = cli.fails(1, &["sandbox", "explore", &id, "exit 1", "exit 2"]).await?;
        ensure!(
            said.contains("error: explore: no branch did well") && said.contains("exit code 2"),
            "{said}"
        );
        ensure!(branches(api, &id).await?.is_empty(), "branches are left");
        ensure!(cli.fails(2, &["sandbox", "explore", &id]).await?.contains("Usage: "));
        ensure!(cli.fails(1, &["sandbox", "explore", "nonesuch", "true"]).await?.starts_with("error: "));

        let mut command = cli.command(&["sandbox", "explore", &id, "sleep 600", "sleep 601"])?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let pid = Pid::from_raw(child.id().context("no id")? as i32).context("no process")?;
        wait::until_async("the branches are there", TIMEOUT, async || {
            Ok(branches(api, &id).await?.len() == 2)
        })
        .await?;
        kill_process(pid, Signal::INT)?;
        let ended = tokio::time::timeout(TIMEOUT, child.wait()).await??;
        ensure!(ended.code() == Some(130), "{ended:?}");
        ensure!(branches(api, &id).await?.is_empty(), "branches are left");
        api.remove(&id).await
    })
}
