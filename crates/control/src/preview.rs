//! Links that work without a key: signed ones, and hosts whose name holds a sandbox's id.
//!
//! A signed link says which sandbox, port and paths, until when, and nothing that the server would have to keep.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::port::{CreatePreview, Preview};
use contract::time::rfc3339;
use domain::{SandboxId, TenantId};
use guest_link::client::Connection;
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use store::{PreviewKey, Scope};

use crate::access::InUse;
use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::Control;
use crate::error::{ControlError, Kind};
use crate::names;
use crate::ports::{not_running, open_to_the_world};

const TTL_SECONDS_DEFAULT: i64 = 3600;
const TTL_SECONDS_MAX: i64 = 604_800;
/// Most paths of one link, and the longest of them.
const PATHS_MAX: usize = 32;
const PATH_BYTES_MAX: usize = 1024;
/// Longest link that is looked at.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// What a signed link says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewGrant {
    #[serde(rename = "s")]
    sandbox: SandboxId,
    #[serde(rename = "t")]
    tenant: TenantId,
    /// The port.
    #[serde(rename = "p")]
    pub port: u16,
    #[serde(rename = "e")]
    expires_ms: i64,
    /// Paths it is limited to; none means all.
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
}

/// What a host name asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewTarget {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The port.
    pub port: u16,
}

impl PreviewTarget {
    /// Reads `{port}-{id}`, the first label of a host name.
    #[must_use]
    pub fn parse(label: &str) -> Option<Self> {
        let (port, id) = label.split_once('-')?;
        if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Self { sandbox: SandboxId::parse(id).ok()?, port: port.parse().ok()? })
    }
}

pub(crate) fn seal(key: &PreviewKey, body: &[u8]) -> Result<Hmac<Sha256>, ControlError> {
    let mut seal = Hmac::<Sha256>::new_from_slice(&key.0).map_err(ControlError::internal)?;
    seal.update(body);
    Ok(seal)
}

fn sign(key: &PreviewKey, grant: &PreviewGrant) -> Result<String, ControlError> {
    let body = serde_json::to_vec(grant).map_err(ControlError::internal)?;
    let seal = seal(key, &body)?.finalize().into_bytes();
    Ok(format!("{}.{}", URL_SAFE_NO_PAD.encode(&body), URL_SAFE_NO_PAD.encode(seal)))
}

pub(crate) fn verify(key: &PreviewKey, token: &str, now_ms: i64) -> Result<PreviewGrant, ControlError> {
    let bad = || ControlError::new(Kind::Unauthorized, "this preview link is not valid");
    if token.len() > TOKEN_BYTES_MAX {
        return Err(bad());
    }
    let (body, mark) = token.split_once('.').ok_or_else(bad)?;
    let body = URL_SAFE_NO_PAD.decode(body).map_err(|_| bad())?;
    let mark = URL_SAFE_NO_PAD.decode(mark).map_err(|_| bad())?;
    seal(key, &body)?.verify_slice(&mark).map_err(|_| bad())?;
    let grant: PreviewGrant = serde_json::from_slice(&body).map_err(|_| bad())?;
    if grant.expires_ms <= now_ms {
        return Err(ControlError::new(Kind::Unauthorized, "this preview link has expired"));
    }
    Ok(grant)
}

/// Whether a path lies at or below one of those granted. Paths that go up, openly or encoded, lie nowhere.
fn within(granted: &[String], path: &str) -> bool {
    if granted.is_empty() {
        return true;
    }
    let lower = path
        .to_ascii_lowercase()
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "/")
        .replace('\\', "/");
    // Some programs drop what follows a semicolon from each part.
    if lower.split('/').any(|part| part.split(';').next() == Some("..")) {
        return false;
    }
    granted.iter().any(|prefix| {
        let prefix = prefix.trim_end_matches('/');
        path == prefix || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
    })
}

impl PreviewGrant {
    /// Whether the link covers a path.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        within(&self.paths, path)
    }

    /// Whether the link is good for some paths only.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        !self.paths.is_empty()
    }
}

