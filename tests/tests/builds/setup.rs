//! `pandastack setup` against a server of releases on loopback: good ones, broken ones and archives that mean harm.

mod archive;
mod releases;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use archive::Archive;
use releases::{Answer, Releases};
use serde_json::Value;
use tests::packed::Folder;
use tests::tls_front::TlsFront;
use tests::{program, run, wait};
use tokio::process::Command;

/// How long one run of the program may take; the first probes the host.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How a run of the program went.
#[derive(Debug)]
struct Went {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Went {
    fn json(&self) -> Result<Value> {
        ensure!(self.code == Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).with_context(|| format!("{self:?}"))
    }

    /// It failed, and said so in these words.
    fn refused(&self, words: &str) -> Result<()> {
        ensure!(self.code == Some(1) && self.stdout.is_empty(), "{self:?}");
        ensure!(self.stderr.contains(words), "`{words}` is not in {self:?}");
        Ok(())
    }
}

/// A data directory of its own, and the program run on it.
struct Host {
    folder: Folder,
    authority: Option<PathBuf>,
}

impl Host {
    fn new(name: &str) -> Result<Self> {
        Ok(Self { folder: Folder::new(&format!("setup-{name}"))?, authority: None })
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("data/bin")
    }

    fn program(&self) -> PathBuf {
        self.directory().join("firecracker")
    }

    /// What is where programs are installed.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory()).into_iter().flatten().filter_map(Result::ok);
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(program::path()?);
        command.args(arguments).args(["--output", "json", "--data-dir"]).arg(self.folder.path().join("data"));
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").kill_on_drop(true);
        if let Some(authority) = &self.authority {
            command.env("SSL_CERT_FILE", authority);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    async fn run(&self, arguments: &[&str]) -> Result<Went> {
        let done = tokio::time::timeout(TIMEOUT, self.command(arguments)?.output()).await;
        let done = done.context("it did not end")??;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Went { code: done.status.code(), stdout: text(&done.stdout), stderr: text(&done.stderr) })
    }

