//! Programs from the package registries, unmodified and pinned, installed once and kept between runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::cache;

/// How long an installation may take.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(300);

/// Where the scripts that drive them are, and what they need.
pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// Runs a program to its end; what it wrote. An exit code other than 0 is an error that holds it.
pub async fn output(command: &mut Command, patience: Duration) -> Result<String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ran = tokio::time::timeout(patience, command.output()).await;
    let ran = ran.with_context(|| format!("{command:?} does not end"))?;
    let ran = ran.with_context(|| format!("start {command:?}"))?;
    let (said, complained) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    ensure!(ran.status.success(), "{command:?} ended with {}:\n{said}\n{complained}", ran.status);
    Ok(said.into_owned())
}

/// A directory made by `install` when its `needs` are new or have changed.
async fn installed(
    name: &str,
    needs: &[&str],
    install: impl AsyncFnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let cache = cache::directory()?;
    let directory = cache.join(name);
    let _lock = tokio::task::block_in_place(|| cache::lock(&directory.with_extension("lock")))?;
    let mut wanted = String::new();
    for file in needs {
        wanted.push_str(&fs::read_to_string(scripts().join(file)).with_context(|| format!("read {file}"))?);
    }
    let stamp = directory.join("needs");
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&wanted) {
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory)?;
        install(&directory).await.with_context(|| format!("install {name}"))?;
        fs::write(stamp, wanted)?;
    }
    Ok(directory)
}

/// The programs of a Python environment with what a file of requirements lists.
pub async fn python(requirements: &str) -> Result<PathBuf> {
    let name = requirements.trim_end_matches(".txt");
    let directory = installed(name, &[requirements], async |directory| {
        let venv = directory.join("venv");
        output(Command::new("python3").args(["-m", "venv"]).arg(&venv), INSTALL_TIMEOUT).await?;
        let mut pip = Command::new(venv.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
        output(pip.arg(scripts().join(requirements)), INSTALL_TIMEOUT).await.map(drop)
    })
    .await?;
    Ok(directory.join("venv/bin"))
}

/// A directory with the published npm packages, and copies of the scripts that import them.
pub async fn node() -> Result<PathBuf> {
    let files = ["package.json", "package-lock.json"];
    let directory = installed("npm-packages", &files, async |directory| {
        for file in files {
            fs::copy(scripts().join(file), directory.join(file))?;
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(directory);
        output(&mut npm, INSTALL_TIMEOUT).await.map(drop)
    })
    .await?;
    copy_scripts(&directory)?;
    Ok(directory)
}

/// Copies the scripts that import npm packages to where those are installed.
pub fn copy_scripts(directory: &Path) -> Result<()> {
    for script in ["sandboxes.mjs", "command_line.mjs", "samples.mjs", "templates.mjs"] {
        fs::copy(scripts().join(script), directory.join(script))?;
    }
    Ok(())
}
