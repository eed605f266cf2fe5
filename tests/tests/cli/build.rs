//! `template build`: from a directory here to a sandbox of its own kind.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::api::TEMPLATE;
use tests::{in_api, wait};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::program::{Cli, PATIENCE};

#[test]
fn a_directory_becomes_a_template() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let context = cli.home().join("context");
        fs::create_dir_all(context.join("src"))?;
        fs::write(context.join("src/kept"), "kept\n")?;
        fs::write(context.join("src/left.log"), "left out\n")?;
        fs::write(context.join(".dockerignore"), "**/*.log\n")?;
        let dockerfile =
            format!("FROM {TEMPLATE}\nARG WHO\nCOPY src /opt/src\nRUN echo built for $WHO | tee /who\n");
        fs::write(context.join("Dockerfile"), dockerfile)?;
        let build = ["template", "build", "--name", "cli-own", "--build-arg", "WHO=panda", "context"];
        let went = cli.run(&build).await?;
        ensure!(went.code == 0 && went.stdout == "cli-own\n", "{went:?}");
        ensure!(went.stderr.contains("built for panda"), "the log is not shown: {went:?}");
        let ran = cli.ok(&["run", "-t", "cli-own", "--", "sh", "-c", "cat /who; ls /opt/src"]).await?;
        ensure!(ran == "built for panda\nkept", "{ran}");

        // A name that is taken, a step that fails, a file that is missing.
        let said = cli.fails(1, &build).await?;
        ensure!(said.contains("exists already"), "{said}");
        fs::write(context.join("Bad"), format!("FROM {TEMPLATE}\nRUN echo on the way; exit 3\n"))?;
        let said =
            cli.fails(1, &["template", "build", "--name", "cli-bad", "-f", "context/Bad", "context"]).await?;
        ensure!(said.contains("on the way") && said.contains("error: build"), "{said}");
        let said =
            cli.fails(1, &["template", "build", "--name", "cli-bad", "-f", "nonesuch", "context"]).await?;
        ensure!(said.contains("error: read nonesuch"), "{said}");
        let builds = cli.json(&["template", "builds"]).await?;
        // Other tests build with the same key: the newest build may be theirs.
        let failed = named(&builds, "cli-bad").context("no build")?;
        ensure!(failed["status"] == "failed", "{builds}");
        let id = failed["id"].as_str().context("no id")?;
        let log = cli.ok(&["template", "logs", id]).await?;
        ensure!(log.contains("on the way"), "{log}");
        cli.ok(&["template", "delete", "cli-own"]).await?;
        ensure!(cli.fails(1, &["template", "get", "cli-own"]).await?.contains("error: "));
        Ok(())
    })
}

#[test]
fn ctrl_c_cancels_a_build() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        fs::create_dir(cli.home().join("slow"))?;
        fs::write(
            cli.home().join("slow/Dockerfile"),
            format!("FROM {TEMPLATE}\nRUN echo has''begun; sleep 600\n"),
        )?;
        let mut command = cli.command(&["template", "build", "--name", "cli-slow", "slow"])?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let pid = Pid::from_raw(child.id().context("no id")? as i32).context("no process")?;
        let mut lines = BufReader::new(child.stderr.take().context("no log")?).lines();
        let begun = async {
            while let Some(line) = lines.next_line().await? {
                if line.contains("hasbegun") {
                    return anyhow::Ok(true);
                }
            }
            Ok(false)
        };
        ensure!(tokio::time::timeout(PATIENCE, begun).await.context("it does not begin")??);
        kill_process(pid, Signal::INT)?;
        let ended = tokio::time::timeout(PATIENCE, child.wait()).await??;
        ensure!(ended.code() == Some(130), "{ended:?}");
        wait::until_async("the build is cancelled", PATIENCE, async || {
            let builds = cli.json(&["template", "builds"]).await?;
            Ok(named(&builds, "cli-slow")
                .is_some_and(|build| build["status"] == "failed" && build["error"] == "cancelled"))
        })
        .await?;
        Ok(())
    })
}

/// The newest build of a template.
fn named<'a>(builds: &'a Value, template: &str) -> Option<&'a Value> {
    builds.as_array()?.iter().find(|build| build["name"] == template)
}
