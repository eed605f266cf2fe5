//! Snapshots, forks, and choosing among children.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use client::Api;
use contract::snapshot::{ForkRequest, PromoteRequest};

use crate::output::{self, Format, say};
use crate::quoting::{map, pair};

/// Options of `fork`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The sandbox.
    id: String,
    /// A name for the child, which stands wherever an id does.
    #[arg(long)]
    name: Option<String>,
    /// Metadata of your own on the child.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
}

/// Options of `fork-tree`.
#[derive(Debug, Args)]
pub(crate) struct TreeArguments {
    /// The sandbox.
    id: String,
    /// How many children.
    #[arg(long, short = 'n', default_value_t = 2, allow_negative_numbers = true)]
    count: i64,
    /// Metadata of your own on the children.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
}

/// Options of `promote`.
#[derive(Debug, Args)]
pub(crate) struct PromoteArguments {
    /// The child to keep.
    id: String,
    /// Delete the others.
    #[arg(long)]
    cleanup_siblings: bool,
    /// The tree [default: the child's].
    #[arg(long)]
    tree_id: Option<String>,
}

pub(super) async fn snapshot(api: &Api, id: &str, format: Format) -> anyhow::Result<()> {
    let snapshot = api.snapshot(id).await?;
    Ok(output::result(format, &snapshot, || snapshot.id.clone())?)
}

pub(super) async fn one(api: &Api, arguments: Arguments, format: Format) -> anyhow::Result<()> {
    let request = ForkRequest {
        count: Some(1),
        metadata: map(arguments.metadata),
        name: arguments.name,
        ..ForkRequest::default()
    };
    let answer = api.fork(&arguments.id, &request).await?;
    let child = answer.sandbox.or_else(|| answer.children.into_iter().next());
    let child = child.context("the server says that it forked, and shows no child")?;
    Ok(output::result(format, &child, || child.id.clone())?)
}

pub(super) async fn tree(api: &Api, arguments: TreeArguments, format: Format) -> anyhow::Result<ExitCode> {
    let request = ForkRequest {
        count: Some(arguments.count),
        metadata: map(arguments.metadata),
        ..ForkRequest::default()
    };
    let answer = api.fork_tree(&arguments.id, &request).await?;
    output::result(format, &answer, || {
        answer.children.iter().map(|child| format!("{}\n", child.id)).collect::<String>()
    })?;
    for failure in &answer.errors {
        say(format!("error: child {}: {}", failure.index, failure.err));
    }
    Ok(if answer.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

pub(super) async fn promote(
    api: &Api,
    arguments: PromoteArguments,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let PromoteArguments { id, cleanup_siblings, tree_id } = arguments;
    let answer =
        api.promote(&id, &PromoteRequest { cleanup_siblings: Some(cleanup_siblings), tree_id }).await?;
    output::result(format, &answer, || {
        answer.deleted.iter().map(|id| format!("deleted {id}\n")).collect::<String>()
    })?;
    for (id, failure) in &answer.failures {
        say(format!("error: {id}: {failure}"));
    }
    Ok(if answer.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
