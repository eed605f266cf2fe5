//! The real program, `pandastack serve`, in a process of its own: to be killed, or to be driven by other programs.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use machine::ProcessIdentity;
use rustix::process::Signal;

use crate::api::KEY;
use crate::api::client::Client;
use crate::lab::ClosedLab;
use crate::leftovers::os::signal_process;
use crate::{cache, program, wait};

/// How long it may take until it serves, on a busy host.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// How long it may take to end when told to.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A server in a process of its own. Killed when dropped; its machines are left to whoever owns the data directory.
pub struct ServeProcess {
    child: Child,
    address: SocketAddr,
}

impl ServeProcess {
    /// Starts it on a data directory, on a port of its own, and waits until it is healthy.
    pub async fn start(lab: &mut ClosedLab, options: &[&str]) -> Result<Self> {
        let addresses = lab.config().addresses.to_string();
        Self::start_on(lab.data_dir(), Some(&addresses), options).await
    }

    /// The same on a data directory of the caller's, with addresses named or not.
    pub async fn start_on(data_dir: &Path, addresses: Option<&str>, options: &[&str]) -> Result<Self> {
        let program = tokio::task::block_in_place(program::path)?;
        // Found once for all data directories of the test runs.
        let probe = data_dir.join("host-probe.json");
        if !probe.exists() {
            drop(std::fs::copy(cache::directory()?.join("host-probe.json"), &probe));
        }
        let mut command = Command::new(program);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--pool-gib", "8"])
            .args(addresses.map(|addresses| ["--addresses", addresses]).into_iter().flatten())
            .args(["--prestarted-vmms", "0", "--prestarted-networks", "0", "--data-dir"])
            .arg(data_dir)
            .args(options)
            .env("PANDASTACK_BOOTSTRAP_KEY", KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let errors = child.stderr.take().context("it has no standard error")?;
        let address = tokio::task::spawn_blocking(move || find_address(errors));
        let found = tokio::time::timeout(START_TIMEOUT, address).await;
        let mut process = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        process.address = found.context("it does not say where it serves")???;
        let client = process.client().without_key();
        wait::until_async("it is healthy", START_TIMEOUT, async || {
            Ok(client.get("/healthz").await.is_ok_and(|answer| answer.status == 200))
        })
        .await?;
        Ok(process)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client with the first tenant's key.
    pub fn client(&self) -> Client {
        Client::new(self.address, Some(KEY))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once, as a crash or a lack of memory would.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().context("kill the server")?;
        self.child.wait().context("wait for the server").map(drop)
    }

    /// Tells it to stop and waits until it has.
    pub async fn stop(mut self) -> Result<()> {
        signal_process(ProcessIdentity::of(self.child.id())?, Signal::TERM)?;
        let mut status = None;
        wait::until("the server stops", STOP_TIMEOUT, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })
        .await?;
        ensure!(status.is_some_and(|status| status.success()), "it ended with {status:?}");
        Ok(())
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        // Ended already is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads what it says until it says where it serves; the rest is read and dropped, so that it never waits for a reader.
fn find_address(errors: impl std::io::Read + Send + 'static) -> Result<SocketAddr> {
    let mut lines = BufReader::new(errors).lines();
    let mut said = String::new();
    for line in lines.by_ref().map_while(Result::ok) {
        if let Some((_, address)) = line.split_once("serving on http://") {
            let address = address.trim().parse().context("understand where it serves")?;
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            return Ok(address);
        }
        said.push_str(&line);
        said.push('\n');
    }
    bail!("the server ended: {said}")
}
