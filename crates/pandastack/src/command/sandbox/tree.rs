//! Where a sandbox comes from and what comes from it, drawn.

use std::io;

use client::Api;
use contract::sandbox::SandboxStatus;
use contract::tree::{SandboxTree, TreeNode, TreeSnapshot};

use crate::duration;
use crate::output::{self, Format};
use crate::short_id::{length, short};
use crate::table::plain;

/// What a tree is drawn with.
#[derive(Debug, Clone, Copy)]
struct Pens {
    branch: &'static str,
    last: &'static str,
    trunk: &'static str,
    mark: &'static str,
    /// Before and after what is emphasised.
    strong: (&'static str, &'static str),
}

const LINES: Pens =
    Pens { branch: "├─ ", last: "└─ ", trunk: "│  ", mark: " ◀", strong: ("", "") };
const COLORS: Pens = Pens { strong: ("\x1b[1m", "\x1b[0m"), ..LINES };
const PLAIN: Pens = Pens { branch: "|- ", last: "`- ", trunk: "|  ", mark: " <-", strong: ("", "") };

pub(super) async fn run(api: &Api, id: &str, format: Format) -> anyhow::Result<()> {
    let tree = api.tree(id).await?;
    // The tree does not say which of its sandboxes was asked for when that was done by name.
    let asked = match format {
        Format::Json => String::new(),
        Format::Table => api.sandbox(id).await?.id,
    };
    let pens = match (
        std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
        output::colors(&io::stdout()),
    ) {
        (true, _) => PLAIN,
        (false, true) => COLORS,
        (false, false) => LINES,
    };
    Ok(output::result(format, &tree, || Drawing::of(&tree, &asked, pens, duration::now_unix_ms()))?)
}

struct Drawing<'a> {
    asked: &'a str,
    snapshots: &'a [TreeSnapshot],
    pens: Pens,
    id_width: usize,
    now_unix_ms: i64,
    text: String,
}

/// What stands below a sandbox.
enum Below<'a> {
    Sandbox(&'a TreeNode),
    Snapshot(&'a TreeSnapshot),
}

impl<'a> Drawing<'a> {
    fn of(tree: &'a SandboxTree, asked: &'a str, pens: Pens, now_unix_ms: i64) -> String {
        let mut ids = Vec::new();
        collect(&tree.tree, &mut ids);
        let id_width = length(ids);
        let mut drawing =
            Self { asked, snapshots: &tree.snapshots, pens, id_width, now_unix_ms, text: String::new() };
        drawing.sandbox(&tree.tree, "", "");
        drawing.text
    }

    /// A sandbox and all that comes from it: the first line begins with one prefix, the others with another.
    fn sandbox(&mut self, node: &'a TreeNode, first: &str, others: &str) {
        let mut words = vec![short(&node.id, self.id_width).to_owned()];
        words.extend(node.name.as_deref().map(plain));
        words.push(node.status.word().to_owned());
        words.extend(node.template.as_deref().map(plain));
        words.extend(node.created_at.as_deref().and_then(|at| duration::age(at, self.now_unix_ms)));
        let line = words.join("  ");
        let Pens { mark, strong, .. } = self.pens;
        let line = if node.id == self.asked { format!("{}{line}{mark}{}", strong.0, strong.1) } else { line };
        self.text.push_str(&format!("{first}{line}\n"));
        // The oldest first, as its children are; snapshots are given with the newest first.
        let snapshots = self.snapshots.iter().rev().filter(|one| one.sandbox_id == node.id);
        let below: Vec<Below<'a>> =
            snapshots.map(Below::Snapshot).chain(node.children.iter().map(Below::Sandbox)).collect();
        let count = below.len();
        for (at, below) in below.into_iter().enumerate() {
            let (line, trunk) = match at + 1 == count {
                true => (self.pens.last, "   "),
                false => (self.pens.branch, self.pens.trunk),
            };
            let (first, others) = (format!("{others}{line}"), format!("{others}{trunk}"));
            match below {
                Below::Sandbox(child) => self.sandbox(child, &first, &others),
                Below::Snapshot(snapshot) => {
                    let age = duration::age(&snapshot.created_at, self.now_unix_ms).unwrap_or_default();
                    self.text.push_str(&format!("{first}snapshot {}  {age}\n", snapshot.id));
                }
            }
        }
    }
}

/// Ids of all sandboxes of a tree that exist.
fn collect<'a>(node: &'a TreeNode, ids: &mut Vec<&'a str>) {
    if node.status != SandboxStatus::Deleted {
        ids.push(&node.id);
    }
    for child in &node.children {
        collect(child, ids);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn trees_are_drawn() {
        let node = |id: &str, name: Option<&str>, status: &str, children: Vec<serde_json::Value>| {
            let made = (status != "deleted").then_some("1970-01-01T00:00:00.000Z");
            let template = made.map(|_| "base");
            json!({ "id": id, "name": name, "status": status, "template": template, "created_at": made, "children": children })
        };
        let grandchild = node("grandchild00", None, "running", vec![]);
        let children = vec![
            node("firstchild00", Some("draft"), "hibernated", vec![grandchild]),
            node("secondchild0", None, "running", vec![]),
        ];
        let snapshot =
            json!({ "id": "snap1", "sandbox_id": "firstchild00", "created_at": "1970-01-01T00:02:00.000Z" });
        let tree = json!({
            "root": "rootrootroot", "ancestors": [], "tree": node("rootrootroot", None, "deleted", children),
            "snapshots": [snapshot],
        });
        let tree: SandboxTree = serde_json::from_value(tree).unwrap();
        assert_eq!(
            Drawing::of(&tree, "firstchild00", LINES, 180_000),
            "rootroot  deleted\n\
             ├─ firstchi  draft  hibernated  base  3m ◀\n\
             │  ├─ snapshot snap1  1m\n\
             │  └─ grandchi  running  base  3m\n\
             └─ secondch  running  base  3m\n"
        );
        assert_eq!(
            Drawing::of(&tree, "secondchild0", PLAIN, 180_000),
            "rootroot  deleted\n\
             |- firstchi  draft  hibernated  base  3m\n\
             |  |- snapshot snap1  1m\n\
             |  `- grandchi  running  base  3m\n\
             `- secondch  running  base  3m <-\n"
        );
    }
}
