//! Where sandboxes come from, and what comes from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use contract::sandbox::SandboxStatus;
use contract::time::rfc3339;
use contract::tree::{Ancestor, SandboxTree, TreeNode, TreeSnapshot};
use domain::SandboxId;
use store::SandboxRow;

use crate::caller::Caller;
use crate::control::Control;
use crate::error::ControlError;
use crate::view::status_of;

/// Generations that are remembered; of a longer line the oldest are forgotten. A tree is never deeper, and each generation is two
/// levels of JSON: many programs read 128.
const GENERATIONS_MAX: usize = 50;

/// The line of a sandbox that comes from another.
pub(crate) fn line(ancestors: &[SandboxId], parent: &SandboxId) -> Vec<SandboxId> {
    let mut line: Vec<_> = ancestors.iter().chain([parent]).cloned().collect();
    line.drain(..line.len().saturating_sub(GENERATIONS_MAX));
    line
}

/// What a tree tells of a sandbox that exists.
struct Member {
    name: Option<String>,
    status: SandboxStatus,
    template: String,
    created_ms: i64,
    fork_index: Option<u32>,
    /// From the root of the tree on, without it and without the member.
    line: Vec<SandboxId>,
}

/// A tree under construction: who exists, and who comes from whom.
struct Tree {
    members: HashMap<SandboxId, Member>,
    children: BTreeMap<SandboxId, BTreeSet<SandboxId>>,
}

impl Tree {
    fn new(root: &SandboxId, members: HashMap<SandboxId, Member>) -> Self {
        let mut children: BTreeMap<SandboxId, BTreeSet<SandboxId>> = BTreeMap::new();
        for (id, member) in members.iter().filter(|(id, _)| *id != root) {
            let mut from = root;
            for next in member.line.iter().chain([id]) {
                children.entry(from.clone()).or_default().insert(next.clone());
                from = next;
            }
        }
        Self { members, children }
    }

    /// A sandbox and all that come from it. `depth` bounds what a damaged line could do.
    fn node(&self, id: &SandboxId, depth: usize) -> TreeNode {
        let member = self.members.get(id);
        let mut children: Vec<_> = self.children.get(id).into_iter().flatten().collect();
        children.sort_by_key(|child| {
            self.members.get(*child).map(|member| (member.created_ms, member.fork_index))
        });
        if depth == 0 {
            children.clear();
        }
        TreeNode {
            id: id.to_string(),
            name: member.and_then(|member| member.name.clone()),
            status: member.map_or(SandboxStatus::Deleted, |member| member.status),
            template: member.map(|member| member.template.clone()),
            created_at: member.map(|member| rfc3339(member.created_ms)),
            fork_index: member.and_then(|member| member.fork_index),
            children: children.into_iter().map(|child| self.node(child, depth.saturating_sub(1))).collect(),
        }
    }

    fn ids(&self, root: &SandboxId) -> BTreeSet<SandboxId> {
        self.children.values().flatten().chain([root]).cloned().collect()
    }
}

impl Control {
    /// A sandbox with all its relatives.
    pub async fn tree(&self, caller: &Caller, id: &str) -> Result<SandboxTree, ControlError> {
        let row = self.row(caller, id).await?;
        let root = row.ancestors.first().unwrap_or(&row.id).clone();
        let met = Arc::new(Mutex::new(HashMap::new()));
        let (node, top, meets) = (self.node().clone(), root.clone(), Arc::clone(&met));
        let visit = move |row: SandboxRow| {
            let below = row.ancestors.iter().position(|ancestor| *ancestor == top);
            if row.id != top && below.is_none() {
                return;
            }
            let member = Member {
                status: status_of(&node, &row),
                line: below.map(|at| row.ancestors[at + 1..].to_vec()).unwrap_or_default(),
                name: row.name,
                template: row.template,
                created_ms: row.created_ms,
                fork_index: row.fork_index,
            };
            meets.lock().unwrap_or_else(PoisonError::into_inner).insert(row.id, member);
        };
        self.store().visit_sandboxes(Some(&caller.tenant), Box::new(visit)).await?;
        let members = std::mem::take(&mut *met.lock().unwrap_or_else(PoisonError::into_inner));
        let tree = Tree::new(&root, members);
        let ancestors = row.ancestors.iter().map(|id| {
            let member = tree.members.get(id);
            Ancestor {
                id: id.to_string(),
                name: member.and_then(|member| member.name.clone()),
                status: member.map_or(SandboxStatus::Deleted, |member| member.status),
            }
        });
        let related = tree.ids(&root);
        let snapshots = self.store().snapshots(&caller.tenant, None).await?;
        let snapshots = snapshots.into_iter().filter(|snapshot| related.contains(&snapshot.sandbox));
        Ok(SandboxTree {
            root: root.to_string(),
            ancestors: ancestors.collect(),
            tree: tree.node(&root, GENERATIONS_MAX + 1),
            snapshots: snapshots
                .map(|snapshot| TreeSnapshot {
                    id: snapshot.id.to_string(),
                    sandbox_id: snapshot.sandbox.to_string(),
                    created_at: rfc3339(snapshot.created_ms),
                })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SandboxId {
        SandboxId::parse(text).unwrap()
    }

    fn member(line: &[&str], created_ms: i64) -> Member {
        Member {
            name: None,
            status: SandboxStatus::Running,
            template: "base".to_owned(),
            created_ms,
            fork_index: None,
            line: line.iter().map(|text| id(text)).collect(),
        }
    }

    /// `a(b(d),c)`, with `!` behind those that are gone.
    fn written(node: &TreeNode) -> String {
        let gone = if node.status == SandboxStatus::Deleted { "!" } else { "" };
        let children: Vec<_> = node.children.iter().map(written).collect();
        match children.is_empty() {
            true => format!("{}{gone}", node.id),
            false => format!("{}{gone}({})", node.id, children.join(",")),
        }
    }

    #[test]
    fn a_line_forgets_its_oldest() {
        assert_eq!(line(&[], &id("a")), [id("a")]);
        let long: Vec<_> = (0..GENERATIONS_MAX).map(|number| id(&format!("s{number}"))).collect();
        let longer = line(&long, &id("last"));
        assert_eq!(
            (longer.len(), &longer[0], &longer[GENERATIONS_MAX - 1]),
            (GENERATIONS_MAX, &id("s1"), &id("last"))
        );
    }

    #[test]
    fn those_that_are_gone_stay_in_between() {
        let members = HashMap::from([
            (id("c"), member(&["b"], 3)),
            (id("d"), member(&["b"], 2)),
            (id("e"), member(&[], 1)),
        ]);
        let tree = Tree::new(&id("a"), members);
        assert_eq!(written(&tree.node(&id("a"), 9)), "a!(b!(d,c),e)");
        assert_eq!(tree.ids(&id("a")).len(), 5);
        assert_eq!(written(&tree.node(&id("a"), 1)), "a!(b!,e)");
    }
}
