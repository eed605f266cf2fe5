//! What users download, made from the program under test, then installed as they would: from a file, from a URL, into a directory of
//! its own, and removed again.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tests::packed::{self, Folder};
use tests::published::output;
use tests::{program, run_for};
use tokio::process::Command;

/// How long the test may take: it builds and installs both SDKs.
const TIMEOUT: Duration = Duration::from_secs(900);
/// How long one program may take.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(600);
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts")
}

async fn run(program: impl AsRef<Path>, arguments: &[&str]) -> Result<String> {
    output(Command::new(program.as_ref()).args(arguments), PROGRAM_TIMEOUT).await
}

/// Runs what must fail; what it complained of.
async fn refused(program: &Path, arguments: &[&str]) -> Result<String> {
    let ran = Command::new(program).args(arguments).output().await.context("start it")?;
    ensure!(!ran.status.success(), "{arguments:?} was not refused");
    Ok(String::from_utf8_lossy(&ran.stderr).into_owned())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

/// Everything below a directory, sorted.
async fn files(directory: &Path) -> Result<String> {
    let mut find = Command::new("sh");
    find.args(["-c", "find . ! -type d | sort"]).current_dir(directory);
    output(&mut find, PROGRAM_TIMEOUT).await
}

/// Answers every request with one file, as a host of releases does; its address. Ends with the test's process.
fn serve_file(path: &Path) -> Result<String> {
    let contents = fs::read(path)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", contents.len());
            drop((&stream).write_all(head.as_bytes()).and_then(|()| (&stream).write_all(&contents)));
        }
    });
    Ok(format!("http://{address}"))
}

/// The digest that a release's list has of a file.
fn listed(out: &Path, name: &str) -> Result<String> {
    let sums = fs::read_to_string(out.join("SHA256SUMS"))?;
    let line = sums.lines().find(|line| line.ends_with(&format!("  {name}")));
    Ok(line.with_context(|| format!("{name} is not in {sums}"))?.chars().take(64).collect())
}

#[test]
fn a_release_is_made_installed_and_removed() -> Result<()> {
    run_for(TIMEOUT, async || {
        let folder = Folder::new("release")?;
        let out = folder.path().join("dist");
        let built = tokio::task::block_in_place(program::path)?;
        run(scripts().join("release"), &["--program", text(built)?, "--out", text(&out)?]).await?;
        let archive = format!("pandastack-{VERSION}-x86_64-linux.tar.gz");
        installed_from_a_file(&folder, &out, &archive).await.context("from a file")?;
        installed_from_a_url(&folder, &out, &archive).await.context("from a URL")?;
        package_is_sound(&folder, &out).await.context("the Debian package")?;
        python_package_imports(&folder, &out).await.context("the wheel")?;
        npm_package_imports(&folder, &out).await.context("the npm package")?;
        same_when_made_again(&folder, &out, built, &archive).await
    })
}