    /// Sets up with an archive that has to have this digest.
    async fn setup(&self, from: &str, digest: &str) -> Result<Went> {
        self.run(&["setup", "--force", "--from", from, "--sha256", digest]).await
    }
}

const INSTALLED: [&str; 2] = [".firecracker.release.json", "firecracker"];

fn is_installed(host: &Host) -> Result<()> {
    ensure!(host.names() == INSTALLED, "{:?}", host.names());
    ensure!(std::fs::read(host.program())? == archive::PROGRAM.as_bytes());
    let mode = std::fs::metadata(host.program())?.permissions().mode() & 0o7777;
    ensure!(mode == 0o755, "{mode:o}");
    Ok(())
}

#[test]
fn it_is_installed_once_and_found() -> Result<()> {
    run(async || {
        let (host, archive) = (Host::new("once")?, Archive::good()?);
        // As release hosts do: elsewhere, and with something in the query.
        let elsewhere =
            Releases::start([("/store/1?signed=yes", Answer::Whole(archive.bytes.clone()))]).await?;
        let target = elsewhere.at("/store/1?signed=yes");
        let releases = Releases::start([
            (archive::PATH, Answer::Redirect("/moved".to_owned())),
            ("/moved", Answer::Redirect(target)),
        ])
        .await?;
        let first = host.setup(&releases.url(), &archive.digest).await?;
        ensure!(!first.stderr.contains("signed"), "{first:?}");
        let first = first.json()?;
        ensure!(first["state"] == "installed" && first["version"] == "1.15.1", "{first}");
        ensure!(first["archive_sha256"] == archive.digest.as_str(), "{first}");
        ensure!(first["program"] == host.program().to_str().context("a name")?, "{first}");
        is_installed(&host)?;
        ensure!((releases.asked(), elsewhere.asked()) == (2, 1));

        let again = host.setup(&releases.url(), &archive.digest).await?.json()?;
        ensure!(again["state"] == "already_installed", "{again}");
        ensure!(again["program_sha256"] == first["program_sha256"], "{again}");
        ensure!((releases.asked(), elsewhere.asked()) == (2, 1), "it was downloaded again");

        // Others find it where it is.
        let doctor = host.run(&["doctor"]).await?;
        let report: Value = serde_json::from_str(&doctor.stdout).with_context(|| format!("{doctor:?}"))?;
        let reason = report["firecracker"]["reason"].as_str().unwrap_or_default().to_owned();
        ensure!(reason.contains("Firecracker 1.15.1 is there"), "{reason}");

        // One that is no longer what was installed is replaced, and so is one of another archive.
        std::fs::write(host.program(), "#!/bin/sh\necho Firecracker v1.15.1 of somebody else\n")?;
        let mended = host.setup(&releases.url(), &archive.digest).await?.json()?;
        ensure!(mended["state"] == "installed", "{mended}");
        is_installed(&host)?;
        let other = Archive::good_with("another README")?;
        let file = host.folder.path().join("other.tgz");
        std::fs::write(&file, &other.bytes)?;
        let file = file.to_str().context("a name")?;
        let offline = ["setup", "--force", "--file", file, "--sha256", &other.digest];
        ensure!(host.run(&offline).await?.json()?["state"] == "installed");
        is_installed(&host)
    })
}

#[test]
fn it_goes_where_it_is_told() -> Result<()> {
    run(async || {
        let (host, archive) = (Host::new("elsewhere")?, Archive::good()?);
        let file = host.folder.path().join("release.tgz");
        std::fs::write(&file, &archive.bytes)?;
        let to = host.folder.path().join("made/for/it/fc");
        let (file, told) = (file.to_str().context("a name")?, to.to_str().context("a name")?);
        let arguments = ["setup", "--force", "--file", file, "--sha256", &archive.digest, "--to", told];
        let went = host.run(&arguments).await?;
        ensure!(went.json()?["program"] == told && went.stderr.contains("--firecracker"), "{went:?}");
        ensure!(std::fs::read(&to)? == archive::PROGRAM.as_bytes() && host.names().is_empty());
        ensure!(host.run(&arguments).await?.json()?["state"] == "already_installed");
        let folder = host.folder.path().to_str().context("a name")?;
        host.run(&["setup", "--force", "--file", file, "--to", folder]).await?.refused("is a directory")
    })
}

#[test]
fn only_the_release_is_taken() -> Result<()> {
    run(async || {
        let (host, archive) = (Host::new("digest")?, Archive::good()?);
        let releases = Releases::start([(archive::PATH, Answer::Whole(archive.bytes.clone()))]).await?;
        // The digest of the published archive is in the program; this one is ours.
        let went = host.run(&["setup", "--force", "--from", &releases.url()]).await?;
        went.refused("is not the release")?;
        ensure!(went.stderr.contains(&archive.digest), "{went:?}");
        ensure!(releases.asked() == 1, "a wrong archive is not asked for again");
        host.setup(&releases.url(), &"0".repeat(64)).await?.refused("must be 0000")?;
        ensure!(host.names().is_empty(), "{:?}", host.names());
        let usage = host.run(&["setup", "--sha256", "12"]).await?;
        ensure!(usage.code == Some(2) && usage.stderr.contains("64 hexadecimal digits"), "{usage:?}");
        Ok(())
    })
}

#[test]
fn archives_that_mean_harm_are_refused() -> Result<()> {
    run(async || {
        let host = Host::new("harm")?;
        let file = host.folder.path().join("release.tgz");
        let path = file.to_str().context("a name")?;
        for (archive, words) in archive::harmful()? {
            std::fs::write(&file, &archive.bytes)?;
            let went = host.run(&["setup", "--force", "--file", path, "--sha256", &archive.digest]).await?;
            went.refused(words)?;
            ensure!(host.names().is_empty(), "{words}: {:?}", host.names());
        }
        let missing = host.run(&["setup", "--force", "--file", "/nonexistent.tgz"]).await?;
        missing.refused("open /nonexistent.tgz")
    })
}

#[test]
fn servers_that_fail_are_asked_again_and_then_given_up() -> Result<()> {
    run(async || {
        let (host, archive) = (Host::new("failing")?, Archive::good()?);
        let half = archive.bytes[..archive.bytes.len() / 2].to_vec();
        for (answer, words, asked) in [
            (Answer::Status(404), "answered 404", 1),
            (Answer::Status(503), "answered 503", 3),
            (Answer::Cut(half.clone()), "could not fetch from", 3),
            (Answer::Stall(half.clone()), "was silent for 1 s", 3),
            (Answer::Redirect(archive::PATH.to_owned()), "too many redirects", 6),
            (Answer::Redirect("ftp://127.0.0.1/x".to_owned()), "its address is none", 1),
            (Answer::Claim(200 << 20), "at most 128 MiB", 1),
        ] {
            // A second is enough of silence, and too little for a busy host that has something to say.
            let patience = if matches!(answer, Answer::Stall(_)) { "1" } else { "60" };
            let releases = Releases::start([(archive::PATH, answer)]).await?;
            let (url, digest) = (releases.url(), archive.digest.as_str());
            let arguments = ["setup", "--force", "--timeout", patience, "--from", &url, "--sha256", digest];
            host.run(&arguments).await?.refused(words)?;
            ensure!(releases.asked() == asked, "{words}: asked {} times", releases.asked());
            ensure!(host.names().is_empty(), "{words}: {:?}", host.names());
        }
        host.setup("ftp://127.0.0.1", &archive.digest).await?.refused("is not an address of a file")?;

        let twice = [Answer::Cut(half), Answer::Whole(archive.bytes.clone())];
        let releases = Releases::start_in_turn(archive::PATH, twice).await?;
        let went = host.setup(&releases.url(), &archive.digest).await?;
        ensure!(went.json()?["state"] == "installed" && went.stderr.contains("trying again"), "{went:?}");
        is_installed(&host)
    })
}

#[test]
fn one_that_is_killed_leaves_what_the_next_removes() -> Result<()> {
    run(async || {
        let (host, archive) = (Host::new("killed")?, Archive::good()?);
        let part = archive.bytes[..archive.bytes.len() / 2].to_vec();
        let stalled = Releases::start([(archive::PATH, Answer::Stall(part))]).await?;
        let (url, digest) = (stalled.url(), archive.digest.as_str());
        let arguments = ["setup", "--force", "--timeout", "3600", "--from", &url, "--sha256", digest];
        let mut child = host.command(&arguments)?.spawn()?;
        let temporary = host.directory().join(".firecracker.download");
        let begun = || std::fs::metadata(&temporary).is_ok_and(|found| found.len() > 0);
        wait::until("the download has begun", TIMEOUT, begun).await?;

        // It has the place to itself meanwhile.
        let releases = Releases::start([(archive::PATH, Answer::Whole(archive.bytes.clone()))]).await?;
        host.setup(&releases.url(), digest).await?.refused("another setup may be under way")?;
        child.start_kill()?;
        let ended = child.wait().await?;
        ensure!(ended.code().is_none(), "{ended}");
        ensure!(host.names() == [".firecracker.download"], "{:?}", host.names());

        ensure!(host.setup(&releases.url(), digest).await?.json()?["state"] == "installed");
        is_installed(&host)
    })
}

#[test]
fn it_is_not_downloaded_where_kvm_runs_nothing() -> Result<()> {
    run(async || {
        let (host, archive) = (Host::new("needed")?, Archive::good()?);
        let releases = Releases::start([(archive::PATH, Answer::Whole(archive.bytes.clone()))]).await?;
        let went = host.run(&["setup", "--from", &releases.url(), "--sha256", &archive.digest]).await?;
        let doctor = host.run(&["doctor"]).await?;
        let report: Value = serde_json::from_str(&doctor.stdout).with_context(|| format!("{doctor:?}"))?;
        let Some(runs) = report["virtualization"]["runs_guests"].as_bool() else { bail!("{report}") };
        let answer = went.json()?;
        if runs {
            ensure!(answer["state"] == "installed", "{answer}");
            return is_installed(&host);
        }
        ensure!(answer["state"] == "not_needed" && answer["program_sha256"].is_null(), "{answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        ensure!(message.contains("QEMU will emulate") && message.contains("--force"), "{message}");
        ensure!(releases.asked() == 0 && host.names().is_empty());
        Ok(())
    })
}

#[test]
fn over_tls_it_stays_there() -> Result<()> {
    run(async || {
        let (mut host, archive) = (Host::new("tls")?, Archive::good()?);
        let whole = Answer::Whole(archive.bytes.clone());
        let plain = Releases::start([("/plain", whole.clone())]).await?;
        let below = |place: &str| format!("{place}{}", archive::PATH);
        let (good, bad) = (below("/good"), below("/bad"));
        let routes = [(good.as_str(), whole), (bad.as_str(), Answer::Redirect(plain.at("/plain")))];
        let releases = Releases::start(routes).await?;
        let front = TlsFront::start("setup-tls", releases.address())?;
        let strange = host.setup(&format!("{}/good", front.url()), &archive.digest).await?;
        strange.refused("invalid peer certificate")?;
        host.authority = Some(front.authority());
        let led = host.setup(&format!("{}/bad", front.url()), &archive.digest).await?;
        led.refused("it is not encrypted")?;
        ensure!(plain.asked() == 0 && host.names().is_empty());
        let went = host.setup(&format!("{}/good", front.url()), &archive.digest).await?;
        ensure!(went.json()?["state"] == "installed", "{went:?}");
        is_installed(&host)
    })
}
