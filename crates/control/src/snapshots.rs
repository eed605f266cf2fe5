//! Snapshots that callers keep.

use std::collections::HashMap;

use contract::snapshot::Snapshot;
use contract::time::rfc3339;
use domain::SnapshotId;
use node::SnapshotInfo;
use serde_json::json;
use store::{Scope, SnapshotRow, StoreError};
use tracing::field::Empty;

use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::{Control, random};
use crate::error::{ControlError, Kind};
use crate::lineage::line;
use crate::operation::{note_save, operation, traced};

fn view(row: &SnapshotRow, info: Option<&SnapshotInfo>) -> Snapshot {
    Snapshot {
        id: row.id.to_string(),
        snapshot_id: row.id.to_string(),
        sandbox_id: row.sandbox.to_string(),
        ancestors: row.ancestors.iter().map(ToString::to_string).collect(),
        template: row.template.clone(),
        parent_snapshot_id: row.parent.as_ref().map(ToString::to_string),
        size_bytes: info.map_or(row.size_bytes, |info| info.size_bytes),
        unique_bytes: info.map_or(0, |info| info.unique_bytes),
        created_at: rfc3339(row.created_ms),
        workspace: row.tenant.to_string(),
    }
}

impl Control {
    /// Keeps an instant of a sandbox, which goes on.
    pub async fn create_snapshot(&self, caller: &Caller, id: &str) -> Result<Snapshot, ControlError> {
        caller.require(Scope::Write)?;
        let sandbox_row = self.row(caller, id).await?;
        let quota = self.quota(&caller.tenant).await?;
        let kept = self.store().snapshots(&caller.tenant, None).await?.len() as u64;
        if kept >= quota.snapshots {
            return Err(StoreError::Quota { what: "snapshots", limit: quota.snapshots }.into());
        }
        let sandbox = self.node().sandbox(&sandbox_row.id)?;
        let using = self.activity().begin(&sandbox_row.id);
        let row = SnapshotRow {
            id: SnapshotId::from_random(random().map_err(ControlError::internal)?),
            tenant: caller.tenant.clone(),
            sandbox: sandbox_row.id.clone(),
            ancestors: line(&sandbox_row.ancestors, &sandbox_row.id),
            template: sandbox_row.template.clone(),
            parent: sandbox_row.from_snapshot.clone(),
            size_bytes: 0,
            cpus: sandbox_row.cpus,
            memory_mib: sandbox_row.memory_mib,
            created_ms: now_ms(),
        };
        let control = self.clone();
        let span = operation!("sandbox.snapshot", sandbox_row, paused_ms = Empty, changed_bytes = Empty);
        let snapshot = self
            .finish(traced(span, async move {
                // A row without its snapshot is removed at the next start; a snapshot without its row would stay for ever.
                control.store().add_snapshot(row.clone()).await?;
                let taken = control.node().snapshot_as(&sandbox, row.id.clone()).await;
                let (info, timings) = match taken {
                    Ok(taken) => taken,
                    Err(error) => {
                        control.store().remove_snapshot(&row.id).await?;
                        return Err(error.into());
                    }
                };
                control.measurements().saved(timings.paused_ms);
                note_save(&timings);
                let payload = json!({ "snapshot_id": row.id.as_str() });
                control.happened(&row.tenant, &row.sandbox, "sandbox.snapshotted", Some(payload)).await;
                Ok(view(&row, Some(&info)))
            }))
            .await;
        drop(using);
        snapshot
    }

    /// The caller's snapshots, newest first.
    pub async fn list_snapshots(
        &self,
        caller: &Caller,
        sandbox: Option<&str>,
    ) -> Result<Vec<Snapshot>, ControlError> {
        let sandbox = match sandbox.filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => match self.id_of(caller, text).await {
                Ok(id) => Some(id),
                Err(error) if error.kind == Kind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            },
        };
        let rows = self.store().snapshots(&caller.tenant, sandbox.as_ref()).await?;
        let infos: HashMap<_, _> =
            self.node().snapshots().into_iter().map(|info| (info.id.clone(), info)).collect();
        Ok(rows.iter().map(|row| view(row, infos.get(&row.id))).collect())
    }

    /// One snapshot.
    pub async fn snapshot(&self, caller: &Caller, id: &str) -> Result<Snapshot, ControlError> {
        let row = self.snapshot_row(caller, id).await?;
        let info = self.node().snapshots().into_iter().find(|info| info.id == row.id);
        Ok(view(&row, info.as_ref()))
    }

    /// Deletes a snapshot. Sandboxes made from it are not touched.
    pub async fn delete_snapshot(&self, caller: &Caller, id: &str) -> Result<(), ControlError> {
        caller.require(Scope::Write)?;
        let row = self.snapshot_row(caller, id).await?;
        let control = self.clone();
        self.finish(async move {
            match control.node().delete_snapshot(&row.id) {
                Ok(()) | Err(node::NodeError::NoSnapshot(_)) => {}
                Err(error) => return Err(error.into()),
            }
            control.store().remove_snapshot(&row.id).await?;
            Ok(())
        })
        .await
    }
}