/// Into a directory of its own, twice, and removed; the script of the release knows its archive.
async fn installed_from_a_file(folder: &Folder, out: &Path, archive: &str) -> Result<()> {
    let prefix = folder.path().join("from file");
    let units = folder.path().join("units");
    let install = out.join("install");
    let beside = ["--no-packages", "--prefix", text(&prefix)?];
    for _ in 0..2 {
        run(&install, &beside).await?;
        let told = run(prefix.join("bin/pandastack"), &["--version"]).await?;
        ensure!(told.starts_with(&format!("pandastack {VERSION}")), "{told}");
    }
    let listed = files(&prefix).await?;
    for part in
        ["man/man1/pandastack-serve.1.gz", "completions/pandastack", "_pandastack", "doc/pandastack/LICENSE"]
    {
        ensure!(listed.contains(part), "{part} is not in\n{listed}");
    }
    // A release that has fewer files leaves none of the older one's.
    let stale = prefix.join("share/man/man1/pandastack-gone.1.gz");
    fs::write(&stale, "")?;
    let manifest = prefix.join("share/pandastack/installed-files");
    let names = fs::read_to_string(&manifest)? + "share/man/man1/pandastack-gone.1.gz\n";
    fs::write(&manifest, names)?;
    run(&install, &beside).await?;
    ensure!(!stale.exists(), "a file of the older release is left");

    let mut service = beside.to_vec();
    let units_text = text(&units)?.to_owned();
    service.extend(["--systemd", "--unit-dir", &units_text]);
    let has_unit = listed.contains("pandastack.service");
    if has_unit {
        run(&install, &service).await?;
        let unit = fs::read_to_string(units.join("pandastack.service"))?;
        ensure!(unit.contains(&format!("{}/bin/pandastack", prefix.display())), "{unit}");
    }
    let mine = prefix.join("bin/mine");
    fs::write(&mine, "not of the release")?;
    run(&install, &["--uninstall", "--prefix", text(&prefix)?, "--unit-dir", &units_text]).await?;
    ensure!(files(&prefix).await?.trim() == "./bin/mine", "left: {}", files(&prefix).await?);
    ensure!(!units.join("pandastack.service").exists(), "the service is left");
    run(&install, &["--uninstall", "--prefix", text(&prefix)?]).await?;

    // Changed on the way: neither the list beside it nor a given digest lets it pass, and nothing is installed.
    let changed = folder.path().join("changed");
    fs::create_dir(&changed)?;
    let mut contents = fs::read(out.join(archive))?;
    contents.push(0);
    fs::write(changed.join(archive), contents)?;
    fs::copy(out.join("SHA256SUMS"), changed.join("SHA256SUMS"))?;
    fs::copy(&install, changed.join("install"))?;
    let elsewhere = folder.path().join("elsewhere");
    let [from, to] = [changed.join(archive), elsewhere.clone()];
    for arguments in [
        vec![text(&from)?, "--no-packages", "--prefix", text(&to)?],
        vec!["--no-packages", "--prefix", text(&to)?],
    ] {
        let said = refused(&changed.join("install"), &arguments).await?;
        ensure!(said.contains("nothing was installed"), "{said}");
    }
    ensure!(!elsewhere.exists(), "something was installed");
    Ok(())
}

/// Only with the digest, and only when it is right.
async fn installed_from_a_url(folder: &Folder, out: &Path, archive: &str) -> Result<()> {
    let url = format!("{}/{archive}", serve_file(&out.join(archive))?);
    let prefix = folder.path().join("from-url");
    // The tree's script, which knows of no release.
    let install = scripts().join("install");
    let rest = ["--no-packages", "--prefix", text(&prefix)?];
    let said = refused(&install, &[&[url.as_str()], &rest[..]].concat()).await?;
    ensure!(said.contains("needs --sha256"), "{said}");
    let wrong = "0".repeat(64);
    let said = refused(&install, &[&[url.as_str(), "--sha256", &wrong], &rest[..]].concat()).await?;
    ensure!(said.contains("nothing was installed") && !prefix.exists(), "{said}");
    let digest = listed(out, archive)?.to_uppercase();
    run(&install, &[&[url.as_str(), "--sha256", &digest], &rest[..]].concat()).await?;
    run(prefix.join("bin/pandastack"), &["--version"]).await.map(drop)
}

