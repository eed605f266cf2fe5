//! Keys, and who is calling.

use contract::identity::{CreateToken, CreatedToken, Me, Organisation, PatchMe, Token};
use contract::time::rfc3339;
use domain::TenantId;
use store::{Scope, TenantRow, TokenRow};

use crate::authenticate::hash;
use crate::caller::{Caller, parse_scope, scope_name};
use crate::clock::now_ms;
use crate::control::{Control, random};
use crate::error::ControlError;
use crate::names;
use crate::sandboxes::stored_mode;
use crate::view::network_mode;

/// `pds_` and eight characters: enough to tell keys apart, nothing to guess the rest from.
const PREFIX_LENGTH: usize = 12;
/// Shortest key taken from outside: 128 bits in hexadecimal.
const KEY_LENGTH_MIN: usize = 4 + 32;
const DAY_MS: f64 = 86_400_000.0;
const DAYS_MAX: f64 = 36_500.0;

fn token(row: &TokenRow) -> Token {
    Token {
        prefix: row.prefix.clone(),
        label: row.label.clone(),
        name: row.label.clone(),
        scope: scope_name(row.scope).to_owned(),
        created_at: rfc3339(row.created_ms),
        expires_at: row.expires_ms.map(rfc3339),
    }
}

fn row(key: &str, tenant: &TenantId, label: String, scope: Scope, expires_ms: Option<i64>) -> TokenRow {
    TokenRow {
        hash: hash(key),
        prefix: key.chars().take(PREFIX_LENGTH).collect(),
        tenant: tenant.clone(),
        label,
        scope,
        created_ms: now_ms(),
        expires_ms,
        revoked_ms: None,
    }
}

/// The first key of a tenant, which may do everything.
pub(crate) fn first_key(key: &str, tenant: &TenantId, label: &str) -> TokenRow {
    row(key, tenant, label.to_owned(), Scope::Admin, None)
}

/// Whether a key from outside could be a key.
pub fn check_bootstrap_key(key: &str) -> Result<(), ControlError> {
    let plain =
        key.strip_prefix("pds_").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    if plain && key.len() >= KEY_LENGTH_MIN {
        return Ok(());
    }
    Err(ControlError::invalid("the bootstrap key must be `pds_` followed by at least 32 letters and digits"))
}

pub(crate) fn new_key() -> Result<String, ControlError> {
    let bytes: [u8; 24] = random().map_err(ControlError::internal)?;
    Ok(bytes.iter().fold("pds_".to_owned(), |key, byte| format!("{key}{byte:02x}")))
}

impl Control {
    /// Makes the first tenant and its key, unless there is a tenant. The key is `given`, or a new one; it is returned when it was
    /// made or taken now.
    pub async fn bootstrap(&self, given: Option<&str>) -> Result<Option<String>, ControlError> {
        let tenants = self.store().tenants().await?;
        if let Some(key) = given {
            check_bootstrap_key(key)?;
            if self.store().token_by_hash(hash(key)).await?.is_some() {
                return Ok(None);
            }
        } else if !tenants.is_empty() {
            return Ok(None);
        }
        let key = match given {
            Some(key) => key.to_owned(),
            None => new_key()?,
        };
        let tenant = match tenants.into_iter().next_back() {
            Some(tenant) => tenant.id,
            None => self.add_tenant("default").await?,
        };
        self.store().add_token(row(&key, &tenant, "bootstrap".to_owned(), Scope::Admin, None)).await?;
        Ok(Some(key))
    }

    /// Adds a tenant. For operators; no API key can.
    pub async fn add_tenant(&self, name: &str) -> Result<TenantId, ControlError> {
        let id = TenantId::from_random(random().map_err(ControlError::internal)?);
        let tenant = TenantRow {
            id: id.clone(),
            name: names::label(name)?,
            quota: None,
            network_default: None,
            created_ms: now_ms(),
        };
        self.store().add_tenant(tenant).await?;
        Ok(id)
    }

