//! Tools that make, keep and remove sandboxes.

use contract::lifecycle::{PatchLifecycle, StatusAnswer};
use contract::sandbox::{CreateSandbox, PatchSandbox, Sandbox, SandboxFilter, SandboxStatus};
use contract::snapshot::ForkRequest;
use control::ControlError;
use serde_json::{Value, json};

use super::arguments::{Fork, One, OneSnapshot, Snapshots, Update, Wake};
use crate::mcp::hints;
use crate::mcp::tool::{ToolAnswer, ToolCall};

/// What a sandbox is made from unless told otherwise.
const TEMPLATE_DEFAULT: &str = "code-interpreter";

pub(super) async fn create(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let mut request: CreateSandbox = call.arguments()?;
    if request.from_snapshot.is_none() {
        request.template.get_or_insert_with(|| TEMPLATE_DEFAULT.to_owned());
    }
    let made = call.control.create_sandbox(call.caller, request, None).await?;
    tracing::Span::current().record("sandbox.id", made.id.as_str());
    ToolAnswer::json(&told(&call, made))
}

pub(super) async fn get(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    let sandbox = call.control.sandbox(call.caller, &sandbox_id).await?;
    ToolAnswer::json(&told(&call, sandbox))
}

pub(super) async fn update(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let Update { sandbox_id, name, ttl_seconds, persistent, metadata, env, network } = call.arguments()?;
    // Models that fill in every argument give `null`, so that is no name to remove; an empty one is.
    let name = name.map(|name| Some(name).filter(|name| !name.is_empty()));
    let patch = PatchSandbox { name, metadata, env, network };
    // By its id: it may have another name afterwards.
    let id = call.control.sandbox(call.caller, &sandbox_id).await?.id;
    let mut sandbox = call.control.patch_sandbox(call.caller, &id, patch).await?;
    if ttl_seconds.is_some() || persistent.is_some() {
        let lifecycle = PatchLifecycle { ttl_seconds, persistent };
        let changed = call.control.patch_lifecycle(call.caller, &id, lifecycle).await?;
        (sandbox.ttl_seconds, sandbox.persistent) = (changed.ttl_seconds, changed.persistent);
        sandbox.idle_seconds_left = None;
    }
    ToolAnswer::json(&told(&call, sandbox))
}

/// A sandbox, with warnings in the words of the tools.
fn told(call: &ToolCall<'_>, mut sandbox: Sandbox) -> Sandbox {
    for warning in &mut sandbox.warnings {
        *warning = hints::translated(warning, call.scope());
    }
    sandbox
}

pub(super) async fn list(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let list = call.control.list_sandboxes(call.caller, SandboxFilter::default()).await?;
    ToolAnswer::json(&serde_json::from_slice::<Value>(&list).map_err(ControlError::internal)?)
}

pub(super) async fn delete(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    call.control.delete_sandbox(call.caller, &sandbox_id).await?;
    ToolAnswer::json(&json!({ "id": sandbox_id, "status": SandboxStatus::Deleted }))
}

pub(super) async fn fork(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let Fork { sandbox_id, count, name, metadata } = call.arguments()?;
    ToolAnswer::json(
        &call
            .control
            .fork(call.caller, &sandbox_id, ForkRequest { count, name, metadata, ..ForkRequest::default() })
            .await?,
    )
}

pub(super) async fn hibernate(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    call.control.hibernate(call.caller, &sandbox_id).await?;
    ToolAnswer::json(&StatusAnswer { status: SandboxStatus::Hibernated })
}

pub(super) async fn wake(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let Wake { sandbox_id, cold } = call.arguments()?;
    if cold.unwrap_or(false) {
        call.control.start_cold(call.caller, &sandbox_id).await?;
    } else if call.control.sandbox(call.caller, &sandbox_id).await?.status == SandboxStatus::Paused {
        call.control.resume(call.caller, &sandbox_id).await?;
    } else {
        call.control.wake(call.caller, &sandbox_id).await?;
    }
    ToolAnswer::json(&StatusAnswer { status: SandboxStatus::Running })
}

pub(super) async fn snapshot(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    ToolAnswer::json(&call.control.create_snapshot(call.caller, &sandbox_id).await?)
}

pub(super) async fn snapshots(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let Snapshots { sandbox_id } = call.arguments()?;
    ToolAnswer::json(&call.control.list_snapshots(call.caller, sandbox_id.as_deref()).await?)
}

pub(super) async fn delete_snapshot(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let OneSnapshot { snapshot_id } = call.arguments()?;
    call.control.delete_snapshot(call.caller, &snapshot_id).await?;
    ToolAnswer::json(&json!({ "id": snapshot_id, "status": "deleted" }))
}

pub(super) async fn templates(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    ToolAnswer::json(&call.control.list_templates(call.caller).await?)
}
