//! `template prepare`: templates made ready ahead of their first use, by a server or in a data directory without one.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use image::template;
use serde_json::Value;
use storage::{DataDir, Pool, PoolConfig, PoolSize};
use tests::api::serve_process::ServeProcess;
use tests::baked::Baked;
use tests::{Lab, LabSettings, cache, command, leftovers, run_for, wait};

use crate::cli::program::{Cli, Went};

/// Two bakes, on a busy host.
const TIMEOUT: Duration = Duration::from_secs(400);
const POOL_BYTES: u64 = 16 << 30;

async fn prepare(cli: &Cli, words: &[&str], data_dir: &Path, addresses: &str) -> Result<Went> {
    let data_dir = data_dir.to_str().context("a path")?;
    let more = ["--data-dir", data_dir, "--addresses", addresses, "--prestarted-networks", "0"];
    let mut command = cli.command(&[words, &more].concat())?;
    let ended = tokio::time::timeout(wait::scaled(TIMEOUT), command.stdin(Stdio::null()).output()).await;
    let output = ended.with_context(|| format!("{words:?} does not end"))??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().with_context(|| format!("it was killed: {output:?}"))?;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    Ok(Went { code, stdout, stderr, bytes: output.stdout })
}

/// A data directory in which nothing was baked; root file systems that an earlier run made are not made again.
async fn fresh() -> Result<std::path::PathBuf> {
    let kept = [Baked::base().await?, Baked::of(&template::base()).await?];
    let data_dir = leftovers::make_directory("fresh")?;
    drop(fs::copy(cache::directory()?.join("host-probe.json"), data_dir.join("host-probe.json")));
    tokio::task::block_in_place(|| {
        let lock = DataDir::lock(&data_dir)?;
        let pool = Pool::open(&lock, &PoolConfig { size: PoolSize::Bytes(POOL_BYTES) })?;
        kept.iter().try_for_each(|kept| command::copy_into(&[&kept.images()], pool.path()))
    })?;
    Ok(data_dir)
}

#[test]
fn two_names_are_baked_one_after_the_other() -> Result<()> {
    run_for(TIMEOUT, async || {
        let (cli, data_dir) = (Cli::bare()?, fresh().await?);
        let (range, _held) = cache::address_range()?;
        let addresses = format!("10.210.{range}.0/24");
        let wrong =
            prepare(&cli, &["template", "prepare", "minimal", "nonesuch"], &data_dir, &addresses).await?;
        ensure!(wrong.code == 1 && wrong.stderr.contains("there is no template `nonesuch`"), "{wrong:?}");
        ensure!(!wrong.stderr.contains("booting"), "it was begun: {wrong:?}");
        for words in [&["template", "prepare"][..], &["template", "prepare", "--all", "minimal"]] {
            let wrong = prepare(&cli, words, &data_dir, &addresses).await?;
            ensure!(wrong.code == 2, "{wrong:?}");
        }

        let words = ["template", "prepare", "minimal", "base"];
        let first = prepare(&cli, &words, &data_dir, &addresses).await?;
        println!("{}", first.stderr);
        ensure!(first.code == 0 && first.stdout.lines().count() == 2, "{first:?}");
        let said = |what: &str| first.stderr.find(what).with_context(|| format!("{what}: {first:?}"));
        let order = [
            said("preparing minimal: booting it for the first and only time")?,
            said("preparing minimal: warming up")?,
            said("preparing minimal: saving it")?,
            said("preparing base: booting it for the first and only time")?,
            said("preparing base: saving it")?,
        ];
        ensure!(order.is_sorted(), "{first:?}");

        // What is there is found, and told to programs too.
        let words = ["--output", "json", "template", "prepare", "minimal", "base"];
        let again = prepare(&cli, &words, &data_dir, &addresses).await?;
        ensure!(again.code == 0 && !again.stderr.contains("booting"), "{again:?}");
        let told = serde_json::Deserializer::from_str(&again.stdout).into_iter::<Value>();
        for ((told, id), name) in told.zip(first.stdout.lines()).zip(["minimal", "base"]) {
            let told = told?;
            ensure!(told["template"] == name && told["snapshot"] == id, "{told} and {id}");
        }
        tokio::task::block_in_place(|| leftovers::remove(&data_dir))
    })
}

#[test]
fn a_data_directory_with_a_server_is_left_to_it() -> Result<()> {
    run_for(TIMEOUT, async || {
        let mut lab =
            Lab::prepare(LabSettings { pool_bytes: POOL_BYTES, ..LabSettings::new("baked") }).await?;
        let options = ["--build-memory-mib", "512"];
        let server = ServeProcess::start(&mut lab, &options).await?;
        let cli = Cli::new(server.address())?;
        fs::create_dir(cli.home().join("own"))?;
        fs::write(cli.home().join("own/Dockerfile"), "FROM minimal\nRUN echo mine > /mine\n")?;
        ensure!(cli.ok(&["template", "build", "--name", "own", "own"]).await? == "own");

        let (data_dir, addresses) = (lab.data_dir().to_owned(), lab.config().addresses.to_string());
        let refused =
            prepare(&cli, &["template", "prepare", "--local", "--all"], &data_dir, &addresses).await?;
        let by = format!("is in use by process {}", server.id());
        ensure!(
            refused.code == 1 && refused.stdout.is_empty() && refused.stderr.contains(&by),
            "{refused:?}"
        );
        ensure!(refused.stderr.contains("--api URL template prepare"), "{refused:?}");
        // The server is asked instead, for its own and for what comes with it; when this ends they are ready.
        for name in ["own", "minimal"] {
            let told = cli.json(&["template", "prepare", name]).await?;
            ensure!(told["name"] == name && told["status"] == "ready", "{told}");
        }
        server.stop().await?;

        // Without one it is done here, and leaves alone what it does not know.
        let baked =
            prepare(&cli, &["template", "prepare", "--local", "minimal"], &data_dir, &addresses).await?;
        ensure!(baked.code == 0 && !baked.stderr.contains("booting"), "{baked:?}");
        let server = ServeProcess::start(&mut lab, &options).await?;
        let cli = Cli::new(server.address())?;
        ensure!(cli.json(&["template", "get", "own"]).await?["status"] == "ready");
        ensure!(cli.ok(&["run", "-t", "own", "--", "cat", "/mine"]).await? == "mine");
        server.stop().await?;
        lab.remove()
    })
}
