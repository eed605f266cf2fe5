//! The directory that test runs share, and locks in it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

/// Overrides where test runs keep what they share.
const VARIABLE: &str = "PANDASTACK_TEST_CACHE";
/// Ranges of guest addresses, one for each data directory in use.
const RANGES: u8 = 64;

/// Where test runs keep what they share: beside the build, unless told otherwise.
pub fn directory() -> Result<PathBuf> {
    let path = match std::env::var_os(VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => target_directory()?.join("pandastack-tests"),
    };
    fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
    path.canonicalize().context("find the test cache")
}

/// Where the programs of this build are, such as `target/debug`.
pub fn build_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().context("find this program")?;
    let directory = program.parent().context("this program is in no directory")?;
    let tests = directory.file_name().is_some_and(|name| name == "deps");
    Ok(if tests { directory.parent().unwrap_or(directory) } else { directory }.to_owned())
}

fn target_directory() -> Result<PathBuf> {
    let build = build_directory()?;
    Ok(build.parent().unwrap_or(&build).to_owned())
}

/// Waits for a lock; it lasts until the file is dropped.
pub fn lock(path: &Path) -> Result<File> {
    let file = open_lock(path)?;
    flock(&file, FlockOperation::LockExclusive).with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

fn open_lock(path: &Path) -> Result<File> {
    let open = File::options().read(true).write(true).create(true).truncate(false).open(path);
    open.with_context(|| format!("open {}", path.display()))
}

/// Takes a range of guest addresses that no other test uses, for as long as the file lives.
pub fn address_range() -> Result<(u8, File)> {
    // Every cache on this host shares one set of ranges.
    let directory = std::env::temp_dir().join("pandastack-tests-addresses");
    fs::create_dir_all(&directory).context("make the directory of address ranges")?;
    for number in 0..RANGES {
        let file = open_lock(&directory.join(number.to_string()))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok((number, file));
        }
    }
    anyhow::bail!("all {RANGES} address ranges are in use")
}