/// What Debian asks of packages, as far as it can be seen without installing it.
async fn package_is_sound(folder: &Folder, out: &Path) -> Result<()> {
    let package = out.join(format!("pandastack_{VERSION}_amd64.deb"));
    let (root, control) = (folder.path().join("deb"), folder.path().join("deb-control"));
    for (option, to) in [("-x", &root), ("-e", &control)] {
        run("dpkg-deb", &[option, text(&package)?, text(to)?]).await?;
    }
    let told = run(root.join("usr/bin/pandastack"), &["--version"]).await?;
    ensure!(told.starts_with(&format!("pandastack {VERSION}")), "{told}");
    let fields = fs::read_to_string(control.join("control"))?;
    for part in ["Architecture: amd64", "libc6 (>= 2.", "qemu-system-x86 (>= 1:8.2)", "Maintainer: ", "\n ."]
    {
        ensure!(fields.contains(part), "{part} is not in\n{fields}");
    }
    let listed = files(&root).await?;
    for part in ["./usr/share/doc/pandastack/copyright", "./usr/share/doc/pandastack/changelog.gz"] {
        ensure!(listed.contains(part), "{part} is not in\n{listed}");
    }
    ensure!(!listed.contains("/usr/local/") && !listed.contains("./usr/lib/systemd"), "{listed}");
    let owners = run("dpkg-deb", &["-c", text(&package)?]).await?;
    ensure!(owners.lines().all(|line| line.contains(" root/root ")), "{owners}");
    // What is in /etc is the operator's from then on, and nothing else is.
    let settings: String =
        listed.lines().filter(|line| line.starts_with("./etc/")).fold(String::new(), |mut all, line| {
            all.push_str(&line[1..]);
            all.push('\n');
            all
        });
    ensure!(
        fs::read_to_string(control.join("conffiles"))? == settings,
        "other files are in /etc: {settings}"
    );
    for script in ["postinst", "prerm", "postrm"] {
        run("sh", &["-n", text(&control.join(script))?]).await?;
        let script = fs::read_to_string(control.join(script))?;
        let acts: Vec<&str> = script.lines().filter(|line| !line.starts_with('#')).collect();
        let starts = |line: &&str| line.contains("start") || line.contains("enable");
        ensure!(!acts.iter().any(starts), "it starts something: {script}");
    }
    let mut sums = Command::new("md5sum");
    sums.args(["--check", "--quiet"]).arg(control.join("md5sums")).current_dir(&root);
    output(&mut sums, PROGRAM_TIMEOUT).await.map(drop)
}

async fn python_package_imports(folder: &Folder, out: &Path) -> Result<()> {
    let wheel = out.join(format!("pandastack-{VERSION}-py3-none-any.whl"));
    let python = packed::python_environment(folder, "venv", &[text(&wheel)?]).await?;
    let mut import = Command::new(python);
    import.args(["-c", "import pandastack; print(pandastack.__version__, pandastack.PandaStack.__name__)"]);
    let told = output(import.env_remove("PYTHONPATH").current_dir(folder.path()), PROGRAM_TIMEOUT).await?;
    ensure!(told.trim() == format!("{VERSION} PandaStack"), "{told}");
    let source = run("tar", &["-tzf", text(&out.join(format!("pandastack-{VERSION}.tar.gz")))?]).await?;
    ensure!(source.contains(&format!("pandastack-{VERSION}/pyproject.toml")), "{source}");
    Ok(())
}

async fn npm_package_imports(folder: &Folder, out: &Path) -> Result<()> {
    let archive = out.join(format!("pandastack-sdk-{VERSION}.tgz"));
    let project = packed::npm_project(folder, "npm", &archive).await?;
    for program in
        ["import('@pandastack/sdk').then(check)", "Promise.resolve(require('@pandastack/sdk')).then(check)"]
    {
        let check =
            "function check({ PandaStack }) { if (typeof PandaStack !== 'function') process.exit(1) }";
        let mut node = Command::new("node");
        node.args(["-e", &format!("{check} {program}")]).env_remove("NODE_PATH").current_dir(&project);
        output(&mut node, PROGRAM_TIMEOUT).await?;
    }
    Ok(())
}

/// The same commit gives the same files.
async fn same_when_made_again(folder: &Folder, out: &Path, built: &Path, archive: &str) -> Result<()> {
    let again = folder.path().join("again");
    let arguments = ["--program", text(built)?, "--out", text(&again)?, "--without-sdks"];
    run(scripts().join("release"), &arguments).await?;
    for name in [archive, &format!("pandastack_{VERSION}_amd64.deb"), "install"] {
        if listed(out, name)? != listed(&again, name)? {
            bail!("{name} differs when it is made again");
        }
    }
    Ok(())
}
