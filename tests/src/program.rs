//! The program under test, built from the sources as they are.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{cache, command};

/// Names the program when it is built already: with all of the workspace, which saves compiling its libraries once more for a
/// program alone.
const VARIABLE: &str = "PANDASTACK_TEST_PROGRAM";

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
static BUILDING: Mutex<()> = Mutex::new(());
static BUILT_FOR_MS: AtomicU64 = AtomicU64::new(0);

/// Where it is. Blocks while it is built, the first time.
pub fn path() -> Result<&'static Path> {
    let _alone = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = PROGRAM.get() {
        return Ok(program);
    }
    let program = match std::env::var_os(VARIABLE) {
        Some(program) => PathBuf::from(program),
        None => build()?,
    };
    Ok(PROGRAM.get_or_init(|| program))
}

/// For how long tests of this process waited for it to be built.
pub(crate) fn built_for() -> Duration {
    Duration::from_millis(BUILT_FOR_MS.load(Ordering::Relaxed))
}

/// `cargo test -p tests` builds this package's programs only.
fn build() -> Result<PathBuf> {
    let started = Instant::now();
    let build = cache::build_directory()?;
    let target = build.parent().context("the build is in no directory")?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let arguments = ["build", "--quiet", "--locked", "--package", "pandastack", "--manifest-path"];
    let mut arguments: Vec<_> = arguments.iter().map(|text| (*text).into()).collect();
    arguments.extend([manifest.into_os_string(), "--target-dir".into(), target.as_os_str().to_owned()]);
    if build.ends_with("release") {
        arguments.push("--release".into());
    }
    let built = command::run(&cargo, &arguments).context("build the program");
    BUILT_FOR_MS.fetch_add(started.elapsed().as_millis() as u64, Ordering::Relaxed);
    built?;
    Ok(build.join("pandastack"))
}
