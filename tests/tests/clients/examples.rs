//! The examples, run as a stranger runs them: unmodified, against the real program, with a model that follows a script.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use image::template::TemplateSpec;
use tests::api::serve_process::ServeProcess;
use tests::api::{self, KEY, TEMPLATE};
use tests::published::output;
use tests::{Lab, LabSettings, run_for};
use tokio::process::Command;

mod python;
mod typescript;

/// The first run makes an image of more than a gigabyte.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// How long one example may take, in emulated guests.
const EXAMPLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Where the examples are.
fn examples() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").canonicalize().context("find the examples")
}

/// A server for examples to use, and a directory for them to be in.
struct Stage {
    server: ServeProcess,
    scratch: PathBuf,
}

/// Runs examples with a server of their own, which has these templates besides the suites' own.
fn with_server(
    name: &'static str,
    templates: &[TemplateSpec],
    test: impl AsyncFnOnce(&Stage) -> Result<()>,
) -> Result<()> {
    run_for(TIMEOUT, async || {
        let mut lab = Lab::prepare(LabSettings::with_templates(name, templates)).await?;
        let server = ServeProcess::start(&mut lab, &[]).await?;
        let scratch = lab.data_dir().join("examples");
        std::fs::create_dir(&scratch)?;
        let stage = Stage { server, scratch };
        test(&stage).await?;
        stage.server.stop().await?;
        lab.remove()
    })
}

impl Stage {
    /// A program that is told where the server is, and to use the suites' template where any will do.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("PANDASTACK_API", format!("http://{}", self.server.address()))
            .env("PANDASTACK_API_KEY", KEY)
            .env("PANDASTACK_TEMPLATE", TEMPLATE)
            .current_dir(&self.scratch);
        let host = ["PANDASTACK_API_URL", "PANDASTACK_TOKEN", "PANDASTACK_PREVIEW_HOST"];
        let model = ["ANTHROPIC_MODEL", "ANTHROPIC_AUTH_TOKEN", "OPENAI_MODEL", "LANGSMITH_TRACING"];
        for unset in host.into_iter().chain(model) {
            command.env_remove(unset);
        }
        command
    }

    /// The same with a model that follows one of the scripts in `examples/scripted_model/scripts`. The program and its arguments are still
    /// to be added. It ends with an error when the program does not do as the script says.
    fn with_model(&self, script: &str) -> Result<Command> {
        let model = examples()?.join("scripted_model");
        let mut command = self.command("python3");
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.arg(model.join("server.py")).arg(model.join("scripts").join(script)).arg("--");
        Ok(command)
    }

    /// Runs an example to its end: what it wrote. It leaves no sandbox.
    async fn run(&self, command: &mut Command) -> Result<String> {
        let said = output(command, EXAMPLE_TIMEOUT).await?;
        eprintln!("{said}");
        let left = self.server.client().get("/v1/sandboxes").await?.expect(200)?.json()?;
        ensure!(api::list(&left, "id")?.is_empty(), "it left {left}");
        Ok(said)
    }
}

/// An error unless all of these are in a text, in this order.
fn says(text: &str, wanted: &[&str]) -> Result<()> {
    let mut rest = text;
    for one in wanted {
        let (_, after) = rest.split_once(one).with_context(|| format!("{one:?} is missing in\n{text}"))?;
        rest = after;
    }
    Ok(())
}

#[test]
fn the_scripted_model_refuses_what_services_refuse() -> Result<()> {
    tests::run(async || {
        let mut command = Command::new("python3");
        command.args(["-m", "unittest"]).current_dir(examples()?.join("scripted_model"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        output(&mut command, EXAMPLE_TIMEOUT).await.map(drop)
    })
}
