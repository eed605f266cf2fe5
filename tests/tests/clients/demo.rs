//! `scripts/demo`, as the README names it: it shows a sandbox at work and leaves a server to go on with, which it also ends.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tests::published::output;
use tests::{cache, census, leftovers, program, run_for};
use tokio::process::Command;

/// The template is made from nothing.
const TIMEOUT: Duration = Duration::from_secs(900);

/// The script over a data directory; what it says.
async fn demo(data_dir: &Path, range: u8, words: &[&str]) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/demo").canonicalize()?;
    // What it says goes to standard error; so does the server's, which keeps no pipe of ours open.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(script).args(words);
    command.env("PANDASTACK_DATA_DIR", data_dir).env("PANDASTACK_LISTEN", "127.0.0.1:0");
    command.env("PANDASTACK_ADDRESSES", format!("10.210.{range}.0/24")).env("PANDASTACK_POOL_GIB", "8");
    output(&mut command, TIMEOUT).await
}

#[test]
fn the_demo_leaves_a_server_to_go_on_with() -> Result<()> {
    run_for(TIMEOUT, async || {
        let data_dir = leftovers::make_directory("demo")?;
        let (range, _held) = cache::address_range()?;
        let program = tokio::task::block_in_place(program::path)?;
        let with = ["--program", program.to_str().context("a path that is no text")?];
        for round in 1..=2 {
            let said = demo(&data_dir, range, &with).await?;
            for part in
                ["created sandbox", "forked it into two children", "woke it in", "a server runs and stays"]
            {
                ensure!(said.contains(part), "round {round}: {part} is not in\n{said}");
            }
            // The second time another server takes over, with the key that is known.
            ensure!(census::servers(&data_dir)?.len() == 1, "round {round}: not one server");
            let url =
                said.lines().find_map(|line| line.trim().strip_prefix("address   ")).context(said.clone())?;
            let url = url.split_whitespace().next().context("no address")?;
            let key = fs::read_to_string(data_dir.join("demo/key"))?;
            let mut try_it = Command::new(program);
            try_it.args([
                "run",
                "--template",
                "minimal",
                "--no-stdin",
                "--",
                "python3",
                "-c",
                "print(6 * 7)",
            ]);
            try_it.env("PANDASTACK_API", url).env("PANDASTACK_API_KEY", key.trim());
            ensure!(output(&mut try_it, TIMEOUT).await?.trim() == "42", "a sandbox for one command failed");
        }
        demo(&data_dir, range, &["--stop"]).await?;
        ensure!(census::servers(&data_dir)?.is_empty(), "the server goes on");
        let again = demo(&data_dir, range, &["--stop"]).await;
        ensure!(format!("{again:?}").contains("no server of a demo runs"), "{again:?}");

        let mut uninstall = Command::new(program);
        uninstall.args(["uninstall", "--yes", "--data-dir"]).arg(&data_dir);
        output(&mut uninstall, TIMEOUT).await?;
        ensure!(!data_dir.join("demo").exists() && !data_dir.join("pool").exists(), "something is left");
        Ok(())
    })
}
