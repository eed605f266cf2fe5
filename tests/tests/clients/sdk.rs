//! Our own clients against the real program: each through the same table of behaviour (`sdk/behaviour`), and its own tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use image::template::base;
use tests::api::KEY;
use tests::api::serve_process::ServeProcess;
use tests::published::{self, output};
use tests::tls_front::TlsFront;
use tests::{Lab, LabSettings, run_for};
use tokio::process::Command;

/// The first run makes an image of more than a gigabyte.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// How long all tests of one client may take.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(900);

fn sdk(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk").join(name)
}

/// A client's tests, and those of them that are run once more through TLS: requests, streams and a WebSocket.
struct Suite {
    all: Command,
    through_tls: Command,
}

/// Runs a client's tests with a server of their own.
fn with_server(name: &'static str, suite: impl AsyncFnOnce() -> Result<Suite>) -> Result<()> {
    run_for(TIMEOUT, async || {
        let mut lab = Lab::prepare(LabSettings::with_templates(name, &[base()])).await?;
        let server = ServeProcess::start(&mut lab, &[]).await?;
        let Suite { mut all, mut through_tls } = suite().await?;
        let front = TlsFront::start(name, server.address())?;
        all.env("PANDASTACK_API", format!("http://{}", server.address()));
        // A CA that is nobody else's has to be named: to Python and to Node.
        through_tls.env("PANDASTACK_API", front.url());
        through_tls.env("SSL_CERT_FILE", front.authority()).env("NODE_EXTRA_CA_CERTS", front.authority());
        for command in [&mut all, &mut through_tls] {
            command.env("PANDASTACK_API_KEY", KEY);
            for unset in ["PANDASTACK_API_URL", "PANDASTACK_TOKEN"] {
                command.env_remove(unset);
            }
            eprintln!("{}", output(command, CLIENT_TIMEOUT).await?);
        }
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
        let pytest = |tests: &[&str]| {
            let mut command = Command::new(python.join("python"));
            command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).args(tests).current_dir(&source);
            command.env("PYTHONPATH", source.join("src")).env("PYTHONDONTWRITEBYTECODE", "1");
            command
        };
        let through_tls = ["tests/test_behaviour.py", "-k", "arrives or outlive or terminal"];
        Ok(Suite { all: pytest(&["tests"]), through_tls: pytest(&through_tls) })
    })
}

#[test]
fn the_python_client_is_typed() -> Result<()> {
    run_for(TIMEOUT, async || {
        let python = published::python("requirements-sdk.txt").await?;
        let mut mypy = Command::new(python.join("python"));
        mypy.args(["-m", "mypy", "--cache-dir", "/dev/null"]).current_dir(sdk("python"));
        output(&mut mypy, CLIENT_TIMEOUT).await.map(drop)
    })
}

#[test]
fn the_typescript_client_behaves() -> Result<()> {
    with_server("sdk-typescript", async || {
        let source = sdk("typescript").canonicalize().context("find the client")?;
        let mut npm = Command::new("npm");
        npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&source);
        output(&mut npm, CLIENT_TIMEOUT).await?;
        let mut all = Command::new("npm");
        all.arg("test").current_dir(&source);
        let mut through_tls = Command::new("node");
        let pattern = "--test-name-pattern=arrives|outlive|terminal";
        through_tls.args(["--test", pattern, "build/test/behaviour.test.js"]).current_dir(&source);
        Ok(Suite { all, through_tls })
    })
}
