//! The packages as their users get them: built, installed from what was built where nothing else is, and used.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tests::api::serve_process::ServeProcess;
use tests::api::{KEY, TEMPLATE};
use tests::packed::{self, Folder};
use tests::published::{self, output};
use tests::{Lab, LabSettings, run_for};
use tokio::process::Command;

/// How long a test may take: it installs, builds and makes a handful of sandboxes.
const TIMEOUT: Duration = Duration::from_secs(900);
/// How long one program may take.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(300);

/// Names of the published packages that ours leave out, by how they begin, and why.
const LEFT_OUT: [(&str, &str); 10] = [
    ("pandastack.cli:", "the command line is the program `pandastack`"),
    ("pandastack:Client.session", "an object of an HTTP library that ours does not use"),
    ("pandastack.client:Client.session", "the same"),
    (
        "pandastack.templates:DEFAULT_REGISTRY_",
        "the registry of one host; here servers build images themselves",
    ),
    ("pandastack.templates:registry_ref", "the same"),
    ("type FunctionInfo.gcs_path", "where things lie on a host, which no server of ours tells"),
    ("type SandboxInfo.host_tap", "the same"),
    ("type SandboxInfo.vsock_cid", "the same"),
    ("type SnapshotInfo.mem_path", "the same"),
    ("type SnapshotInfo.state_path", "the same"),
];

/// A program of `clients/packages`.
fn script(name: &str) -> std::path::PathBuf {
    published::scripts().join("packages").join(name)
}

/// Runs a test with a server that has the small template.
fn with_server(
    name: &'static str,
    test: impl AsyncFnOnce(&Folder, &ServeProcess) -> Result<()>,
) -> Result<()> {
    run_for(TIMEOUT, async || {
        let folder = Folder::new(name)?;
        let mut lab = Lab::prepare(LabSettings::new(name)).await?;
        let server = ServeProcess::start(&mut lab, &[]).await?;
        test(&folder, &server).await?;
        let left = server.client().get("/v1/sandboxes").await?;
        ensure!(left.json()? == serde_json::json!([]), "sandboxes are left: {}", left.text());
        server.stop().await?;
        lab.remove()
    })
}

/// Runs a program with nothing of this process's environment that could find a package in another place.
async fn run_program(program: impl AsRef<OsStr>, script: &Path, server: &ServeProcess) -> Result<()> {
    let mut command = Command::new(program);
    command.arg(script).arg(TEMPLATE);
    command.env("PANDASTACK_API", format!("http://{}", server.address())).env("PANDASTACK_API_KEY", KEY);
    for unset in ["PANDASTACK_API_URL", "PANDASTACK_TOKEN", "PYTHONPATH", "NODE_PATH"] {
        command.env_remove(unset);
    }
    eprint!("{}", output(&mut command, PROGRAM_TIMEOUT).await?);
    Ok(())
}

#[test]
fn the_python_package_works_where_it_is_installed() -> Result<()> {
    with_server("python-package", async |folder, server| {
        let made = packed::python(folder).await?;
        let wheel = made.wheel.to_str().context("a path that is no text")?;
        let python = packed::python_environment(folder, "from-wheel", &[wheel]).await?;
        run_program(python, &script("use.py"), server).await?;
        // From its source, as for systems that build everything themselves. What builds it has to be there.
        let builder = published::scripts().join("requirements-build.txt");
        let builder = format!("--requirement={}", builder.display());
        packed::python_environment(folder, "from-source", &[&builder]).await?;
        let sdist = made.sdist.to_str().context("a path that is no text")?;
        let python = packed::python_environment(folder, "from-source", &[sdist]).await?;
        run_program(python, &script("use.py"), server).await
    })
}

#[test]
fn the_typescript_package_works_where_it_is_installed() -> Result<()> {
    with_server("npm-package", async |folder, server| {
        let package = packed::typescript().await?;
        let project = packed::npm_project(folder, "project", &package.archive).await?;
        // The same program as a CommonJS and as an ES module: each finds types of its own.
        for (name, copy) in [
            ("use.mjs", "use.mjs"),
            ("use.cjs", "use.cjs"),
            ("consumer.ts", "a.cts"),
            ("consumer.ts", "b.mts"),
        ] {
            fs::copy(script(name), project.join(copy))?;
        }
        let installed = project.join("node_modules/@pandastack/sdk");
        ensure!(installed.join("LICENSE").exists() && !installed.join("test").exists());
        ensure!(fs::read_dir(project.join("node_modules/@pandastack"))?.count() == 1, "it brought something");
        for name in ["use.mjs", "use.cjs"] {
            run_program("node", &project.join(name), server).await?;
        }
        // Types, as Node.js itself and as bundlers find them.
        for (module, resolution) in [("nodenext", "nodenext"), ("esnext", "bundler")] {
            let mut tsc = Command::new("node");
            tsc.arg(package.compiler.join("node_modules/typescript/bin/tsc"));
            tsc.args(["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess"]);
            tsc.args(["--target", "es2022", "--lib", "es2022,esnext.disposable,dom"]);
            tsc.args(["--module", module, "--moduleResolution", resolution, "a.cts", "b.mts"]);
            output(tsc.current_dir(&project), PROGRAM_TIMEOUT).await?;
        }
        Ok(())
    })
}

