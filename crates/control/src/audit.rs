//! The audit log: every request that could change something, written in batches behind the requests' backs.

use std::sync::Arc;

use contract::event::{Audit, AuditEntry};
use contract::time::{parse, rfc3339};
use store::{AuditRow, Store};
use tokio::sync::mpsc;

use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::Control;
use crate::error::ControlError;

/// Lines that wait to be written; a request waits when there are more.
const WAITING_MAX: usize = 4096;
/// Lines written at once.
const BATCH: usize = 256;
/// Most lines one request gets.
const LINES_MAX: usize = 1000;
const LINES_DEFAULT: usize = 200;

#[derive(Debug, Clone)]
pub(crate) struct AuditLog {
    lines: mpsc::Sender<AuditRow>,
}

impl AuditLog {
    /// The log, and the task that writes it until the last sender is gone.
    pub(crate) fn new(store: Arc<dyn Store>) -> (Self, impl Future<Output = ()> + Send) {
        let (lines, mut waiting) = mpsc::channel(WAITING_MAX);
        let write = async move {
            let mut batch = Vec::new();
            while waiting.recv_many(&mut batch, BATCH).await > 0 {
                if let Err(error) = store.add_audit(std::mem::take(&mut batch)).await {
                    tracing::error!(%error, "lines of the audit log are lost");
                }
            }
        };
        (Self { lines }, write)
    }
}

impl Control {
    /// Writes down a request that could change something.
    pub async fn audit(&self, caller: &Caller, request_id: &str, method: &str, path: &str, status: u16) {
        let row = AuditRow {
            at_ms: now_ms(),
            tenant: caller.tenant.clone(),
            token: caller.token.clone(),
            request_id: request_id.to_owned(),
            method: method.to_owned(),
            path: path.to_owned(),
            status,
        };
        // It can only fail while the server goes down.
        let _ = self.audit_log().lines.send(row).await;
    }

    /// The caller's part of the audit log.
    pub async fn audit_entries(
        &self,
        caller: &Caller,
        since: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Audit, ControlError> {
        let since_ms = match since {
            None | Some("") => 0,
            Some(text) => parse(text).ok_or_else(|| {
                ControlError::invalid("since must be an RFC 3339 time or seconds of Unix time")
            })?,
        };
        let limit = limit.unwrap_or(LINES_DEFAULT).clamp(1, LINES_MAX);
        let rows = self.store().audit(&caller.tenant, since_ms, limit).await?;
        let entries = rows.into_iter().map(|row| AuditEntry {
            ts: rfc3339(row.at_ms),
            workspace: row.tenant.to_string(),
            token: row.token,
            request_id: row.request_id,
            method: row.method,
            path: row.path,
            status: row.status,
        });
        Ok(Audit { entries: entries.collect(), since: rfc3339(since_ms) })
    }
}
