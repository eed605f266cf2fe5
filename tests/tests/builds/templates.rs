//! Custom templates: asked for as clients ask, built by real machines, used, replaced, deleted.

mod asking;
mod building;
mod cancelled;
mod clients;
mod foreign;
mod full;
mod killed;

use std::time::Duration;

use anyhow::Result;
use oci::Allowed;
use tests::{Api, ApiSettings, run_for};
use tokio::sync::OnceCell;

/// How long one build may take: machines may be emulated and the host busy.
const TIMEOUT: Duration = Duration::from_secs(400);
/// How long one test may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(1500);

static SHARED: OnceCell<Api> = OnceCell::const_new();

fn settings(name: &'static str) -> ApiSettings {
    let mut settings = ApiSettings::new(name);
    settings.lab.pool_bytes = 24 << 30;
    settings.control.builds.builder.naming.allowed = Allowed::All;
    settings.control.builds.builder.memory_mib = 512;
    settings.control.builds.builder.vcpus = 1;
    settings.control.builds.at_once = 2;
    settings
}

/// Runs a test against the server that the tests of this suite share.
fn in_server(test: impl AsyncFnOnce(&'static Api) -> Result<()>) -> Result<()> {
    run_for(TEST_TIMEOUT, async || {
        let api = SHARED.get_or_try_init(|| Api::start_with(settings("templates"))).await?;
        test(api).await
    })
}

/// A directory of a test's own, which goes with it.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pandastack-tests-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
