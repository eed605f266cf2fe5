//! Looking at sandboxes, changing what is written on them, deleting them.

use contract::sandbox::{PatchSandbox, Sandbox};
use network::Policy;
use store::{NetworkMode, SandboxChange, SandboxRow, Scope, Standing};

use crate::caller::Caller;
use crate::control::Control;
use crate::error::ControlError;
use crate::names;

impl Control {
    /// The row of a sandbox that is the caller's. Anybody else's is not there.
    pub(crate) async fn row(&self, caller: &Caller, id: &str) -> Result<SandboxRow, ControlError> {
        let found = self.store().sandbox(&names::sandbox_id(id)?).await?;
        found.filter(|row| row.tenant == caller.tenant).ok_or_else(|| names::no_sandbox(id))
    }

    /// Whether there is such a sandbox and it is the caller's. Touches nothing.
    pub async fn check_sandbox(&self, caller: &Caller, id: &str) -> Result<(), ControlError> {
        self.row(caller, id).await.map(drop)
    }

    /// All sandboxes of the caller, newest first.
    pub async fn list_sandboxes(&self, caller: &Caller) -> Result<Vec<Sandbox>, ControlError> {
        let rows = self.store().sandboxes(&caller.tenant).await?;
        Ok(rows.iter().map(|row| self.view(row)).collect())
    }

    /// One sandbox.
    pub async fn sandbox(&self, caller: &Caller, id: &str) -> Result<Sandbox, ControlError> {
        let row = self.row(caller, id).await?;
        let mut view = self.view(&row);
        view.unique_bytes = Some(self.node().unique_bytes(&row.id).await);
        Ok(view)
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
        change.network = patch.network.map(|mode| match mode {
            contract::sandbox::NetworkMode::None => NetworkMode::None,
            contract::sandbox::NetworkMode::All => NetworkMode::All,
        });
        let network = change.network;
        if !self.store().change_sandbox(&row.id, change).await? {
            return Err(names::no_sandbox(id));
        }
        if let Some(mode) = network {
            self.apply_network(&row.id, mode).await?;
        }
        self.sandbox(caller, id).await
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
        let change = SandboxChange { standing: Some(Standing::Deleting), ..SandboxChange::default() };
        if !self.store().change_sandbox(&row.id, change).await? {
            return Ok(());
        }
        if let Ok(sandbox) = self.node().sandbox(&row.id) {
            sandbox.delete().await?;
        }
        self.activity().forget(&row.id);
        self.consoles().forget(&row.id);
        self.open_contexts().forget_all(&row.id);
        self.store().remove_sandbox(&row.id).await?;
        self.happened(&row.tenant, &row.id, event, None).await;
        Ok(())
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
