//! After a start: what was being made when the last server ended is removed, what was being removed is gone, the rest goes on.

use std::collections::HashSet;

use serde_json::json;
use store::{ProvisionState, StoreError};

use crate::control::Control;

/// Brings rows and machines together.
pub(crate) async fn recover(control: &Control) -> Result<(), StoreError> {
    let store = control.store();
    let mut claimed = HashSet::new();
    for row in store.all_sandboxes().await? {
        let there = control.node().sandbox(&row.id).ok();
        if row.standing == ProvisionState::Live && there.is_some() {
            // It was used until the last server ended, as far as anybody knows.
            control.activity().learn(&row.id, row.used_ms.max(crate::clock::now_ms() - GRACE_MS));
            control.watch_for_death(&row);
            claimed.insert(row.id.clone());
            continue;
        }
        if let Some(sandbox) = there
            && let Err(error) = sandbox.delete().await
        {
            tracing::error!(%error, sandbox.id = %row.id, "a sandbox that nobody was told about could not be removed");
            claimed.insert(row.id.clone());
            continue;
        }
        if row.standing == ProvisionState::Live {
            tracing::error!(sandbox.id = %row.id, "the files of a sandbox are gone; it is not listed any more");
            let payload = json!({ "template": row.template });
            control.happened(&row.tenant, &row.id, "recover.orphaned", Some(payload)).await;
        }
        store.remove_sandbox(&row.id).await?;
    }
    for sandbox in control.node().sandboxes() {
        if !claimed.contains(sandbox.id()) {
            tracing::warn!(sandbox.id = %sandbox.id(), "a sandbox was not made by this server and is left alone");
        }
    }
    let kept: HashSet<_> = control.node().snapshots().into_iter().map(|info| info.id).collect();
    for row in store.all_snapshots().await? {
        if !kept.contains(&row.id) {
            tracing::info!(snapshot.id = %row.id, "a snapshot that was being taken is forgotten");
            store.remove_snapshot(&row.id).await?;
        }
    }
    control.recover_volumes().await
}

/// A sandbox found again gets at least this long before its idle time can be over: last uses are written down only now and then.
const GRACE_MS: i64 = 30_000;
