//! Our own packages, built as for publication from a copy of their source, and installed where a stranger would have them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::cache;
use crate::published::{self, output};

/// How long a build or an installation may take.
const TIMEOUT: Duration = Duration::from_secs(300);
/// What tools leave in a source tree.
const LEFT_BY_TOOLS: [&str; 7] =
    ["node_modules", "dist", "build", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"];

/// A directory outside of the source tree, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it; the name tells it from others of this process.
    pub fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pandastack-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The Python package, in both of its forms.
pub struct PythonPackage {
    /// The source, as an archive.
    pub sdist: PathBuf,
    /// What is installed.
    pub wheel: PathBuf,
}

/// Builds the Python package. Nothing is downloaded for it: what builds it is there already.
pub async fn python(folder: &Folder) -> Result<PythonPackage> {
    let source = copy_of("python", folder)?;
    let made = folder.path().join("python-package");
    let builder = published::python("requirements-build.txt").await?.join("python");
    let mut build = Command::new(builder);
    build.args(["-m", "build", "--no-isolation", "--outdir"]).arg(&made).arg(&source);
    output(build.env("PIP_NO_INDEX", "1"), TIMEOUT).await?;
    Ok(PythonPackage { sdist: only(&made, ".tar.gz")?, wheel: only(&made, ".whl")? })
}

/// The TypeScript package.
pub struct TypescriptPackage {
    /// What is installed.
    pub archive: PathBuf,
    /// A directory that has the compiler, for projects that have none of their own.
    pub compiler: PathBuf,
}

/// Packs the TypeScript package, which takes a compiler half a minute: once for all tests, until its source changes.
pub async fn typescript() -> Result<TypescriptPackage> {
    let copy = Folder::new("typescript-source")?;
    let source = copy_of("typescript", &copy)?;
    let directory = cache::directory()?.join("typescript-package");
    let _lock = tokio::task::block_in_place(|| cache::lock(&directory.with_extension("lock")))?;
    let (stamp, wanted) = (directory.join("stamp"), digest(&source)?);
    let tree = directory.join("tree");
    let compiler = tree.join("sdk/typescript");
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&wanted) {
        drop(fs::remove_dir_all(&directory));
        copy_directory(copy.path(), &tree)?;
        npm(&compiler, &["ci"]).await?;
        let destination = directory.to_str().context("a path that is no text")?;
        npm(&compiler, &["pack", "--pack-destination", destination]).await?;
        fs::write(stamp, wanted)?;
    }
    Ok(TypescriptPackage { archive: only(&directory, ".tgz")?, compiler })
}

/// Makes an empty Python environment and installs packages into it; its interpreter.
pub async fn python_environment(folder: &Folder, name: &str, packages: &[&str]) -> Result<PathBuf> {
    let venv = folder.path().join(name);
    output(Command::new("python3").args(["-m", "venv"]).arg(&venv), TIMEOUT).await?;
    let python = venv.join("bin/python");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation"]);
    pip.arg("--constraint").arg(published::scripts().join("constraints-package.txt")).args(packages);
    output(&mut pip, TIMEOUT).await?;
    Ok(python)
}

/// Makes an empty npm project and installs our package into it, without asking any registry: it needs nothing else.
pub async fn npm_project(folder: &Folder, name: &str, package: &Path) -> Result<PathBuf> {
    let project = folder.path().join(name);
    fs::create_dir_all(&project)?;
    fs::write(project.join("package.json"), "{ \"private\": true }\n")?;
    npm(&project, &["install", "--offline", package.to_str().context("a path that is no text")?]).await?;
    Ok(project)
}

/// Installs our packages where the programs for the published ones find them: an interpreter, and an npm project that has the
/// programs.
pub async fn in_place_of_published(folder: &Folder) -> Result<(PathBuf, PathBuf)> {
    let wheel = python(folder).await?.wheel;
    let wheel = wheel.to_str().context("a path that is no text")?;
    // The programs themselves name an error of the library that the published package uses.
    let interpreter = python_environment(folder, "in-place", &[wheel, "requests"]).await?;
    let project = npm_project(folder, "in-place-npm", &typescript().await?.archive).await?;
    published::copy_scripts(&project)?;
    Ok((interpreter, project))
}

/// Runs npm in a directory.
pub async fn npm(directory: &Path, arguments: &[&str]) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(arguments).args(["--silent", "--no-audit", "--no-fund"]).current_dir(directory);
    output(&mut npm, TIMEOUT).await.map(drop)
}

/// Copies both packages and the licence as a clone of the tree has them: what git knows or would add, and nothing that tools left.
pub async fn clone_of_packages(to: &Path) -> Result<()> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut git = Command::new("git");
    // The tree may be another user's, as in a container.
    git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    git.args(["--", "LICENSE", "sdk"]).current_dir(&tree);
    let listed = output(&mut git, TIMEOUT).await?;
    let mut copied = 0;
    // What was removed and not committed yet is listed still.
    for name in listed.split('\0').filter(|name| !name.is_empty() && tree.join(name).exists()) {
        let copy = to.join(name);
        fs::create_dir_all(copy.parent().context("a file in no directory")?)?;
        fs::copy(tree.join(name), &copy).with_context(|| format!("copy {name}"))?;
        copied += 1;
    }
    ensure!(copied > 100, "only {copied} files were copied");
    Ok(())
}

/// Copies the source of a package, as it would be after a clone.
fn copy_of(name: &str, folder: &Folder) -> Result<PathBuf> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::copy(tree.join("LICENSE"), folder.path().join("LICENSE")).context("copy the licence")?;
    let copy = folder.path().join("sdk").join(name);
    copy_directory(&tree.join("sdk").join(name), &copy)?;
    Ok(copy)
}

/// Copies a directory without what tools leave in it.
pub fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        if LEFT_BY_TOOLS.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &copy)?;
        } else {
            fs::copy(entry.path(), &copy).with_context(|| format!("copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// A digest of all files in a directory, with their names.
fn digest(directory: &Path) -> Result<String> {
    fn add(directory: &Path, digest: &mut Sha256) -> Result<()> {
        let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<std::io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            digest.update(entry.file_name().as_encoded_bytes());
            if entry.file_type()?.is_dir() {
                add(&entry.path(), digest)?;
            } else {
                digest.update(Sha256::digest(fs::read(entry.path())?));
            }
        }
        Ok(())
    }
    let mut found = Sha256::new();
    add(directory, &mut found)?;
    Ok(found.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The one file in a directory that ends like that.
fn only(directory: &Path, ending: &str) -> Result<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    found.retain(|path| path.to_string_lossy().ends_with(ending));
    ensure!(found.len() == 1, "{} has {found:?}", directory.display());
    found.pop().context("nothing was made")
}
