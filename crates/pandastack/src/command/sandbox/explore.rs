//! Best of several: fork a sandbox, try something else in each branch, keep the best. The same as `explore()` of the SDKs.

mod branch;
mod candidate;
mod outcome;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use client::Api;
use contract::sandbox::Sandbox;
use contract::snapshot::{ForkRequest, PromoteRequest};
use futures::{StreamExt, stream};
use serde::Serialize;

use crate::duration::{seconds, whole_seconds};
use crate::output::{self, Format, say};
use crate::signals::Signals;

use branch::Trial;
use outcome::{Outcome, Select};

/// Options of `explore`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The sandbox to fork; it goes on as it is.
    id: String,
    /// Commands to try, each a line for the shell: one branch for each.
    #[arg(required_unless_present = "candidates", conflicts_with = "candidates")]
    commands: Vec<String>,
    /// A file of candidates, or `-` for standard input: a JSON list of lines for the shell, or of objects with `cmd`, and perhaps
    /// `label`, `env`, `timeout_s` and `score`.
    #[arg(long, value_name = "FILE")]
    candidates: Option<String>,
    /// A line for the shell that measures a branch after its command: the last word that it writes is the score.
    #[arg(long, value_name = "COMMAND")]
    score: Option<String>,
    /// Which score is best.
    #[arg(long, value_enum, default_value_t = Select::Max)]
    select: Select,
    /// Let branches win whose command failed.
    #[arg(long)]
    allow_failed: bool,
    /// Time after which a command is killed, and its branch has failed.
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "60")]
    timeout: f64,
    /// How many branches run at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    at_once: u8,
    /// Leave the other branches as they are.
    #[arg(long)]
    keep_losers: bool,
    /// Do not promote the best: the tree stays one.
    #[arg(long)]
    no_promote: bool,
    /// A directory in which changed files are looked for [default: /app, /work, /root and /home].
    #[arg(long, value_name = "PATH", conflicts_with = "no_files")]
    files: Option<String>,
    /// Do not look for changed files.
    #[arg(long)]
    no_files: bool,
    /// Time without use after which the server deletes a branch that was not promoted.
    #[arg(long, value_name = "TIME", value_parser = whole_seconds, default_value = "10m")]
    ttl: i64,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Found {
    /// The sandbox of the best branch.
    winner: String,
    winner_outcome: Outcome,
    /// All branches, from best to worst.
    outcomes: Vec<Outcome>,
    tree_id: String,
    /// Sandboxes that were deleted.
    reaped: Vec<String>,
    /// Those that could not be, and why.
    reap_failures: BTreeMap<String, String>,
    /// What else went wrong on the way.
    errors: Vec<String>,
}

pub(super) async fn run(api: &Api, arguments: Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let candidates =
        candidate::given(arguments.candidates.as_deref(), &arguments.commands, arguments.timeout)?;
    let trial = Trial {
        score: arguments.score.clone(),
        roots: match (&arguments.files, arguments.no_files) {
            (_, true) => None,
            (Some(path), _) => Some(crate::quoting::quoted(path)),
            (None, _) => Some(branch::ROOTS.to_owned()),
        },
    };
    // A fork that was asked for is waited for, so that nothing of it stays.
    let mut signals = Signals::watch()?;
    let metadata = [("explore", "1".to_owned()), ("explore_ttl", arguments.ttl.to_string())];
    let metadata = metadata.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    let request = ForkRequest {
        count: Some(candidates.len() as i64),
        metadata: Some(metadata),
        ..ForkRequest::default()
    };
    let tree = api.fork_tree(&arguments.id, &request).await?;
    let mut errors: Vec<String> =
        tree.errors.iter().map(|failure| format!("child {}: {}", failure.index, failure.err)).collect();
    let branches = tree.children.iter().zip(&candidates);
    let tried = stream::iter(branches.map(|(child, candidate)| trial.run(api, &child.id, candidate)))
        .buffered(usize::from(arguments.at_once))
        .collect::<Vec<_>>();
    let outcomes = tokio::select! {
        outcomes = tried => outcomes,
        told = signals.next() => {
            reap(api, &tree.children, &[], &mut errors).await;
            return Ok(ExitCode::from(told.exit_code()));
        }
    };
    let outcomes = outcome::ranked(outcomes, arguments.select, !arguments.allow_failed);
    let Some(best) = outcomes.first().filter(|best| best.ok || arguments.allow_failed).cloned() else {
        reap(api, &tree.children, &[], &mut errors).await;
        let what: Vec<String> = outcomes.iter().map(Outcome::trouble).chain(errors).collect();
        bail!("explore: no branch did well ({})", what.join(", "));
    };
    let mut found = Found {
        winner: best.sandbox_id.clone(),
        winner_outcome: best,
        outcomes,
        tree_id: tree.tree_id,
        reaped: Vec::new(),
        reap_failures: BTreeMap::new(),
        errors,
    };
    let tidy = keep(api, &arguments, &tree.children, &mut found).await;
    show(&found, format)?;
    Ok(if tidy { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Promotes the best and deletes the others, as far as that is wanted; whether all of it went well.
async fn keep(api: &Api, arguments: &Arguments, children: &[Sandbox], found: &mut Found) -> bool {
    let noted = found.errors.len();
    if !arguments.no_promote {
        let cleanup_siblings = Some(!arguments.keep_losers);
        let request = PromoteRequest { cleanup_siblings, tree_id: Some(found.tree_id.clone()) };
        match api.promote(&found.winner, &request).await {
            Ok(promoted) => {
                found.reaped = promoted.deleted;
                found.reap_failures = promoted.failures;
            }
            Err(error) => found.errors.push(format!("promote failed: {error}")),
        }
    }
    if !arguments.keep_losers {
        let mut spared = found.reaped.clone();
        spared.push(found.winner.clone());
        let reaped = reap(api, children, &spared, &mut found.errors).await;
        found.reap_failures.retain(|id, _| !reaped.contains(id));
        found.reaped.extend(reaped);
    }
    found.errors.len() == noted && found.reap_failures.is_empty()
}

/// Deletes all branches but some; gives those that were deleted.
async fn reap(api: &Api, children: &[Sandbox], spared: &[String], errors: &mut Vec<String>) -> Vec<String> {
    let mut gone = Vec::new();
    for child in children.iter().filter(|child| !spared.contains(&child.id)) {
        match api.delete_sandbox(&child.id).await {
            Ok(()) => gone.push(child.id.clone()),
            Err(error) if error.is_not_found() => {}
            Err(error) => errors.push(format!("{} could not be deleted: {error}", child.id)),
        }
    }
    gone
}

/// The winner is the result; how the branches did is told.
fn show(found: &Found, format: Format) -> anyhow::Result<()> {
    if format == Format::Table {
        say(outcome::shown(&found.outcomes, &found.winner).trim_end());
        for error in found.errors.iter().chain(found.reap_failures.values()) {
            say(format!("error: {error}"));
        }
    }
    Ok(output::result(format, found, || found.winner.clone())?)
}
