//! `template build`: from a directory here to a sandbox of its own kind.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::api::TEMPLATE;
use tests::api::serve_process::ServeProcess;
use tests::packed::Folder;
use tests::registry::{Registry, image_archive, shell_tree, tarball};
use tests::{Lab, LabSettings, in_api, run_for, wait};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cli::program::{Cli, TIMEOUT};

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
        ensure!(tokio::time::timeout(TIMEOUT, begun).await.context("it does not begin")??);
        kill_process(pid, Signal::INT)?;
        let ended = tokio::time::timeout(TIMEOUT, child.wait()).await??;
        ensure!(ended.code() == Some(130), "{ended:?}");
        wait::until_async("the build is cancelled", TIMEOUT, async || {
            let builds = cli.json(&["template", "builds"]).await?;
            Ok(named(&builds, "cli-slow")
                .is_some_and(|build| build["status"] == "failed" && build["error"] == "cancelled"))
        })
        .await?;
        Ok(())
    })
}

#[test]
fn images_archives_and_root_file_systems_become_templates() -> Result<()> {
    run_for(TIMEOUT * 4, async || {
        let folder = Folder::new("cli-builds")?;
        let tree = shell_tree(folder.path(), "in the tree")?;
        let archive = image_archive(folder.path(), &tree)?;
        let rootfs = folder.path().join("rootfs.tar");
        fs::write(&rootfs, tarball(&tree)?)?;
        let Some(registry) = Registry::start(&folder.path().join("registry"))? else { return Ok(()) };
        let reference = registry.push(&archive, "made/shell:1")?;
        let host = reference.split('/').next().unwrap_or_default();

        let mut lab =
            Lab::prepare(LabSettings { pool_bytes: 24 << 30, ..LabSettings::new("cli-builds") }).await?;
        let options = ["--registry", host, "--build-memory-mib", "512"];
        let server = ServeProcess::start(&mut lab, &options).await?;
        let cli = Cli::new(server.address())?;
        let (archive, rootfs) = (archive.display().to_string(), rootfs.display().to_string());
        for (name, from, greeting) in [
            ("cli-rootfs", ["--rootfs", rootfs.as_str()], ""),
            ("cli-archive", ["--archive", archive.as_str()], "hello from the image"),
            ("cli-image", ["--image", reference.as_str()], "hello from the image"),
        ] {
            let build = [&["template", "build", "--name", name, "--size-mb", "256"], &from[..]].concat();
            let went = cli.run(&build).await?;
            ensure!(went.code == 0 && went.stdout == format!("{name}\n"), "{went:?}");
            ensure!(went.stderr.contains("build "), "{went:?}");
            let id = cli.ok(&["sandbox", "create", "--template", name]).await?;
            let line = "read mark < /mark; echo \"$mark, $GREETING\"";
            let said = cli.ok(&["sandbox", "exec", &id, line]).await?;
            ensure!(said == format!("in the tree, {greeting}"), "{name}: {said:?}");
            cli.ok(&["sandbox", "delete", &id]).await?;
        }
        let listed = cli.json(&["template", "builds"]).await?;
        ensure!(named(&listed, "cli-image").is_some_and(|build| build["status"] == "done"), "{listed}");

        // What is none of these, or not there.
        fs::write(folder.path().join("no-archive"), "not an archive")?;
        let wrong = folder.path().join("no-archive").display().to_string();
        for from in ["--rootfs", "--archive"] {
            let went = cli.run(&["template", "build", "--name", "cli-wrong", from, &wrong]).await?;
            ensure!(went.code == 1 && went.stderr.contains("error: "), "{from}: {went:?}");
            let said = cli.fails(1, &["template", "build", "--name", "cli-wrong", from, "nonesuch"]).await?;
            ensure!(said.contains("nonesuch"), "{said}");
        }
        let elsewhere = ["template", "build", "--name", "cli-wrong", "--image", "elsewhere.example/x:1"];
        ensure!(cli.fails(1, &elsewhere).await?.contains("elsewhere.example"));
        let both = ["template", "build", "--name", "x", "--image", &reference, "--rootfs", &rootfs];
        ensure!(cli.fails(2, &both).await?.contains("cannot be used with"));
        server.client().delete_everything().await?;
        server.stop().await?;
        lab.remove()
    })
}

/// The newest build of a template.
fn named<'a>(builds: &'a Value, template: &str) -> Option<&'a Value> {
    builds.as_array()?.iter().find(|build| build["name"] == template)
}
