//! `pandastack setup`: puts the Firecracker release that this program was tested with on this host.
//!
//! ```text
//! there already? ─► KVM works? ─► archive (downloaded, or a file) ─► its digest ─► the one program in it ─► its version ─► renamed
//! ```
//!
//! Nothing of an archive is looked at before its digest is right, and nothing takes the place of a program before it was run.

mod archive;
mod place;
mod unpack;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use image::Digest;
use machine::firecracker::{RELEASES, Release, usable_version};
use serde::Serialize;

use self::archive::Source;
use self::place::{Note, Place};
use crate::config::Settings;
use crate::engine;
use crate::output::{self, Format, say};

/// Options of `setup`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where releases are: a mirror with the same directories and names [default: where the Firecracker project publishes them].
    #[arg(long, value_name = "URL", env = "PANDASTACK_FIRECRACKER_RELEASES")]
    from: Option<String>,
    /// Archive of the release to take instead of downloading it.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// SHA-256 that the archive must have [default: the one that this program knows of the published archive].
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    sha256: Option<String>,
    /// Where the program goes [default: bin/firecracker in the data directory, where it is found by itself].
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Install it although guests do not run under KVM here.
    #[arg(long)]
    force: bool,
    /// Seconds a server may be silent before it is asked again, three times at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Installed,
    AlreadyInstalled,
    NotNeeded,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    state: State,
    /// Where the program is, or would be.
    program: PathBuf,
    version: String,
    archive_sha256: String,
    /// Nothing where it was not installed.
    program_sha256: Option<String>,
    /// For people.
    message: String,
}

fn sha256(text: &str) -> Result<String, &'static str> {
    let right = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if right { Ok(text.to_ascii_lowercase()) } else { Err("a SHA-256 is 64 hexadecimal digits") }
}

pub(crate) async fn run(
    settings: &Settings,
    arguments: &Arguments,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let release = Release::of_this_host()
        .with_context(|| format!("there is no Firecracker for {}", std::env::consts::ARCH))?;
    let digest = arguments.sha256.as_deref().unwrap_or(release.digest);
    let place = Place::new(&match &arguments.to {
        Some(to) => std::path::absolute(to).context("find where the program goes")?,
        None => engine::firecracker_installed(settings),
    })?;
    let answer = |state, note: Option<Note>, message: String| Answer {
        state,
        program: place.program().to_owned(),
        version: release.version.to_string(),
        archive_sha256: digest.to_owned(),
        program_sha256: note.map(|note| note.program_sha256),
        message,
    };
    let shown = place.program().display();
    let found = tokio::task::block_in_place(|| place.found(digest));
    let answer = if let Some(note) = found {
        answer(
            State::AlreadyInstalled,
            Some(note),
            format!("{shown} is Firecracker {} already", release.version),
        )
    } else if let Some(reason) = tokio::task::block_in_place(|| not_needed(settings, arguments)) {
        let message = format!(
            "nothing was installed: guests do not run under KVM here, so QEMU will emulate them. {reason}\n\
             --force installs Firecracker all the same"
        );
        answer(State::NotNeeded, None, message)
    } else {
        let source = match &arguments.file {
            Some(file) => Source::File(file.clone()),
            None => {
                let from = arguments.from.as_deref().unwrap_or(RELEASES).trim_end_matches('/');
                Source::Address(format!("{from}/{}", release.archive()))
            }
        };
        let note = install(&place, &release, digest, &source, Duration::from_secs(arguments.timeout)).await?;
        answer(State::Installed, Some(note), format!("{shown} is Firecracker {} now", release.version))
    };
    if answer.state != State::NotNeeded {
        warn_of_another(settings, &place);
    }
    output::result(format, &answer, || answer.message.clone())?;
    Ok(ExitCode::SUCCESS)
}

/// Why this host has no use for it. A host without QEMU cannot be probed; then it is not withheld.
fn not_needed(settings: &Settings, arguments: &Arguments) -> Option<String> {
    if arguments.force {
        return None;
    }
    match engine::find_out(settings) {
        Ok((finding, _)) => (!finding.runs_guests).then_some(finding.reason),
        Err(error) => {
            say(format!("whether KVM works could not be tried: {error:#}"));
            None
        }
    }
}

async fn install(
    place: &Place,
    release: &Release,
    digest: &str,
    source: &Source,
    patience: Duration,
) -> anyhow::Result<Note> {
    let held = place.enter()?;
    let mut archive = archive::obtain(source, &held, release, patience).await?;
    tokio::task::block_in_place(|| {
        archive::verify(&mut archive, digest, source)?;
        let fresh = held.temporary(place::PROGRAM)?;
        unpack::program(&archive, &release.program(), &fresh)
            .with_context(|| format!("take {} out of the archive", release.program()))?;
        let path = held.make_program(fresh)?;
        let version = usable_version(&path).context("run the program of the archive")?;
        if version != release.version {
            bail!("the archive holds Firecracker {version}, not {}", release.version);
        }
        let program = Digest::of_file(&path).context("read the program of the archive")?;
        let note = Note {
            version: version.to_string(),
            archive_sha256: digest.to_owned(),
            program_sha256: program.to_string(),
        };
        held.put(&note)?;
        let installed = place.found(digest);
        ensure!(installed.as_ref() == Some(&note), "{} is not what was put there", place.program().display());
        Ok(note)
    })
}

/// A program that was named, or that is on the search path, goes before the one that was installed.
fn warn_of_another(settings: &Settings, place: &Place) {
    match engine::programs(settings).firecracker() {
        Some(used) if used == place.program() => {}
        Some(used) => say(format!("note: {} goes before it and will be used", used.display())),
        None => say(format!(
            "note: it is used when it is named: --firecracker {} or FIRECRACKER_BIN",
            place.program().display()
        )),
    }
}
