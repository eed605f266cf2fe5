//! Making a sandbox.

use anyhow::Context;
use clap::{Args, ValueEnum};
use client::Api;
use contract::sandbox::{CreateSandbox, NetworkMode, VolumeRequest};

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
    /// A volume to attach as /dev/vdb and so on: NAME or NAME:ro.
    #[arg(long, value_name = "NAME[:ro]")]
    pub(crate) volume: Vec<String>,
    /// What it reaches [default: as the operator decided].
    #[arg(long, value_enum)]
    pub(crate) network: Option<Network>,
    /// Size of its root disk in GiB [default: that of what it starts from].
    #[arg(long)]
    pub(crate) disk_gb: Option<i64>,
    /// Words of your own on it.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) metadata: Vec<(String, String)>,
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
        let volume = |text: &String| match text.rsplit_once(':') {
            Some((name, "ro")) => {
                Ok(VolumeRequest { name: name.to_owned(), read_only: Some(true), mount: None })
            }
            Some((_, other)) => Err(anyhow::anyhow!("a volume is NAME or NAME:ro, not {text} (`{other}`)")),
            None => Ok(VolumeRequest { name: text.clone(), read_only: None, mount: None }),
        };
        let volumes: Vec<_> = self.volume.iter().map(volume).collect::<Result<_, _>>()?;
        let env = variables(&self.env).context("collect the variables")?;
        Ok(CreateSandbox {
            template: self.from_snapshot.is_none().then_some(self.template),
            metadata: map(self.metadata),
            from_snapshot: self.from_snapshot,
            volumes: Some(volumes).filter(|volumes| !volumes.is_empty()),
            env: Some(env).filter(|env| !env.is_empty()),
            network: self.network.map(Network::mode),
            disk_gb: self.disk_gb,
            ..CreateSandbox::default()
        })
    }
}

/// Options of `create`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    origin: Origin,
    /// Seconds without use after which it goes [default: as the operator decided].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    ttl: Option<i64>,
    /// Have it sleep when it idles instead of being deleted.
    #[arg(long)]
    persistent: bool,
}

pub(super) async fn run(api: &Api, arguments: Arguments, format: Format) -> anyhow::Result<()> {
    let request = CreateSandbox {
        ttl_seconds: arguments.ttl,
        persistent: arguments.persistent.then_some(true),
        ..arguments.origin.request()?
    };
    let sandbox = api.create_sandbox(&request).await?;
    Ok(output::result(format, &sandbox, || sandbox.id.clone())?)
}
