//! Deleting sandboxes: those that are named, or all that fit.

use std::io::{self, IsTerminal};

use anyhow::bail;
use clap::Args;
use client::Api;
use contract::sandbox::{DeletedSandboxes, Sandbox};

use super::which::Which;
use crate::each::each;
use crate::local_terminal;
use crate::output::{self, Format, say};
use crate::short_id::{length, short};

/// How many are named in a question.
const NAMED_MAX: usize = 5;

/// Options of `delete`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The sandboxes.
    #[arg(value_name = "IDS", required_unless_present_any = FILTERS, conflicts_with_all = FILTERS)]
    ids: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// All there are, or all that fit.
    #[arg(long)]
    all: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

const FILTERS: [&str; 6] = ["status", "template", "name", "metadata", "parent", "all"];

pub(super) async fn run(api: &Api, arguments: &Arguments, format: Format) -> anyhow::Result<()> {
    if !arguments.ids.is_empty() {
        return each("sandboxes", &arguments.ids, async |id| api.delete_sandbox(id).await).await;
    }
    let filter = arguments.which.filter();
    if !arguments.yes {
        let found = api.list_sandboxes(&filter).await?;
        if found.is_empty() {
            return show(&DeletedSandboxes::default(), format);
        }
        let which = named(&found);
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            bail!("{which} would be deleted with everything in them: say so with --yes");
        }
        if !local_terminal::agreed(&format!("Delete {which}, with everything in them?"))? {
            bail!("nothing was deleted");
        }
    }
    let deleted = match filter.is_empty() {
        true => api.delete_all_sandboxes().await?,
        false => api.delete_sandboxes(&filter).await?,
    };
    show(&deleted, format)?;
    match deleted.failures.len() {
        0 => Ok(()),
        failed => bail!("{failed} of {} sandboxes failed", failed + deleted.deleted.len()),
    }
}

fn show(deleted: &DeletedSandboxes, format: Format) -> anyhow::Result<()> {
    output::result(format, deleted, || deleted.deleted.iter().map(|id| format!("{id}\n")).collect())?;
    for (id, failure) in &deleted.failures {
        say(format!("error: {id}: {failure}"));
    }
    if format == Format::Table {
        let sandboxes = if deleted.deleted.len() == 1 { "sandbox" } else { "sandboxes" };
        say(format!("{} {sandboxes} deleted", deleted.deleted.len()));
    }
    Ok(())
}

/// Which they are, in a few words.
fn named(found: &[Sandbox]) -> String {
    let width = length(found.iter().map(|one| one.id.as_str()));
    let name = |one: &Sandbox| match &one.name {
        Some(name) => format!("{name} ({})", short(&one.id, width)),
        None => short(&one.id, width).to_owned(),
    };
    let names: Vec<String> = found.iter().take(NAMED_MAX).map(name).collect();
    let more = match found.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let sandboxes = if found.len() == 1 { "sandbox" } else { "sandboxes" };
    format!("{} {sandboxes}: {}{more}", found.len(), names.join(", "))
}
