//! The published clients, unmodified, against the real program, and the same programs with our packages in their place; and
//! requests made up from the API's own document.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use image::template::{TemplateSpec, base, code_interpreter};
use serde_json::json;
use tests::api::KEY;
use tests::api::serve_process::ServeProcess;
use tests::census::Census;
use tests::lab::ClosedLab;
use tests::packed::{self, Folder};
use tests::published::{self, output};
use tests::{Lab, LabSettings, wait};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// The first run makes images of more than a gigabyte.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// How long all checks of one client may take.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(400);
/// Sandboxes at once; enough for a fork of four beside its parent.
const QUOTA: &str = "6";

fn run(test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, test()).await.context("the test did not end")? })
}

/// A data directory in which these templates are baked.
async fn prepare(name: &'static str, templates: &[TemplateSpec]) -> Result<ClosedLab> {
    Lab::prepare(LabSettings::with_templates(name, templates)).await
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
fn published_clients_work_unmodified() -> Result<()> {
    run(async || {
        let mut lab = prepare("clients", &[base(), code_interpreter()]).await?;
        let server = ServeProcess::start(&mut lab, &["--quota-sandboxes", QUOTA]).await?;
        let before = Census::take(lab.data_dir())?;
        let python = published::python("requirements.txt").await?.join("python");
        let npm = published::node().await?;
        drive(&server, &python, &npm).await?;
        let said = output(client("node", &server).arg(npm.join("command_line.mjs")), CLIENT_TIMEOUT).await?;
        eprintln!("npm command line\n{said}");
        let follower = client(&python, &server);
        let server = interrupt(&mut lab, server, follower).await?;

        // Programs that were written for them do not notice that ours are installed instead.
        let folder = Folder::new("clients")?;
        let (python, npm) = packed::in_place_of_published(&folder).await?;
        drive(&server, &python, &npm).await?;
        samples(&server, &python, &npm).await?;
        let follower = client(&python, &server);
        let server = interrupt(&mut lab, server, follower).await?;

        let nothing = async || Ok(Census::take(lab.data_dir())? == before);
        let left = wait::until_async("nothing is left over", Duration::from_secs(60), nothing).await;
        left.with_context(|| format!("{before:?} became {:?}", Census::take(lab.data_dir())))?;
        server.stop().await?;
        lab.remove()
    })
}

/// Runs the programs of an interpreter and of an npm project that have the packages.
async fn drive(server: &ServeProcess, python: &Path, npm: &Path) -> Result<()> {
    let script = published::scripts().join("sandboxes.py");
    let said = output(client(python, server).arg(script), CLIENT_TIMEOUT).await?;
    eprintln!("Python SDK\n{said}");
    let said = output(client("node", server).arg(npm.join("sandboxes.mjs")), CLIENT_TIMEOUT).await?;
    eprintln!("TypeScript SDK\n{said}");
    Ok(())
}

/// Runs the product's printed samples with our packages.
async fn samples(server: &ServeProcess, python: &Path, npm: &Path) -> Result<()> {
    for template in ["base", "code-interpreter"] {
        let script = published::scripts().join("samples.py");
        output(client(python, server).arg(script).arg(template), CLIENT_TIMEOUT).await?;
        output(client("node", server).arg(npm.join("samples.mjs")).arg(template), CLIENT_TIMEOUT).await?;
    }
    Ok(())
}

/// Kills the server under a client that follows a command: the client says that it does not know how it ended, and the next
/// server has the sandbox, with the command still running.
async fn interrupt(lab: &mut ClosedLab, server: ServeProcess, mut python: Command) -> Result<ServeProcess> {
    python.arg(published::scripts().join("sandboxes.py")).arg("interrupted");
    let mut following =
        python.stdout(Stdio::piped()).kill_on_drop(true).spawn().context("start the client")?;
    let mut lines = BufReader::new(following.stdout.take().context("no output")?).lines();
    let mut next = async || -> Result<String> {
        let line = tokio::time::timeout(CLIENT_TIMEOUT, lines.next_line()).await;
        line.context("the client says nothing")??.context("the client ended")
    };
    let id = next().await?;
    ensure!(next().await? == "begun");
    server.kill()?;
    ensure!(next().await? == "interrupted", "the client was not told");
    ensure!(following.wait().await?.success());
    let server = ServeProcess::start(lab, &["--quota-sandboxes", QUOTA]).await?;
    let api = server.client();
    ensure!(api.shell(&id, "pgrep -fx 'sleep 600' >/dev/null && echo runs").await? == "runs");
    api.remove(&id).await?;
    Ok(server)
}

#[test]
fn answers_are_as_the_document_says() -> Result<()> {
    run(async || {
        let mut lab = prepare("schema", &[base()]).await?;
        let options = ["--quota-sandboxes", QUOTA, "--rate-burst", "1000000", "--rate-per-second", "1000000"];
        let server = ServeProcess::start(&mut lab, &options).await?;
        let api = server.client();
        let schemathesis = published::python("requirements-schemathesis.txt").await?.join("schemathesis");
        let settings = published::scripts().join("schemathesis.toml");
        let document = format!("http://{}/openapi.json", server.address());
        // Once with names that are made up, once inside a sandbox that has to be there and awake to the end. What a guest's own
        // program answers is not ours to describe.
        let elsewhere = "/v1/p/|/proxy/";
        let inside = "^(DELETE /v1/sandboxes|DELETE /v1/sandboxes/.id.|POST /v1/sandboxes|POST /v1/sandboxes/.id./pause)$";
        let inside = format!("{inside}|{elsewhere}");
        let ask = async |sandbox: &str, exclude: &str, examples: &str| -> Result<()> {
            let mut command = client(&schemathesis, &server);
            command.arg("--config-file").arg(&settings).args(["run", &document, "--max-examples", examples]);
            command
                .args(["--exclude-name-regex", exclude])
                .env("SANDBOX", sandbox)
                .current_dir(lab.data_dir());
            let said = output(&mut command, CLIENT_TIMEOUT).await?;
            eprintln!("{said}");
            Ok(())
        };
        // The first may delete every sandbox there is.
        ask("made-up", elsewhere, "12").await?;
        let id = api.create_with(json!({ "template": "base", "persistent": true })).await?;
        ask(&id, &inside, "4").await?;
        ensure!(api.shell(&id, "echo alive").await? == "alive");
        api.delete_everything().await?;
        server.stop().await?;
        lab.remove()
    })
}
