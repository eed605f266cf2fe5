//! What sandboxes are told to do, and how long they may idle.

use std::collections::BTreeMap;

use clap::Args;
use client::Api;
use contract::lifecycle::PatchLifecycle;
use contract::sandbox::PatchSandbox;

use super::create::Network;
use crate::duration::whole_seconds;
use crate::each::each;
use crate::output::{self, Format};
use crate::quoting::{pair, variables};

/// Sandboxes to do something with.
#[derive(Debug, Args)]
pub(crate) struct Ids {
    /// The sandboxes.
    #[arg(required = true)]
    ids: Vec<String>,
}

const SANDBOXES: &str = "sandboxes";

pub(super) async fn pause(api: &Api, ids: &Ids) -> anyhow::Result<()> {
    each(SANDBOXES, &ids.ids, async |id| api.pause(id).await).await
}

pub(super) async fn resume(api: &Api, ids: &Ids) -> anyhow::Result<()> {
    each(SANDBOXES, &ids.ids, async |id| api.resume(id).await).await
}

pub(super) async fn hibernate(api: &Api, ids: &Ids) -> anyhow::Result<()> {
    each(SANDBOXES, &ids.ids, async |id| api.hibernate(id).await.map(drop)).await
}

/// Options of `wake`.
#[derive(Debug, Args)]
pub(crate) struct WakeArguments {
    /// The sandboxes.
    #[arg(required = true)]
    ids: Vec<String>,
    /// Boot them from their disks: what was in their memory is lost.
    #[arg(long)]
    cold: bool,
}

pub(super) async fn wake(api: &Api, arguments: &WakeArguments) -> anyhow::Result<()> {
    each(SANDBOXES, &arguments.ids, async |id| match arguments.cold {
        true => api.start_cold(id).await.map(drop),
        false => api.wake(id).await.map(drop),
    })
    .await
}

pub(super) async fn lifecycle(api: &Api, id: &str, format: Format) -> anyhow::Result<()> {
    Ok(output::object(format, &api.lifecycle(id).await?)?)
}

pub(super) async fn set_ttl(api: &Api, id: &str, seconds: i64, format: Format) -> anyhow::Result<()> {
    let change = PatchLifecycle { ttl_seconds: Some(seconds), persistent: None };
    Ok(output::object(format, &api.patch_lifecycle(id, &change).await?)?)
}

pub(super) async fn set_persistent(
    api: &Api,
    id: &str,
    persistent: bool,
    format: Format,
) -> anyhow::Result<()> {
    let change = PatchLifecycle { ttl_seconds: None, persistent: Some(persistent) };
    Ok(output::object(format, &api.patch_lifecycle(id, &change).await?)?)
}

/// Options of `update`.
#[derive(Debug, Args)]
pub(crate) struct UpdateArguments {
    /// The sandbox.
    id: String,
    /// A new name, which stands wherever an id does: lowercase letters, digits and `-`, at most 40. An empty one removes it.
    #[arg(long)]
    name: Option<String>,
    /// Metadata to write on it.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Metadata to remove.
    #[arg(long, value_name = "NAME")]
    unset_metadata: Vec<String>,
    /// A variable for commands from now on: NAME=VALUE, or NAME for the one that is set here.
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Variables to remove.
    #[arg(long, value_name = "NAME")]
    unset_env: Vec<String>,
    /// What it reaches from now on.
    #[arg(long, value_enum)]
    network: Option<Network>,
    /// Time without use after which it goes, such as 10m or 1h30m.
    #[arg(long, value_name = "TIME", value_parser = whole_seconds, allow_negative_numbers = true)]
    ttl: Option<i64>,
}

pub(super) async fn update(api: &Api, arguments: UpdateArguments, format: Format) -> anyhow::Result<()> {
    let changes = |set: BTreeMap<String, String>, unset: Vec<String>| {
        let set = set.into_iter().map(|(name, value)| (name, Some(value)));
        let changes: BTreeMap<_, _> = set.chain(unset.into_iter().map(|name| (name, None))).collect();
        Some(changes).filter(|changes| !changes.is_empty())
    };
    let change = PatchSandbox {
        name: arguments.name.map(|name| Some(name).filter(|name| !name.is_empty())),
        metadata: changes(arguments.metadata.into_iter().collect(), arguments.unset_metadata),
        env: changes(variables(&arguments.env)?, arguments.unset_env),
        network: arguments.network.map(Network::mode),
    };
    // By its id from here on: its name may just have changed.
    let mut id = arguments.id;
    if change != PatchSandbox::default() {
        let changed = api.patch_sandbox(&id, &change).await?;
        output::warn(&changed.warnings);
        id = changed.id;
    }
    if arguments.ttl.is_some() {
        api.patch_lifecycle(&id, &PatchLifecycle { ttl_seconds: arguments.ttl, persistent: None }).await?;
    }
    Ok(output::object(format, &api.sandbox(&id).await?)?)
}
