//! Which of a tenant's sandboxes: those that are listed, and those that are deleted together.

use std::sync::{Arc, Mutex, PoisonError};

use contract::sandbox::{DeletedSandboxes, Sandbox, SandboxFilter};
use futures::stream::{self, StreamExt};
use store::{ProvisionState, SandboxRow, Scope};

use crate::caller::Caller;
use crate::control::Control;
use crate::error::ControlError;
use crate::view::listed;

/// Sandboxes that are deleted at the same time for one request.
const DELETED_AT_ONCE: usize = 8;

/// Whether a sandbox is one of those. Compared with what callers see, so values of secrets cannot be asked for.
pub(crate) fn fits(filter: &SandboxFilter, sandbox: &Sandbox) -> bool {
    let same = |wanted: &Option<String>, is: Option<&String>| wanted.is_none() || wanted.as_ref() == is;
    (filter.status.is_empty() || filter.status.contains(&sandbox.status))
        && same(&filter.template, Some(&sandbox.template))
        && same(&filter.name, sandbox.name.as_ref())
        && same(&filter.parent, sandbox.ancestors.last())
        && filter.root.as_ref().is_none_or(|root| sandbox.ancestors.contains(root))
        && filter.metadata.iter().all(|(key, value)| {
            let is = sandbox.metadata.get(key);
            is.is_some() && (value.is_none() || value.as_ref() == is)
        })
}

impl Control {
    /// A filter in which relatives stand by their ids.
    pub(crate) async fn with_ids(
        &self,
        caller: &Caller,
        mut filter: SandboxFilter,
    ) -> Result<SandboxFilter, ControlError> {
        for text in [&mut filter.parent, &mut filter.root].into_iter().flatten() {
            *text = self.id_of(caller, text).await?.to_string();
        }
        Ok(filter)
    }

    /// Deletes all sandboxes that fit, a few at a time. What cannot be deleted is told; the others go all the same. It goes on to
    /// its end even when the caller goes away.
    pub async fn delete_sandboxes(
        &self,
        caller: &Caller,
        filter: SandboxFilter,
    ) -> Result<DeletedSandboxes, ControlError> {
        caller.require(Scope::Write)?;
        let filter = self.with_ids(caller, filter).await?;
        let met = Arc::new(Mutex::new(Vec::new()));
        let (node, activity, meets) = (self.node().clone(), self.activity().clone(), Arc::clone(&met));
        let visit = move |row: SandboxRow| {
            if row.standing != ProvisionState::Deleting
                && fits(&filter, &listed(&node, &activity, row.clone()))
            {
                meets.lock().unwrap_or_else(PoisonError::into_inner).push(row);
            }
        };
        self.store().visit_sandboxes(Some(&caller.tenant), Box::new(visit)).await?;
        let rows = std::mem::take(&mut *met.lock().unwrap_or_else(PoisonError::into_inner));
        let control = self.clone();
        self.finish(async move {
            let removals = rows.into_iter().map(|row| {
                let control = control.clone();
                async move {
                    let outcome = control.remove(&row, "sandbox.deleted").await;
                    (row.id.to_string(), outcome)
                }
            });
            let mut removals = stream::iter(removals).buffered(DELETED_AT_ONCE);
            let mut answer = DeletedSandboxes::default();
            while let Some((id, outcome)) = removals.next().await {
                match outcome {
                    Ok(()) => answer.deleted.push(id),
                    Err(error) => {
                        tracing::warn!(?error, sandbox.id = %id, "a sandbox could not be deleted");
                        answer.failures.insert(id, error.message);
                    }
                }
            }
            Ok(answer)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use contract::sandbox::SandboxStatus;
    use serde_json::json;

    use super::*;

    fn sandbox() -> Sandbox {
        serde_json::from_value(json!({
            "id": "c", "name": "web", "template": "base", "cpu": 1, "memory_mb": 256, "status": "running",
            "metadata": { "task": "42", "secret.key": "***" }, "boot_mode": "fork", "created_at": "",
            "persistent": false, "ttl_seconds": 1, "network": "none", "volumes": [], "env_names": [],
            "ancestors": ["a", "b"],
        }))
        .unwrap()
    }

    #[test]
    fn all_of_a_filter_must_fit() {
        let text = |text: &str| Some(text.to_owned());
        let key = |key: &str, value: Option<&str>| vec![(key.to_owned(), value.map(str::to_owned))];
        let none = SandboxFilter::default;
        let check = |filter: SandboxFilter, expected: bool| {
            assert_eq!(fits(&filter, &sandbox()), expected, "{filter:?}");
        };
        check(none(), true);
        check(SandboxFilter { status: vec![SandboxStatus::Paused, SandboxStatus::Running], ..none() }, true);
        check(SandboxFilter { status: vec![SandboxStatus::Paused], ..none() }, false);
        check(SandboxFilter { template: text("base"), name: text("web"), ..none() }, true);
        check(SandboxFilter { template: text("base"), name: text("db"), ..none() }, false);
        check(SandboxFilter { metadata: key("task", Some("42")), ..none() }, true);
        check(SandboxFilter { metadata: key("task", None), ..none() }, true);
        check(SandboxFilter { metadata: key("task", Some("4")), ..none() }, false);
        check(SandboxFilter { metadata: key("other", None), ..none() }, false);
        check(SandboxFilter { metadata: key("secret.key", Some("hunter2")), ..none() }, false);
        check(SandboxFilter { parent: text("b"), root: text("a"), ..none() }, true);
        check(SandboxFilter { parent: text("a"), ..none() }, false);
        check(SandboxFilter { root: text("c"), ..none() }, false);
    }
}
