//! The sandboxes there are, as a table.

use clap::Args;
use client::Api;
use contract::sandbox::{Sandbox, SandboxStatus};

use super::which::Which;
use crate::duration;
use crate::output::{self, Format};
use crate::short_id::{short, width};
use crate::table::table;

/// Options of `list`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Whole ids.
    #[arg(long)]
    no_trunc: bool,
    /// Only the ids.
    #[arg(long, short)]
    quiet: bool,
}

pub(super) async fn run(api: &Api, arguments: &Arguments, format: Format) -> anyhow::Result<()> {
    let sandboxes = api.list_sandboxes(&arguments.which.filter()).await?;
    if arguments.quiet {
        return Ok(output::names(format, &sandboxes, |one| one.id.clone())?);
    }
    Ok(output::result(format, &sandboxes, || {
        let width = width(arguments.no_trunc, sandboxes.iter().map(|one| one.id.as_str()));
        shown(&sandboxes, width, duration::now_unix_ms())
    })?)
}

fn shown(sandboxes: &[Sandbox], width: usize, now_unix_ms: i64) -> String {
    let row = |one: &Sandbox| {
        [
            short(&one.id, width).to_owned(),
            one.name.clone().unwrap_or_default(),
            one.template.clone(),
            one.status.word().to_owned(),
            duration::age(&one.created_at, now_unix_ms).unwrap_or_default(),
            idle_left(one),
            own_metadata(one).join(" "),
        ]
    };
    let rows: Vec<_> = sandboxes.iter().map(row).collect();
    table(["ID", "NAME", "TEMPLATE", "STATUS", "AGE", "IDLE LEFT", "METADATA"], &rows)
}

fn idle_left(sandbox: &Sandbox) -> String {
    match (sandbox.status, sandbox.idle_seconds_left) {
        (SandboxStatus::Hibernated, _) => "sleeping".to_owned(),
        (_, Some(seconds)) => duration::short(seconds),
        (_, None) => "-".to_owned(),
    }
}

/// What its owner wrote on it: without what the platform and the clients put there.
fn own_metadata(sandbox: &Sandbox) -> Vec<String> {
    let foreign = |name: &str| {
        let kept = ["workspace", "fork_parent_id", "fork_tree_id", "fork_tree_role", "fork_index"];
        kept.contains(&name) || ["explore", "explore_ttl"].contains(&name) || name.starts_with("port.")
    };
    let own = sandbox.metadata.iter().filter(|(name, _)| !foreign(name));
    own.map(|(name, value)| format!("{name}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_says_what_a_person_asks() {
        let sandbox = |id: &str, more: serde_json::Value| {
            let mut value = json!({
                "id": id, "template": "base", "cpu": 1, "memory_mb": 512, "status": "running", "boot_mode": "fork",
                "metadata": {"task": "42", "workspace": "w", "fork_index": "0", "port.80": "web"},
                "created_at": "1970-01-01T00:00:00.000Z", "persistent": false, "ttl_seconds": 3600,
                "network": "none", "volumes": [], "env_names": [], "name": "web", "idle_seconds_left": 3421,
            });
            value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<Sandbox>(value).unwrap()
        };
        let asleep = json!({"status": "hibernated", "name": null, "idle_seconds_left": null, "metadata": {}});
        let list = [sandbox("abcdefghijkl", json!({})), sandbox("bcdefghijklm", asleep)];
        assert_eq!(
            shown(&list, 8, 200_000),
            "ID        NAME  TEMPLATE  STATUS      AGE  IDLE LEFT  METADATA\n\
             abcdefgh  web   base      running     3m   57m        task=42\n\
             bcdefghi        base      hibernated  3m   sleeping\n"
        );
        assert!(shown(&list, usize::MAX, 0).contains("abcdefghijkl"));
    }
}
