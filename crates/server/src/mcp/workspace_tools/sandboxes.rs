//! Tools that make, keep and remove sandboxes.

use contract::lifecycle::StatusAnswer;
use contract::sandbox::{CreateSandbox, SandboxFilter, SandboxStatus};
use contract::snapshot::ForkRequest;
use control::ControlError;
use serde_json::{Value, json};

use super::arguments::{Create, Fork, One, OneSnapshot, Snapshots};
use crate::mcp::tool::{ToolAnswer, ToolCall};

/// What a sandbox is made from unless told otherwise.
const TEMPLATE_DEFAULT: &str = "code-interpreter";

pub(super) async fn create(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let Create { template, from_snapshot, ttl_seconds, metadata } = call.arguments()?;
    let template = match &from_snapshot {
        Some(_) => template,
        None => Some(template.unwrap_or_else(|| TEMPLATE_DEFAULT.to_owned())),
    };
    let request =
        CreateSandbox { template, from_snapshot, ttl_seconds, metadata, ..CreateSandbox::default() };
    ToolAnswer::json(&call.control.create_sandbox(call.caller, request, None).await?)
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
    let Fork { sandbox_id, count, metadata } = call.arguments()?;
    ToolAnswer::json(
        &call
            .control
            .fork(call.caller, &sandbox_id, ForkRequest { count, metadata, ..ForkRequest::default() })
            .await?,
    )
}

pub(super) async fn hibernate(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    call.control.hibernate(call.caller, &sandbox_id).await?;
    ToolAnswer::json(&StatusAnswer { status: SandboxStatus::Hibernated })
}

pub(super) async fn wake(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    call.control.wake(call.caller, &sandbox_id).await?;
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
