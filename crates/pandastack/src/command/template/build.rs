//! Building a template on a server: what it is made from goes there, what the build says comes back live.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use client::{Api, BuildForm, BuildSource, Bytes, ClientError, build_is_over};
use contract::template::TemplateBuild;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::context_archive::{file_pieces, ignored, pieces};
use crate::duration::since;
use crate::output::{self, Format, say};
use crate::progress::Progress;
use crate::quoting::variables;
use crate::signals::{Signals, Told};
use crate::table::{size, table};

/// How often a log that broke off is taken up again, and after how long.
const TRIES_MAX: u32 = 60;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Options of `build`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The template's name.
    #[arg(long, short)]
    name: String,
    /// The Dockerfile [default: Dockerfile in the context].
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with_all = ["image", "rootfs", "archive"])]
    dockerfile: Option<PathBuf>,
    /// A value for an ARG of the Dockerfile: NAME=VALUE, or NAME for the variable that is set here.
    #[arg(long, value_name = "NAME[=VALUE]")]
    build_arg: Vec<String>,
    /// The stage to build [default: the last].
    #[arg(long)]
    target: Option<String>,
    /// A container image that the server pulls, instead of a Dockerfile.
    #[arg(long, value_name = "REFERENCE", conflicts_with_all = ["rootfs", "archive", "context_dir"])]
    image: Option<String>,
    /// A root file system as a tar archive, instead of a Dockerfile.
    #[arg(long, value_name = "TAR", conflicts_with_all = ["archive", "context_dir"])]
    rootfs: Option<PathBuf>,
    /// A container image as an archive, as `docker save` writes it, instead of a Dockerfile.
    #[arg(long, value_name = "TAR", conflicts_with = "context_dir")]
    archive: Option<PathBuf>,
    /// Virtual CPUs of its machines [default: as the server decides].
    #[arg(long)]
    cpu: Option<u32>,
    /// Memory of its machines in MiB [default: as the server decides].
    #[arg(long)]
    memory_mb: Option<u32>,
    /// Size of its disk in MiB [default: as the server decides].
    #[arg(long)]
    size_mb: Option<u32>,
    /// Take the place of a template of this name.
    #[arg(long)]
    replace: bool,
    /// Do not wait for the build; its id is written to standard output.
    #[arg(long)]
    detach: bool,
    /// The directory that the Dockerfile copies from.
    #[arg(value_name = "CONTEXT", required_unless_present_any = ["image", "rootfs", "archive"])]
    context_dir: Option<PathBuf>,
}

pub(super) async fn run(api: &Api, arguments: Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::watch()?;
    let progress = Arc::new(Progress::start(format!("sending what {} is made from", arguments.name), 0));
    let form = form(&arguments, &progress)?;
    let sent = tokio::select! {
        sent = api.build_template(form) => sent,
        told = signals.next() => {
            progress.clear();
            return Ok(ExitCode::from(told.exit_code()));
        }
    };
    progress.clear();
    let build = sent?;
    say(format!("build {} of template {}: {} sent", build.id, build.name, size(progress.done())));
    if arguments.detach {
        output::result(format, &build, || build.id.clone())?;
        return Ok(ExitCode::SUCCESS);
    }
    tokio::select! {
        followed = follow(api, &build.id) => ended(api, &build.id, &followed?, format).await,
        told = signals.next() => cancel(api, &build.id, told).await,
    }
}

async fn cancel(api: &Api, id: &str, told: Told) -> anyhow::Result<ExitCode> {
    api.cancel_build(id).await.with_context(|| format!("cancel build {id}"))?;
    say(format!("build {id} is cancelled"));
    Ok(ExitCode::from(told.exit_code()))
}

