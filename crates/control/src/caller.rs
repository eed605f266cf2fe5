//! Who asks.

use domain::TenantId;
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
}

impl Caller {
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
