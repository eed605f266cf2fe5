//! The published clients, unmodified, against the real program.

use std::time::Duration;

use anyhow::{Context, Result};
use image::template::{TemplateSpec, base, code_interpreter};
use tests::api::KEY;
use tests::api::serve_process::ServeProcess;
use tests::census::Census;
use tests::lab::ClosedLab;
use tests::published::{self, output};
use tests::{Lab, LabSettings, kept_images, wait};
use tokio::process::Command;

/// The first run makes images of more than a gigabyte.
const PATIENCE: Duration = Duration::from_secs(1800);
/// How long all checks of one client may take.
const CLIENT_PATIENCE: Duration = Duration::from_secs(400);
/// Sandboxes at once; enough for a fork of four beside its parent.
const QUOTA: &str = "6";

fn run(test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test()).await.context("the test did not end")? })
}

/// A data directory in which these templates are baked.
async fn prepare(name: &'static str, templates: &[TemplateSpec]) -> Result<ClosedLab> {
    let settings = LabSettings { pool_bytes: 24 << 30, ..LabSettings::new(name) };
    let lab = Lab::open(settings).await?;
    kept_images::bake(&lab, templates).await?;
    Ok(lab.close().await)
}

/// A client that is told where the server is and which key to use, in each way that clients read it.
fn client(program: impl AsRef<std::ffi::OsStr>, server: &ServeProcess) -> Command {
    let url = format!("http://{}", server.address());
    let mut command = Command::new(program);
    command.env("PANDASTACK_API", &url).env("PANDASTACK_API_URL", &url).env("PANDASTACK_API_KEY", KEY);
    command.env("QUOTA_SANDBOXES", QUOTA).env_remove("PANDASTACK_TOKEN");
    command
}

#[test]
#[ignore = "takes minutes and installs from package registries: cargo test -p tests --test clients -- --ignored"]
fn published_clients_work_unmodified() -> Result<()> {
    run(async || {
        let mut lab = prepare("clients", &[base(), code_interpreter()]).await?;
        let server = ServeProcess::start(&mut lab, &["--quota-sandboxes", QUOTA]).await?;
        let before = Census::take(lab.data_dir())?;
        let scripts = published::scripts();
        let python = published::python("requirements.txt").await?.join("python");
        let said =
            output(client(&python, &server).arg(scripts.join("sandboxes.py")), CLIENT_PATIENCE).await?;
        eprintln!("Python SDK\n{said}");
        let npm = published::node().await?;
        let said = output(client("node", &server).arg(npm.join("sandboxes.mjs")), CLIENT_PATIENCE).await?;
        eprintln!("TypeScript SDK\n{said}");
        let said = output(client("node", &server).arg(npm.join("command_line.mjs")), CLIENT_PATIENCE).await?;
        eprintln!("npm command line\n{said}");

        let nothing = async || Ok(Census::take(lab.data_dir())? == before);
        let left = wait::until_async("nothing is left over", Duration::from_secs(30), nothing).await;
        left.with_context(|| format!("{before:?} became {:?}", Census::take(lab.data_dir())))?;
        server.stop().await?;
        lab.remove()
    })
}