/// Imports it both ways.
const USE_TYPESCRIPT: &str = r#"import("@pandastack/sdk").then((sdk) => {
    const client = new sdk.PandaStack({ apiKey: "k", baseUrl: "http://127.0.0.1:1" });
    console.log(client.baseUrl, typeof require("@pandastack/sdk").PandaStack);
})"#;
const USE_PYTHON: &str =
    r#"import pandastack; print(pandastack.PandaStack(api_key="k", base_url="http://127.0.0.1:1").base_url)"#;

#[test]
fn both_packages_install_from_a_clone_that_has_nothing_built() -> Result<()> {
    run_for(TIMEOUT, async || {
        let folder = Folder::new("clones")?;
        // As a link to the directory, which is what npm makes of one, and as a copy of what it packs.
        for (name, options) in [("linked", &[][..]), ("copied", &["--install-links"])] {
            let clone = folder.path().join(name).join("clone");
            packed::clone_of_packages(&clone).await?;
            let source = clone.join("sdk/typescript");
            ensure!(
                !source.join("node_modules").exists() && !source.join("dist").exists(),
                "it is not clean"
            );
            let project = folder.path().join(name).join("project");
            fs::create_dir_all(&project)?;
            fs::write(project.join("package.json"), "{ \"private\": true }\n")?;
            packed::npm(&project, &[&["install", "../clone/sdk/typescript"], options].concat()).await?;
            // Its own compiler, not one that happened to be above it.
            ensure!(source.join("node_modules/typescript").exists(), "its build tools were not installed");
            let said = run_here("node", &["-e", USE_TYPESCRIPT], &project).await?;
            ensure!(said.trim() == "http://127.0.0.1:1 function", "{name}: {said}");
        }
        let source = folder.path().join("linked/clone/sdk/python");
        let venv = folder.path().join("venv");
        run_here("python3", &["-m", "venv", "venv"], folder.path()).await?;
        let python = venv.join("bin/python");
        let source = source.to_str().context("a path that is no text")?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", source];
        run_here(&python, &pip, folder.path()).await?;
        let said = run_here(&python, &["-c", USE_PYTHON], folder.path()).await?;
        ensure!(said.trim() == "http://127.0.0.1:1", "{said}");
        Ok(())
    })
}

/// What a program says that runs in a directory, with nothing of this process's environment that leads to packages.
async fn run_here(program: impl AsRef<OsStr>, arguments: &[&str], directory: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    for unset in ["PYTHONPATH", "NODE_PATH", "NODE_ENV"] {
        command.env_remove(unset);
    }
    output(&mut command, PROGRAM_TIMEOUT).await
}

#[test]
fn every_name_of_the_published_packages_is_there() -> Result<()> {
    run_for(TIMEOUT, async || {
        let folder = Folder::new("public-names")?;
        let wheel = packed::python(&folder).await?.wheel;
        let wheel = wheel.to_str().context("a path that is no text")?;
        let ours = packed::python_environment(&folder, "ours", &[wheel]).await?;
        let theirs = published::python("requirements.txt").await?.join("python");
        let names = async |python: &Path| {
            let mut command = Command::new(python);
            command.arg("-B").arg(script("public_names.py")).env_remove("PYTHONPATH");
            output(&mut command, PROGRAM_TIMEOUT).await
        };
        check_names(&names(&theirs).await?, &names(&ours).await?)?;

        let package = packed::typescript().await?;
        let ours = packed::npm_project(&folder, "project", &package.archive).await?;
        let theirs = published::node().await?;
        let names = async |project: &Path| {
            let mut command = Command::new("node");
            command.arg(script("public_names.mjs")).arg(project).arg(&package.compiler);
            output(&mut command, PROGRAM_TIMEOUT).await
        };
        check_names(&names(&theirs).await?, &names(&ours).await?)
    })
}

/// Fails with what the published package has and ours does not.
fn check_names(published: &str, ours: &str) -> Result<()> {
    let ours: BTreeSet<&str> = ours.lines().collect();
    let has = |name: &str| {
        // A function that passes any parameter on has this one too.
        let any = name.split_once('(').map(|(function, _)| format!("{function}(**)"));
        ours.contains(name) || any.is_some_and(|any| ours.contains(any.as_str()))
    };
    let wanted: Vec<&str> = published.lines().filter(|name| !name.ends_with("(**)")).collect();
    ensure!(wanted.len() > 300, "the published package has only {} names", wanted.len());
    let lacking: Vec<&str> = wanted.iter().copied().filter(|name| !has(name)).collect();
    let unexpected: Vec<_> =
        lacking.iter().filter(|name| !LEFT_OUT.iter().any(|(begin, _)| name.starts_with(begin))).collect();
    ensure!(unexpected.is_empty(), "not there: {unexpected:#?}");
    eprintln!("{} names, {} of them left out on purpose", wanted.len(), lacking.len());
    Ok(())
}
