//! Our own clients against the real program: each through the same table of behaviour (`sdk/behaviour`), and its own tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use image::template::base;
use tests::api::KEY;
use tests::api::serve_process::ServeProcess;
use tests::published::{self, output};
use tests::{Lab, LabSettings, kept_images, run_for};
use tokio::process::Command;

/// The first run makes an image of more than a gigabyte.
const PATIENCE: Duration = Duration::from_secs(1800);
/// How long all tests of one client may take.
const CLIENT_PATIENCE: Duration = Duration::from_secs(900);

fn sdk(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk").join(name)
}

/// Runs a client's tests with a server of their own.
fn with_server(name: &'static str, command: impl AsyncFnOnce() -> Result<Command>) -> Result<()> {
    run_for(PATIENCE, async || {
        let lab = Lab::open(LabSettings { pool_bytes: 24 << 30, ..LabSettings::new(name) }).await?;
        kept_images::bake(&lab, &[base()]).await?;
        let mut lab = lab.close().await;
        let server = ServeProcess::start(&mut lab, &[]).await?;
        let mut command = command().await?;
        command.env("PANDASTACK_API", format!("http://{}", server.address())).env("PANDASTACK_API_KEY", KEY);
        for unset in ["PANDASTACK_API_URL", "PANDASTACK_TOKEN"] {
            command.env_remove(unset);
        }
        let said = output(&mut command, CLIENT_PATIENCE).await?;
        eprintln!("{said}");
        server.client().delete_everything().await?;
        server.stop().await?;
        lab.remove()
    })
}

#[test]
fn the_python_client_behaves() -> Result<()> {
    with_server("sdk-python", async || {
        let python = published::python("requirements-sdk.txt").await?;
        let source = sdk("python").canonicalize().context("find the client")?;
        let mut command = Command::new(python.join("python"));
        command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]).current_dir(&source);
        command.env("PYTHONPATH", source.join("src")).env("PYTHONDONTWRITEBYTECODE", "1");
        Ok(command)
    })
}

#[test]
fn the_python_client_is_typed() -> Result<()> {
    run_for(PATIENCE, async || {
        let python = published::python("requirements-sdk.txt").await?;
        let mut mypy = Command::new(python.join("python"));
        mypy.args(["-m", "mypy", "--cache-dir", "/dev/null"]).current_dir(sdk("python"));
        output(&mut mypy, CLIENT_PATIENCE).await.map(drop)
    })
}

#[test]
fn the_typescript_client_behaves() -> Result<()> {
    with_server("sdk-typescript", async || {
        let source = sdk("typescript").canonicalize().context("find the client")?;
        let mut npm = Command::new("npm");
        npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&source);
        output(&mut npm, CLIENT_PATIENCE).await?;
        let mut command = Command::new("npm");
        command.arg("test").current_dir(&source);
        Ok(command)
    })
}
