//! Who asks.

use std::sync::{Arc, OnceLock};

use domain::{SandboxId, TenantId};
use store::Scope;

use crate::error::ControlError;

/// Somebody whose key was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Whose things it may see.
    pub tenant: TenantId,
    /// Prefix of the key, for the audit log.
    pub token: String,
    /// What the key allows.
    pub scope: Scope,
    /// The sandbox that its request named otherwise than by its id.
    resolved: Arc<OnceLock<SandboxId>>,
}

impl Caller {
    /// Whoever a key belongs to, at the beginning of a request.
    pub(crate) fn new(tenant: TenantId, token: String, scope: Scope) -> Self {
        Self { tenant, token, scope, resolved: Arc::default() }
    }

    /// Remembers which sandbox the request is about.
    pub(crate) fn note_resolved(&self, id: &SandboxId) {
        // The first stays: a request is about one sandbox, whatever else it looks up.
        let _ = self.resolved.set(id.clone());
    }

    /// The id of the sandbox that the request named by its name or by the beginning of its id, for logs.
    #[must_use]
    pub fn resolved(&self) -> Option<&SandboxId> {
        self.resolved.get()
    }

    /// Refuses a key that allows less.
    pub fn require(&self, scope: Scope) -> Result<(), ControlError> {
        if self.scope >= scope {
            return Ok(());
        }
        let needed = scope_name(scope);
        Err(ControlError::forbidden(format!("this key may not do that; it needs the scope `{needed}`")))
    }
}

pub(crate) fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "read",
        Scope::Write => "write",
        Scope::Admin => "admin",
    }
}

pub(crate) fn parse_scope(text: &str) -> Result<Scope, ControlError> {
    match text {
        "read" => Ok(Scope::Read),
        "write" => Ok(Scope::Write),
        "admin" => Ok(Scope::Admin),
        _ => Err(ControlError::invalid("scope must be `read`, `write` or `admin`")),
    }
}
