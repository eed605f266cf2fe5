//! What happened to sandboxes: kept, and told to whoever follows.

use contract::event::Event;
use contract::time::rfc3339;
use domain::{SandboxId, TenantId};
use serde_json::Value;
use store::EventRow;
use tokio::sync::broadcast;

use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::Control;
use crate::error::ControlError;

/// Events that a slow follower may be behind; beyond that it is told that it missed some.
const BEHIND_MAX: usize = 1024;
/// Most events one request gets.
const EVENTS_MAX: usize = 1000;

#[derive(Debug, Clone)]
pub(crate) struct Broadcaster {
    sender: broadcast::Sender<EventRow>,
}

impl Default for Broadcaster {
    fn default() -> Self {
        Self { sender: broadcast::channel(BEHIND_MAX).0 }
    }
}

/// A sandbox's events from now on.
pub struct EventStream {
    receiver: broadcast::Receiver<EventRow>,
    tenant: TenantId,
    sandbox: SandboxId,
}

impl EventStream {
    /// The next one; `None` when the sandbox or the server is gone.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.receiver.recv().await {
                Ok(row) if row.sandbox == self.sandbox && row.tenant == self.tenant => {
                    return Some(event(row));
                }
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

fn event(row: EventRow) -> Event {
    Event {
        time: rfc3339(row.at_ms),
        sandbox_id: row.sandbox.to_string(),
        kind: row.kind,
        payload: row.payload.and_then(|text| serde_json::from_str(&text).ok()),
    }
}

impl Control {
    /// Writes down and tells what happened. A sandbox's life does not depend on it: failures are logged.
    pub(crate) async fn happened(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        kind: &str,
        payload: Option<Value>,
    ) {
        let row = EventRow {
            tenant: tenant.clone(),
            sandbox: sandbox.clone(),
            at_ms: now_ms(),
            kind: kind.to_owned(),
            payload: payload.map(|value| value.to_string()),
        };
        // Nobody may be following.
        let _ = self.broadcaster().sender.send(row.clone());
        if let Err(error) = self.store().add_event(row).await {
            tracing::warn!(%error, sandbox.id = %sandbox, "an event was not kept");
        }
    }

    /// The newest events of a sandbox, oldest of them first.
    pub async fn events(
        &self,
        caller: &Caller,
        id: &str,
        newest: Option<usize>,
    ) -> Result<Vec<Event>, ControlError> {
        let row = self.row(caller, id).await?;
        let newest = newest.unwrap_or(50).clamp(1, EVENTS_MAX);
        let rows = self.store().events(&caller.tenant, &row.id, newest).await?;
        Ok(rows.into_iter().map(event).collect())
    }

    /// The newest events, and all that follow, without a gap in between (an event may come twice at the seam).
    pub async fn follow_events(
        &self,
        caller: &Caller,
        id: &str,
        newest: Option<usize>,
    ) -> Result<(Vec<Event>, EventStream), ControlError> {
        let receiver = self.broadcaster().sender.subscribe();
        let sandbox = self.row(caller, id).await?.id;
        let past = self.events(caller, sandbox.as_str(), newest).await?;
        Ok((past, EventStream { receiver, tenant: caller.tenant.clone(), sandbox }))
    }
}
