//! What an operator does with the real program besides serving: starts that are refused, a second instance, backup and restore,
//! removing an instance and what a dead one left.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::api::TEMPLATE;
use tests::api::serve_process::ServeProcess;
use tests::{Lab, LabSettings, census, leftovers, program, run_for};

const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(240);

/// Runs the program on a data directory.
fn pandastack(data_dir: &Path, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(tokio::task::block_in_place(program::path)?);
    let (first, rest) = words.split_first().context("no command")?;
    command.arg(first).arg("--data-dir").arg(data_dir).args(rest).stdin(Stdio::null());
    command.env_remove("PANDASTACK_BOOTSTRAP_KEY");
    Ok(tokio::task::block_in_place(|| command.output())?)
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn expect(output: &Output, succeeds: bool, part: &str) -> Result<()> {
    let text = said(output);
    ensure!(output.status.success() == succeeds && text.contains(part), "{}: {text}", output.status);
    Ok(())
}

/// A data directory beside a lab's. What is left of it goes with this.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        drop(pandastack(&self.0, &["uninstall", "--yes", "--stop"]));
    }
}

#[test]
fn a_backup_is_restored_beside_the_original_and_both_are_removed() -> Result<()> {
    run_for(TIMEOUT, async || {
        let mut lab = Lab::prepare(LabSettings::new("operate")).await?;
        let data_dir = lab.data_dir().to_owned();
        let addresses = lab.config().addresses.to_string();
        let work = leftovers::make_directory("operate-work")?;
        let (new, backup) = (work.join("new"), work.join("backup"));
        let restored = Beside(work.join("restored"));

        let server = ServeProcess::start(&mut lab, &[]).await?;
        let client = server.client();
        let made =
            client.post("/v1/sandboxes", json!({ "template": TEMPLATE })).await?.expect(201)?.json()?;
        let id = made["id"].as_str().context("no id")?.to_owned();
        let exec = format!("/v1/sandboxes/{id}/exec");
        client.post(&exec, json!({ "cmd": "echo draft > /run/plan" })).await?.expect(200)?;
        let other =
            client.post("/v1/sandboxes", json!({ "template": TEMPLATE })).await?.expect(201)?.json()?;
        let other = other["id"].as_str().context("no id")?.to_owned();

        // Starts beside it that are refused, and leave nothing.
        for (words, reason) in [
            (vec!["serve", "--prepare", "no-such-template"], "there is no template no-such-template"),
            (vec!["serve", "--listen", &server.address().to_string()], "listen on"),
            (vec!["serve", "--listen", "127.0.0.1:0", "--addresses", &addresses], "its data directory is"),
        ] {
            expect(&pandastack(&new, &words)?, false, reason)?;
            ensure!(!new.exists(), "{words:?} left {}", new.display());
        }
        // Tenants, asked of the server.
        expect(
            &pandastack(
                &data_dir,
                &["tenant", "create", "second", "--max-sandboxes", "2", "--network", "all"],
            )?,
            true,
            "pds_",
        )?;
        expect(&pandastack(&data_dir, &["tenant", "list"])?, true, "0 of 2")?;
        expect(&pandastack(&data_dir, &["tenant", "list"])?, true, "own     all ")?;

        expect(&pandastack(&data_dir, &["uninstall", "--yes"])?, false, "in use by process")?;
        let target = backup.to_str().context("a strange path")?;
        expect(&pandastack(&data_dir, &["backup", target])?, false, "systemctl stop pandastack")?;
        client.post_nothing(&format!("/v1/sandboxes/{id}/hibernate")).await?.expect(200)?;
        server.stop().await?;
        let refused = pandastack(&data_dir, &["backup", target])?;
        expect(&refused, false, &other)?;
        ensure!(!said(&refused).contains(&id) && !backup.exists());
        expect(&pandastack(&data_dir, &["backup", "--skip-running", target])?, true, &other)?;
        expect(&pandastack(&data_dir, &["tenant", "quota", "second"])?, true, "sandboxes")?;
        let words = ["tenant", "quota", "second", "--network", "default"];
        expect(&pandastack(&data_dir, &words)?, true, "network     default")?;

        // One byte differs: nothing is restored. Right again, it is.
        let disk = backup.join("pool/sandboxes").join(&id).join("disk");
        let flip = || -> Result<()> {
            use std::os::unix::fs::FileExt;
            let (file, mut byte) = (std::fs::File::options().read(true).write(true).open(&disk)?, [0]);
            file.read_exact_at(&mut byte, 70_000)?;
            Ok(file.write_all_at(&[byte[0] ^ 1], 70_000)?)
        };
        let restore = ["restore", "--pool-gib", "8", target];
        flip()?;
        expect(&pandastack(&restored.0, &restore)?, false, "is damaged")?;
        ensure!(!restored.0.exists());
        flip()?;
        expect(&pandastack(&restored.0, &restore)?, true, "restored 1 sandboxes that sleep")?;
        expect(&pandastack(&restored.0, &restore)?, false, "not empty")?;

        // Beside the original, whose addresses were not named, it finds some of its own.
        let original = ServeProcess::start(&mut lab, &[]).await?;
        let second = ServeProcess::start_on(&restored.0, None, &[]).await?;
        for client in [original.client(), second.client()] {
            let answer = client.post(&exec, json!({ "cmd": "cat /run/plan" })).await?.expect(200)?.json()?;
            ensure!(answer["stdout"] == "draft\n", "{answer}");
        }
        let died = second.client().get(&format!("/v1/sandboxes/{other}")).await?.expect(200)?.json()?;
        ensure!(died["status"] == "failed", "{died}");

        // Removed with its machine, while the other goes on.
        let tag = census::tag(&restored.0).context("no tag")?;
        expect(&pandastack(&restored.0, &["uninstall", "--yes", "--stop"])?, true, "removed 1 machine")?;
        drop(second);
        ensure!(!restored.0.exists() && census::machines(&tag)?.is_empty());
        ensure!(census::namespaces(&tag)?.is_empty() && census::loop_devices(&restored.0)? == 0);
        let answer = original.client().post(&exec, json!({ "cmd": "cat /run/plan" })).await?;
        ensure!(answer.expect(200)?.json()?["stdout"] == "draft\n");

        // Killed, and the directory removed by hand: what is left is found by its tag.
        let tag = census::tag(&data_dir).context("no tag")?;
        original.kill()?;
        for name in ["instance", "control.db", "pool.img"] {
            drop(std::fs::remove_file(data_dir.join(name)));
        }
        let gc = |words: &[&str]| -> Result<Output> {
            let mut command = Command::new(tokio::task::block_in_place(program::path)?);
            Ok(command.args(["gc", "--instance", &tag]).args(words).output()?)
        };
        expect(&gc(&["--dry-run"])?, true, "would remove")?;
        ensure!(!census::machines(&tag)?.is_empty());
        expect(&gc(&[])?, true, "removed 2 machines")?;
        ensure!(census::machines(&tag)?.is_empty() && census::namespaces(&tag)?.is_empty());
        ensure!(census::mounts(&data_dir)?.is_empty() && census::loop_devices(&data_dir)? == 0);
        drop(restored);
        leftovers::remove(&work)?;
        lab.remove()
    })
}
