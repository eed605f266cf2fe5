//! What sandboxes are told to do, and how long they may idle.

use std::collections::BTreeMap;

use clap::Args;
use client::Api;
use contract::lifecycle::PatchLifecycle;
use contract::sandbox::PatchSandbox;

use super::create::Network;
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

pub(super) async fn wake(api: &Api, ids: &Ids) -> anyhow::Result<()> {
    each(SANDBOXES, &ids.ids, async |id| api.wake(id).await.map(drop)).await
}

pub(super) async fn delete(api: &Api, ids: &Ids) -> anyhow::Result<()> {
    each(SANDBOXES, &ids.ids, async |id| api.delete_sandbox(id).await).await
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
    /// Words of your own to write on it.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Words to remove.
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
}

pub(super) async fn update(api: &Api, arguments: UpdateArguments, format: Format) -> anyhow::Result<()> {
    let changes = |set: BTreeMap<String, String>, unset: Vec<String>| {
        let set = set.into_iter().map(|(name, value)| (name, Some(value)));
        let changes: BTreeMap<_, _> = set.chain(unset.into_iter().map(|name| (name, None))).collect();
        Some(changes).filter(|changes| !changes.is_empty())
    };
    let change = PatchSandbox {
        metadata: changes(arguments.metadata.into_iter().collect(), arguments.unset_metadata),
        env: changes(variables(&arguments.env)?, arguments.unset_env),
        network: arguments.network.map(Network::mode),
        ..PatchSandbox::default()
    };
    Ok(output::object(format, &api.patch_sandbox(&arguments.id, &change).await?)?)
}
