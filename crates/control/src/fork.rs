//! Forks, and choosing among the children.

use std::collections::BTreeMap;
use std::time::Instant;

use contract::snapshot::{ForkAnswer, ForkFailure, ForkRequest, PromoteAnswer, PromoteRequest};
use contract::time::rfc3339;
use domain::SandboxId;
use node::Child;
use serde_json::json;
use store::{ProvisionState, SandboxChange, SandboxRow, Scope};
use tracing::field::Empty;

use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::{Control, random};
use crate::create::{create_timings, host_name};
use crate::error::ControlError;
use crate::lineage::line;
use crate::names;
use crate::operation::{note_save, operation, traced};
use crate::reaper::EXPLORE_TTL;
use crate::view::view;

/// Most children of one request.
const CHILDREN_MAX: i64 = 16;

impl Control {
    /// Makes children that go on from this instant of a sandbox, which goes on too.
    pub async fn fork(
        &self,
        caller: &Caller,
        id: &str,
        request: ForkRequest,
    ) -> Result<ForkAnswer, ControlError> {
        caller.require(Scope::Write)?;
        let count = request.count.unwrap_or(1);
        if !(1..=CHILDREN_MAX).contains(&count) {
            return Err(ControlError::invalid(format!("count must be between 1 and {CHILDREN_MAX}")));
        }
        let name = request.name.as_deref().map(names::sandbox_name).transpose()?;
        if name.is_some() && count != 1 {
            return Err(ControlError::invalid("name: only a single child can be named at once"));
        }
        let given = request.metadata.unwrap_or_default();
        names::metadata(&given)?;
        let parent = self.row(caller, id).await?;
        let tree = SandboxId::from_random(random().map_err(ControlError::internal)?).to_string();
        let mut rows = Vec::new();
        for index in 0..count as u32 {
            rows.push(SandboxRow { name: name.clone(), ..child(&parent, &given, &tree, index)? });
        }
        let using = self.activity().begin(&parent.id);
        let control = self.clone();
        let span =
            operation!("sandbox.fork", parent, children = count, paused_ms = Empty, changed_bytes = Empty);
        let forking = async move { traced(span, control.fork_into(parent, rows, tree)).await };
        let answer = self.finish(forking).await;
        drop(using);
        answer
    }

    async fn fork_into(
        &self,
        parent: SandboxRow,
        rows: Vec<SandboxRow>,
        tree: String,
    ) -> Result<ForkAnswer, ControlError> {
        let started = Instant::now();
        let sandbox = self.node().sandbox(&parent.id)?;
        self.store().add_sandboxes(rows.clone(), &self.config().quota).await?;
        let ids: Vec<_> = rows.iter().map(|row| row.id.clone()).collect();
        let at_ms = now_ms();
        let children = rows.iter().map(|row| Child { id: row.id.clone(), host_name: host_name(row) });
        let forked = match self.node().fork_as(&sandbox, children.collect()).await {
            Ok(forked) => forked,
            Err(error) => {
                for id in &ids {
                    self.store().remove_sandbox(id).await?;
                }
                return Err(error.into());
            }
        };
        note_save(&forked.timings);
        let boot_ms = started.elapsed().as_secs_f64() * 1000.0;
        let (mut children, mut errors) = (Vec::new(), Vec::new());
        for (mut row, made) in rows.into_iter().zip(forked.children) {
            let index = row.fork_index.unwrap_or_default();
            let outcome = match made {
                Ok((_, timings)) => self.settle_child(&mut row, &parent, boot_ms, timings).await,
                Err(error) => {
                    self.store().remove_sandbox(&row.id).await?;
                    Err(ControlError::from(error))
                }
            };
            match outcome {
                Ok(()) => children.push(view(self.node(), row)),
                Err(error) => {
                    tracing::warn!(?error, sandbox.id = %row.id, "a child of a fork could not be created");
                    let payload = json!({ "index": index, "error": error.message });
                    self.happened(&parent.tenant, &parent.id, "fork.child_failed", Some(payload)).await;
                    errors.push(ForkFailure { index, err: error.message });
                }
            }
        }
        if children.is_empty() {
            let reason = errors.first().map_or("no child could be created", |failure| failure.err.as_str());
            return Err(ControlError::new(crate::error::Kind::Unavailable, format!("fork: {reason}")));
        }
        let payload = json!({ "tree_id": tree, "children": children.len() });
        self.happened(&parent.tenant, &parent.id, "sandbox.forked", Some(payload)).await;
        Ok(ForkAnswer {
            tree_id: tree,
            parent_id: parent.id.to_string(),
            snapshot_id: forked.instant.to_string(),
            at: rfc3339(at_ms),
            sandbox: children.first().cloned(),
            children,
            errors,
        })
    }

