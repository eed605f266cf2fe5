//! Looking at sandboxes, changing what is written on them, deleting them.

use std::sync::{Arc, Mutex, PoisonError};

use contract::sandbox::{PatchSandbox, Sandbox, SandboxFilter};
use network::Policy;
use store::{NetworkMode, ProvisionState, SandboxChange, SandboxRow, Scope};

use crate::caller::Caller;
use crate::control::Control;
use crate::error::ControlError;
use crate::filter::fits;
use crate::names;
use crate::operation::{operation, traced};
use crate::view::listed;

impl Control {
    /// Whether there is such a sandbox and it is the caller's. Touches nothing.
    pub async fn check_sandbox(&self, caller: &Caller, id: &str) -> Result<(), ControlError> {
        self.row(caller, id).await.map(drop)
    }

    /// The caller's sandboxes that fit, newest first: a list of [`Sandbox`] as JSON. There may be many, so each row becomes text as it
    /// is read, and they are never all in memory.
    pub async fn list_sandboxes(
        &self,
        caller: &Caller,
        filter: SandboxFilter,
    ) -> Result<Vec<u8>, ControlError> {
        let filter = self.with_ids(caller, filter).await?;
        let list = Arc::new(Mutex::new(Ok(vec![b'['])));
        let (node, activity, told) = (self.node().clone(), self.activity().clone(), Arc::clone(&list));
        let visit = move |row: SandboxRow| {
            let sandbox = listed(&node, &activity, row);
            if !fits(&filter, &sandbox) {
                return;
            }
            let mut list = told.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(text) = list.as_mut()
                && let Err(error) = append(text, &sandbox)
            {
                *list = Err(error);
            }
        };
        self.store().visit_sandboxes(Some(&caller.tenant), Box::new(visit)).await?;
        let list =
            std::mem::replace(&mut *list.lock().unwrap_or_else(PoisonError::into_inner), Ok(Vec::new()));
        let mut text = list.map_err(ControlError::internal)?;
        text.push(b']');
        Ok(text)
    }

    /// One sandbox.
    pub async fn sandbox(&self, caller: &Caller, id: &str) -> Result<Sandbox, ControlError> {
        let row = self.row(caller, id).await?;
        let unique_bytes = self.node().unique_bytes(&row.id).await;
        let warnings = self.network_warnings(row.network);
        let listed = listed(self.node(), self.activity(), row);
        Ok(Sandbox { unique_bytes: Some(unique_bytes), warnings, ..listed })
    }

    /// Changes what is written on a sandbox.
    pub async fn patch_sandbox(
        &self,
        caller: &Caller,
        id: &str,
        patch: PatchSandbox,
    ) -> Result<Sandbox, ControlError> {
        caller.require(Scope::Write)?;
        let row = self.row(caller, id).await?;
        let mut change = SandboxChange::default();
        if let Some(given) = patch.name {
            change.name = Some(given.as_deref().map(names::sandbox_name).transpose()?);
        }
        if let Some(given) = patch.metadata {
            let mut metadata = row.metadata.clone();
            merge(&mut metadata, given);
            names::metadata(&metadata)?;
            change.metadata = Some(metadata);
        }
        if let Some(given) = patch.env {
            let mut env = row.env.clone();
            merge(&mut env, given);
            names::env(&env)?;
            change.env = Some(env);
        }
        change.network = patch.network.map(stored_mode);
        let network = change.network;
        if !self.store().change_sandbox(&row.id, change).await? {
            return Err(names::no_sandbox(id));
        }
        if let Some(mode) = network {
            self.apply_network(&row.id, mode).await?;
        }
        // By its id: it may have another name now.
        self.sandbox(caller, row.id.as_str()).await
    }

    /// What a caller should know about the network that was asked for. It is true as long as the network and the server stay as they are.
    pub(crate) fn network_warnings(&self, mode: NetworkMode) -> Vec<String> {
        match mode {
            NetworkMode::All if !self.node().has_uplink() => vec![
                "the network is open, but this server has no uplink, so the sandbox reaches nothing; its operator adds one with --uplink"
                    .to_owned(),
            ],
            _ => Vec::new(),
        }
    }

    /// Opens or closes a sandbox's network; one that sleeps gets it when it wakes.
    pub(crate) async fn apply_network(
        &self,
        id: &domain::SandboxId,
        mode: NetworkMode,
    ) -> Result<(), ControlError> {
        Ok(self.node().set_network_policy(id, policy(mode)).await?)
    }

    /// Deletes a sandbox.
    pub async fn delete_sandbox(&self, caller: &Caller, id: &str) -> Result<(), ControlError> {
        caller.require(Scope::Write)?;
        let row = self.row(caller, id).await?;
        let control = self.clone();
        self.finish(async move { control.remove(&row, "sandbox.deleted").await }).await
    }

    /// Removes a sandbox and everything it has. Safe to repeat.
    pub(crate) async fn remove(&self, row: &SandboxRow, event: &str) -> Result<(), ControlError> {
        let change = SandboxChange { standing: Some(ProvisionState::Deleting), ..SandboxChange::default() };
        if !self.store().change_sandbox(&row.id, change).await? {
            return Ok(());
        }
        if let Ok(sandbox) = self.node().sandbox(&row.id) {
            traced(operation!("sandbox.delete", row), async { Ok(sandbox.delete().await?) }).await?;
        }
        self.activity().forget(&row.id);
        self.consoles().forget(&row.id);
        self.open_contexts().forget_all(&row.id);
        self.store().remove_sandbox(&row.id).await?;
        self.happened(&row.tenant, &row.id, event, None).await;
        Ok(())
    }
}

/// Adds an element to a list that is being written.
fn append(list: &mut Vec<u8>, sandbox: &Sandbox) -> serde_json::Result<()> {
    if list.len() > 1 {
        list.push(b',');
    }
    serde_json::to_writer(list, sandbox)
}

/// What a request says, as it is kept.
pub(crate) fn stored_mode(mode: contract::sandbox::NetworkMode) -> NetworkMode {
    match mode {
        contract::sandbox::NetworkMode::None => NetworkMode::None,
        contract::sandbox::NetworkMode::All => NetworkMode::All,
    }
}

pub(crate) fn policy(mode: NetworkMode) -> Policy {
    match mode {
        NetworkMode::None => Policy::Closed,
        NetworkMode::All => Policy::Open,
    }
}

fn merge(
    into: &mut std::collections::BTreeMap<String, String>,
    given: std::collections::BTreeMap<String, Option<String>>,
) {
    for (key, value) in given {
        match value {
            Some(value) => into.insert(key, value),
            None => into.remove(&key),
        };
    }
}
