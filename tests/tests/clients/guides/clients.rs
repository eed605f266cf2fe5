//! The clients that documents use, as they are in the tree: installed once for all documents.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tests::published::{self, output};
use tests::{cache, program};
use tokio::process::Command;
use tokio::sync::OnceCell;

const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);
/// What the TypeScript client is built from.
const TYPESCRIPT_SOURCES: [&str; 7] = [
    "src",
    "scripts",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "tsconfig.cjs.json",
    "README.md",
];
/// How documents are compiled: as strictly as the client is.
const TSCONFIG: &str = r#"{
  "compilerOptions": {
    "target": "ES2022", "lib": ["ES2022", "ESNext.Disposable", "DOM", "DOM.Iterable", "DOM.AsyncIterable"],
    "module": "NodeNext", "moduleResolution": "NodeNext", "types": ["node"], "strict": true, "skipLibCheck": false
  },
  "files": ["guide.mts"]
}
"#;

static CLIENTS: OnceCell<Clients> = OnceCell::const_new();

/// Where they are.
pub(crate) struct Clients {
    /// Programs of a Python environment.
    pub(crate) python: PathBuf,
    /// Source of the Python client.
    pub(crate) python_source: PathBuf,
    /// The TypeScript client, built.
    pub(crate) typescript: PathBuf,
    /// A directory with the command line in it.
    pub(crate) program: PathBuf,
}

/// The tree.
pub(crate) fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

impl Clients {
    /// Those of this process, installed by the first who asks.
    pub(crate) async fn get() -> Result<&'static Self> {
        CLIENTS.get_or_try_init(Self::install).await
    }

    async fn install() -> Result<Self> {
        let python = published::python("requirements-sdk.txt").await?;
        let program = tokio::task::block_in_place(program::path)?;
        let directory = cache::directory()?.join("guides");
        std::fs::create_dir_all(&directory)?;
        let _lock = tokio::task::block_in_place(|| cache::lock(&directory.join("lock")))?;
        let typescript = build_typescript(&directory.join("tree")).await.context("build the client")?;
        let bin = directory.join("bin");
        drop(std::fs::remove_dir_all(&bin));
        std::fs::create_dir(&bin)?;
        std::os::unix::fs::symlink(program.canonicalize()?, bin.join("pandastack"))?;
        let python_source = tree().join("sdk/python/src").canonicalize()?;
        Ok(Self { python, python_source, typescript, program: bin })
    }

    /// Where programs are looked for.
    pub(crate) fn path(&self) -> Result<String> {
        let inherited = std::env::var("PATH").context("there is no PATH")?;
        Ok(format!("{}:{}:{inherited}", self.program.display(), self.python.display()))
    }

    /// Makes a directory one in which programs import the TypeScript client by its name.
    pub(crate) fn furnish(&self, directory: &Path) -> Result<()> {
        let modules = directory.join("node_modules");
        std::fs::create_dir_all(modules.join("@pandastack"))?;
        std::os::unix::fs::symlink(&self.typescript, modules.join("@pandastack/sdk"))?;
        std::os::unix::fs::symlink(self.typescript.join("node_modules/@types"), modules.join("@types"))?;
        std::fs::write(directory.join("tsconfig.json"), TSCONFIG).context("write the compiler's settings")
    }
}

/// Builds the TypeScript client in a copy, because others work in the tree.
async fn build_typescript(copy: &Path) -> Result<PathBuf> {
    drop(std::fs::remove_dir_all(copy));
    let client = copy.join("sdk/typescript");
    std::fs::create_dir_all(&client)?;
    let source = tree().join("sdk/typescript");
    let mut cp = Command::new("cp");
    cp.arg("-r").args(TYPESCRIPT_SOURCES.map(|name| source.join(name))).arg(&client);
    output(&mut cp, INSTALL_TIMEOUT).await?;
    std::fs::copy(tree().join("LICENSE"), copy.join("LICENSE"))?;
    let mut npm = Command::new("npm");
    npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&client);
    output(&mut npm, INSTALL_TIMEOUT).await?;
    output(Command::new("npm").args(["run", "--silent", "build"]).current_dir(&client), INSTALL_TIMEOUT)
        .await?;
    Ok(client)
}