    async fn settle_child(
        &self,
        row: &mut SandboxRow,
        parent: &SandboxRow,
        boot_ms: f64,
        timings: node::RestoreTimings,
    ) -> Result<(), ControlError> {
        self.copy_contexts(&parent.id, &row.id).await?;
        self.settle(row, boot_ms, &create_timings(0.0, timings)).await
    }

    /// Contexts are processes of the guest, so a child has its parent's.
    async fn copy_contexts(&self, parent: &SandboxId, child: &SandboxId) -> Result<(), ControlError> {
        for mut context in self.store().repls(parent).await? {
            context.sandbox = child.clone();
            self.store().add_repl(context).await?;
        }
        Ok(())
    }

    /// Keeps one child of a fork and, if asked to, deletes the others. Doing it twice is fine.
    pub async fn promote(
        &self,
        caller: &Caller,
        id: &str,
        request: PromoteRequest,
    ) -> Result<PromoteAnswer, ControlError> {
        caller.require(Scope::Write)?;
        let winner = self.row(caller, id).await?;
        let named = request.tree_id.filter(|tree| !tree.is_empty());
        let Some(tree) = named.or_else(|| winner.tree.clone()) else {
            return Err(ControlError::invalid(
                "the sandbox is no child of a fork: there is nothing to choose from",
            ));
        };
        if winner.tree.as_ref() != Some(&tree) {
            return Err(ControlError::invalid("the sandbox does not belong to that fork"));
        }
        let mut answer = PromoteAnswer {
            winner: winner.id.to_string(),
            tree_id: tree.clone(),
            deleted: Vec::new(),
            failures: BTreeMap::new(),
        };
        if request.cleanup_siblings.unwrap_or(false) {
            for sibling in self.store().sandboxes_of_tree(&caller.tenant, &tree).await? {
                if sibling.id == winner.id {
                    continue;
                }
                let (control, id) = (self.clone(), sibling.id.to_string());
                match self.finish(async move { control.remove(&sibling, "sandbox.deleted").await }).await {
                    Ok(()) => answer.deleted.push(id),
                    Err(error) => {
                        answer.failures.insert(id, error.message);
                    }
                }
            }
        }
        // What makes a child go that is forgotten is not for the one that is chosen.
        if winner.metadata.contains_key(EXPLORE_TTL) {
            let mut metadata = winner.metadata.clone();
            metadata.remove(EXPLORE_TTL);
            let change = SandboxChange { metadata: Some(metadata), ..SandboxChange::default() };
            self.store().change_sandbox(&winner.id, change).await?;
        }
        let payload = json!({ "tree_id": tree, "deleted": answer.deleted.len() });
        self.happened(&winner.tenant, &winner.id, "fork_tree.promoted", Some(payload)).await;
        Ok(answer)
    }
}

/// The row of a child to be: what its parent has, under an id of its own.
fn child(
    parent: &SandboxRow,
    given: &BTreeMap<String, String>,
    tree: &str,
    index: u32,
) -> Result<SandboxRow, ControlError> {
    let mut metadata = parent.metadata.clone();
    metadata.extend(given.clone());
    names::metadata(&metadata)?;
    let now = now_ms();
    Ok(SandboxRow {
        id: SandboxId::from_random(random().map_err(ControlError::internal)?),
        standing: ProvisionState::Creating,
        name: None,
        parent: Some(parent.id.clone()),
        ancestors: line(&parent.ancestors, &parent.id),
        tree: Some(tree.to_owned()),
        fork_index: Some(index),
        metadata,
        created_ms: now,
        used_ms: now,
        boot_ms: None,
        boot_mode: "fork".to_owned(),
        timings: None,
        ..parent.clone()
    })
}