impl Control {
    /// A link to a port that works without a key for a while. `base` is where the API is reached.
    pub async fn create_preview(
        &self,
        caller: &Caller,
        id: &str,
        request: CreatePreview,
        base: &str,
    ) -> Result<Preview, ControlError> {
        caller.require(Scope::Write)?;
        let port = names::port(request.port)?;
        let ttl = request.ttl_seconds.filter(|&seconds| seconds != 0).unwrap_or(TTL_SECONDS_DEFAULT);
        if !(1..=TTL_SECONDS_MAX).contains(&ttl) {
            return Err(ControlError::invalid(format!(
                "ttl_seconds must be between 1 and {TTL_SECONDS_MAX}"
            )));
        }
        let paths = request.paths.unwrap_or_default();
        let plain = |path: &String| {
            path.starts_with('/')
                && path.len() <= PATH_BYTES_MAX
                && !path.contains("..")
                && !path.contains('%')
        };
        if paths.len() > PATHS_MAX || !paths.iter().all(plain) {
            let message = format!("paths: at most {PATHS_MAX} absolute paths without `..` and `%`");
            return Err(ControlError::invalid(message));
        }
        let row = self.row(caller, id).await?;
        let expires_ms = now_ms() + ttl * 1000;
        let grant = PreviewGrant {
            sandbox: row.id.clone(),
            tenant: row.tenant,
            port,
            expires_ms,
            paths: paths.clone(),
        };
        let token = sign(self.preview_key(), &grant)?;
        Ok(Preview {
            url: format!("{}/v1/p/{token}/", base.trim_end_matches('/')),
            token,
            sandbox_id: row.id.to_string(),
            port,
            paths,
            expires_at: rfc3339(expires_ms),
        })
    }

    /// What a signed link says, if it is ours and still works.
    pub fn open_preview(&self, token: &str) -> Result<PreviewGrant, ControlError> {
        verify(self.preview_key(), token, now_ms())
    }

    /// A connection on the strength of a signed link.
    pub async fn connect_preview(&self, grant: &PreviewGrant) -> Result<(InUse, Connection), ControlError> {
        let row = self.store().sandbox(&grant.sandbox).await?;
        let row = row.filter(|row| row.tenant == grant.tenant);
        let row = row.ok_or_else(|| names::no_sandbox(grant.sandbox.as_str()))?;
        let sandbox = self.enter_row(row).await.map_err(not_running)?;
        self.connect_in(sandbox, grant.port).await
    }

    /// A connection for whoever knows a sandbox's id, to the ports that are open to the world.
    pub async fn connect_public(&self, target: &PreviewTarget) -> Result<(InUse, Connection), ControlError> {
        let hidden = || names::no_sandbox(target.sandbox.as_str());
        let row = self.store().sandbox(&target.sandbox).await?.ok_or_else(hidden)?;
        if !open_to_the_world(&row, target.port) {
            let message = format!("port {} of this sandbox is not open to the world", target.port);
            let error = ControlError::forbidden(message);
            // Some ports are never opened.
            return Err(match names::port(i64::from(target.port)) {
                Ok(_) => error.hint("its owner opens it by adding it to the sandbox's ports"),
                Err(never) => error.hint(never.message),
            });
        }
        let sandbox = self.enter_row(row).await.map_err(not_running)?;
        self.connect_in(sandbox, target.port).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> PreviewGrant {
        PreviewGrant {
            sandbox: SandboxId::from_random([1; 16]),
            tenant: TenantId::from_random([2; 16]),
            port: 8000,
            expires_ms: 1000,
            paths: vec!["/app".to_owned()],
        }
    }

    #[test]
    fn links_are_refused_when_changed_expired_or_of_another_key() {
        let key = PreviewKey([7; 32]);
        let token = sign(&key, &grant()).unwrap();
        assert_eq!(verify(&key, &token, 999).unwrap(), grant());
        assert!(verify(&key, &token, 1000).is_err());
        assert!(verify(&PreviewKey([8; 32]), &token, 0).is_err());
        for index in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[index] ^= 1;
            let Ok(changed) = String::from_utf8(changed) else { continue };
            assert!(verify(&key, &changed, 0).is_err(), "{index}");
        }
        assert!(verify(&key, "", 0).is_err());
        assert!(verify(&key, ".", 0).is_err());
    }

    #[test]
    fn paths_limit_a_link() {
        let grant = grant();
        for path in ["/app", "/app/", "/app/a/b"] {
            assert!(grant.covers(path), "{path}");
        }
        for path in [
            "/",
            "/application",
            "/%61pp/../app",
            "/app/..;a=b/secret",
            "/app/%2e.",
            "//app",
            "/app/../secret",
            "/app/%2e%2E/secret",
            "/app/..%2fsecret",
            "/app\\..\\x",
        ] {
            assert!(!grant.covers(path), "{path}");
        }
    }

    #[test]
    fn host_labels_name_a_port_and_a_sandbox() {
        let id = SandboxId::from_random([1; 16]);
        let parsed = PreviewTarget::parse(&format!("8000-{id}")).unwrap();
        assert_eq!((parsed.port, parsed.sandbox), (8000, id));
        for label in ["", "8000", "-abc", "+80-abc", "99999-abc", "80-A", "www", "a-b"] {
            assert!(PreviewTarget::parse(label).is_none(), "{label}");
        }
    }
}