    /// Adds a key for a tenant. For operators.
    pub async fn add_key(&self, tenant: &TenantId, label: &str) -> Result<String, ControlError> {
        let key = new_key()?;
        self.store().add_token(row(&key, tenant, names::label(label)?, Scope::Admin, None)).await?;
        Ok(key)
    }

    /// All tenants. For operators.
    pub async fn tenants(&self) -> Result<Vec<TenantRow>, ControlError> {
        Ok(self.store().tenants().await?)
    }

    /// Who is calling.
    pub async fn me(&self, caller: &Caller) -> Result<Me, ControlError> {
        let organisation = self.organisation(caller).await?;
        let network_default = self.tenant(&caller.tenant).await?.network_default.map(network_mode);
        Ok(Me {
            id: caller.tenant.to_string(),
            user_id: caller.tenant.to_string(),
            name: organisation.name.clone(),
            email: String::new(),
            workspace: caller.tenant.to_string(),
            current_org_id: organisation.id.clone(),
            orgs: vec![organisation.clone()],
            current_org: organisation,
            auth_method: "api_key".to_owned(),
            scope: scope_name(caller.scope).to_owned(),
            network_default,
        })
    }

    /// Changes the caller's workspace.
    pub async fn patch_me(&self, caller: &Caller, patch: PatchMe) -> Result<Me, ControlError> {
        caller.require(Scope::Admin)?;
        if let Some(mode) = patch.network_default
            && !self.store().set_network_default(&caller.tenant, mode.map(stored_mode)).await?
        {
            return Err(ControlError::not_found("there is no such workspace"));
        }
        self.me(caller).await
    }

    /// The caller's workspace as an organisation.
    pub async fn organisation(&self, caller: &Caller) -> Result<Organisation, ControlError> {
        let tenant = self.tenant(&caller.tenant).await?;
        let role = if caller.scope == Scope::Admin { "owner" } else { "member" };
        Ok(Organisation {
            id: tenant.id.to_string(),
            slug: tenant.id.to_string(),
            name: tenant.name,
            role: role.to_owned(),
            created_at: rfc3339(tenant.created_ms),
        })
    }

    /// The caller's keys.
    pub async fn tokens(&self, caller: &Caller) -> Result<Vec<Token>, ControlError> {
        caller.require(Scope::Admin)?;
        let now = now_ms();
        let rows = self.store().tokens(&caller.tenant).await?;
        let working = rows.iter().filter(|row| row.expires_ms.is_none_or(|expires| expires > now));
        Ok(working.map(token).collect())
    }

    /// A new key.
    pub async fn create_token(
        &self,
        caller: &Caller,
        request: CreateToken,
    ) -> Result<CreatedToken, ControlError> {
        caller.require(Scope::Admin)?;
        let label = names::label(&request.label.or(request.name).unwrap_or_default())?;
        let scope = request.scope.as_deref().map_or(Ok(caller.scope), parse_scope)?;
        caller.require(scope)?;
        let expires_ms = match request.expires_in_days {
            None => None,
            Some(days) if days > 0.0 && days <= DAYS_MAX => Some(now_ms() + (days * DAY_MS) as i64),
            Some(_) => {
                let message = format!("expires_in_days must be more than 0 and at most {DAYS_MAX}");
                return Err(ControlError::invalid(message));
            }
        };
        let key = new_key()?;
        let row = row(&key, &caller.tenant, label, scope, expires_ms);
        let about = token(&row);
        self.store().add_token(row).await?;
        Ok(CreatedToken { token: key, about })
    }

    /// Makes a key useless from now on.
    pub async fn revoke_token(&self, caller: &Caller, prefix: &str) -> Result<(), ControlError> {
        caller.require(Scope::Admin)?;
        let revoked = self.store().revoke_token(&caller.tenant, prefix, now_ms()).await?;
        self.known_tokens().clear();
        match revoked {
            true => Ok(()),
            false => Err(ControlError::not_found(format!(
                "there is no key with the prefix {}",
                names::shown(prefix)
            ))),
        }
    }
}
