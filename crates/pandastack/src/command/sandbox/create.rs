//! Making a sandbox.

use anyhow::Context;
use clap::{Args, ValueEnum};
use client::Api;
use contract::sandbox::{CreateSandbox, NetworkMode, VolumeRequest};

use super::volume_word::volume;
use crate::amount;
use crate::duration::whole_seconds;
use crate::output::{self, Format};
use crate::quoting::{map, pair, variables};

/// What a sandbox starts from and what it has.
#[derive(Debug, Clone, Args)]
pub(crate) struct Origin {
    /// The template.
    #[arg(long, short, default_value = "base", conflicts_with = "from_snapshot")]
    pub(crate) template: String,
    /// A snapshot to start from instead of a template.
    #[arg(long, value_name = "ID")]
    pub(crate) from_snapshot: Option<String>,
    /// A variable of every command: NAME=VALUE, or NAME for the one that is set here.
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// A volume to mount at a path; without a path it is only attached, as /dev/vdb and so on.
    #[arg(long, value_name = "NAME[:/PATH][:ro]", value_parser = volume)]
    pub(crate) volume: Vec<VolumeRequest>,
    /// What it reaches [default: as the operator decided].
    #[arg(long, value_enum)]
    pub(crate) network: Option<Network>,
    /// Virtual CPUs [default: those of the template].
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) cpu: Option<i64>,
    /// Memory, such as 2g or 2048 (MiB) [default: that of the template].
    #[arg(long, short, value_name = "SIZE", value_parser = amount::mib, allow_negative_numbers = true)]
    pub(crate) memory: Option<i64>,
    /// Size of its root disk, such as 10g or 10 (GiB) [default: that of what it starts from].
    #[arg(long, alias = "disk-gb", value_name = "SIZE", value_parser = amount::gib, allow_negative_numbers = true)]
    pub(crate) disk: Option<i64>,
    /// Metadata of your own on it.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Fail at once when there is no room, or when the template has to be prepared first.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// What a sandbox reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Network {
    /// Nothing.
    None,
    /// Whatever the operator lets guests reach.
    All,
}

impl Network {
    pub(super) const fn mode(self) -> NetworkMode {
        match self {
            Self::None => NetworkMode::None,
            Self::All => NetworkMode::All,
        }
    }
}

impl Origin {
    /// As the API takes it.
    pub(crate) fn request(self) -> anyhow::Result<CreateSandbox> {
        let env = variables(&self.env).context("collect the variables")?;
        Ok(CreateSandbox {
            template: self.from_snapshot.is_none().then_some(self.template),
            metadata: map(self.metadata),
            from_snapshot: self.from_snapshot,
            volumes: Some(self.volume).filter(|volumes| !volumes.is_empty()),
            env: Some(env).filter(|env| !env.is_empty()),
            network: self.network.map(Network::mode),
            disk_gb: self.disk,
            cpu: self.cpu,
            memory_mb: self.memory,
            ..CreateSandbox::default()
        })
    }
}

/// Options of `create`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A name, which stands wherever an id does: lowercase letters, digits and `-`, at most 40.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    origin: Origin,
    /// Time without use after which it goes, such as 10m or 1h30m [default: as the operator decided].
    #[arg(long, value_name = "TIME", value_parser = whole_seconds, allow_negative_numbers = true)]
    ttl: Option<i64>,
    /// Have it sleep when it idles instead of being deleted.
    #[arg(long)]
    persistent: bool,
}

pub(super) async fn run(api: &Api, arguments: Arguments, format: Format) -> anyhow::Result<()> {
    if arguments.origin.no_wait {
        api.stop_waiting();
    }
    let request = CreateSandbox {
        name: arguments.name,
        ttl_seconds: arguments.ttl,
        persistent: arguments.persistent.then_some(true),
        ..arguments.origin.request()?
    };
    let sandbox = api.create_sandbox(&request).await?;
    output::warn(&sandbox.warnings);
    Ok(output::result(format, &sandbox, || sandbox.id.clone())?)
}
