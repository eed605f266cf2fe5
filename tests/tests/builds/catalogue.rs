//! Templates that come with PandaStack are found again after a restart, without a look at the package sources.

use std::time::Duration;

use anyhow::{Result, ensure};
use image::Tool;
use tests::{Api, run_alone, wait};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Imports what small systems leave out, and uses some of it.
const LIBRARY: &str = r#"python -c "import asyncio, ctypes, http.server, json, lzma, sqlite3, ssl, unittest, venv, zoneinfo
print(json.dumps(sqlite3.connect(':memory:').execute('select 1, 2').fetchone()))""#;

#[test]
fn a_restarted_server_finds_its_templates_without_asking_for_packages() -> Result<()> {
    run_alone(async || {
        let api = Api::start("remember").await?;
        let before = Tool::started();
        let api = api.restart().await?;
        wait::until_async("a sandbox can be made", TIMEOUT, async || {
            let id = api.create().await?;
            ensure!(api.shell(&id, "echo here").await? == "here");
            // What its description promises: all of Python's library, compiled parts too, under either name; an editor, a pager.
            ensure!(api.shell(&id, LIBRARY).await? == "[1, 2]");
            ensure!(
                api.shell(&id, "python3 -V; for p in vi less; do command -v $p; done").await?.lines().count()
                    == 3
            );
            api.remove(&id).await?;
            Ok(true)
        })
        .await?;
        let programs = Tool::started() - before;
        ensure!(programs == 0, "{programs} programs were started");

        // Whoever asks for it gets another look.
        api.node().look_anew().await?;
        api.node().template(&tests::baked::template(), &|_| {}).await?;
        ensure!(Tool::started() > before, "nobody was asked");
        api.finish().await
    })
}