/// What is sent.
fn form(arguments: &Arguments, progress: &Arc<Progress>) -> anyhow::Result<BuildForm> {
    let counted = |stream: BoxStream<'static, std::io::Result<Bytes>>| {
        let progress = progress.clone();
        stream
            .inspect(move |piece| progress.add(piece.as_ref().map_or(0, |piece| piece.len() as u64)))
            .boxed()
    };
    let file = |path: &PathBuf| {
        let (bytes, pieces) = file_pieces(path)?;
        progress.expect(bytes);
        anyhow::Ok(counted(pieces))
    };
    let source = if let Some(image) = &arguments.image {
        BuildSource::Image(image.clone())
    } else if let Some(path) = &arguments.rootfs {
        BuildSource::Rootfs(file(path)?)
    } else if let Some(path) = &arguments.archive {
        BuildSource::Archive(file(path)?)
    } else if let Some(context) = &arguments.context_dir {
        if !context.is_dir() {
            bail!("{} is not a directory to build from", context.display());
        }
        let path = arguments.dockerfile.clone().unwrap_or_else(|| context.join("Dockerfile"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let ignored = ignored(context, &path)?;
        BuildSource::Dockerfile {
            text,
            context: counted(pieces(context.clone(), ignored)),
            build_args: variables(&arguments.build_arg)?,
            target: arguments.target.clone(),
        }
    } else {
        bail!("there is nothing to build from");
    };
    Ok(BuildForm {
        name: arguments.name.clone(),
        replace: arguments.replace,
        cpu: arguments.cpu,
        memory_mb: arguments.memory_mb,
        size_mb: arguments.size_mb,
        source,
    })
}

/// Shows what a build says until it is over, and gives the last of it. A log that breaks off, because the server restarts, is taken up again.
async fn follow(api: &Api, id: &str) -> anyhow::Result<String> {
    let (mut shown, mut tries) = (Shown::default(), 0);
    loop {
        let error = match show(api, id, &mut shown).await {
            Ok(()) => return Ok(shown.last),
            Err(error @ ClientError::Refused(_))
                if error.refusal().is_some_and(|refusal| refusal.status < 500) =>
            {
                return Err(error.into());
            }
            Err(error) => error,
        };
        tries += 1;
        if tries > TRIES_MAX {
            return Err(error).context("follow the build");
        }
        tokio::time::sleep(TRY_AGAIN_AFTER).await;
    }
}

/// How far a log was shown.
#[derive(Default)]
struct Shown {
    lines: u64,
    last: String,
}

/// Shows a log from the line on that was not shown yet.
async fn show(api: &Api, id: &str, shown: &mut Shown) -> Result<(), ClientError> {
    let mut log = api.follow_build(id).await?;
    let mut line_number = 0;
    while let Some(line) = log.next().await? {
        line_number += 1;
        if line_number > shown.lines {
            say(&line);
            *shown = Shown { lines: line_number, last: line };
        }
    }
    if build_is_over(&api.build(id).await?) {
        return Ok(());
    }
    // It ended without the build: a server that goes down.
    Err(ClientError::Silent { server: api.server().to_string() })
}

async fn ended(api: &Api, id: &str, last: &str, format: Format) -> anyhow::Result<ExitCode> {
    let build = api.build(id).await?;
    if build.status != "done" {
        let reason = build.error.unwrap_or_else(|| "it does not say why".to_owned());
        // The log ends with the reason, as a rule: it was just read.
        if last.contains(&reason) && format == Format::Table {
            bail!("build {id} of template {} failed", build.name);
        }
        bail!("build {id} of template {} failed: {reason}", build.name);
    }
    output::result(format, &build, || build.name.clone())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn logs(api: &Api, id: &str, no_follow: bool) -> anyhow::Result<ExitCode> {
    let mut log = if no_follow { api.build_log(id).await? } else { api.follow_build(id).await? };
    while let Some(line) = log.next().await? {
        output::result(Format::Table, &(), || format!("{line}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn list(api: &Api, quiet: bool, format: Format) -> anyhow::Result<()> {
    let builds = api.builds().await?;
    if quiet {
        return Ok(output::names(format, &builds, |one| one.id.clone())?);
    }
    Ok(output::result(format, &builds, || {
        let row = |one: &TemplateBuild| {
            let (id, name, status) = (one.id.clone(), one.name.clone(), one.status.clone());
            [id, name, status, since(&one.started_at), one.error.clone().unwrap_or_default()]
        };
        let rows: Vec<_> = builds.iter().map(row).collect();
        table(["ID", "TEMPLATE", "STATUS", "AGE", "ERROR"], &rows)
    })?)
}
