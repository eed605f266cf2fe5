//! URLs of files that work without a key: signed, so that the server keeps nothing of them.
//!
//! A URL is good for one operation on one path of one sandbox, until it expires.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::file::{FileOperation, SignFile, SignedFile};
use contract::time::rfc3339;
use domain::{SandboxId, TenantId};
use guest_link::client::{FileReader, FileWriter};
use serde::{Deserialize, Serialize};
use store::{PreviewKey, Scope};

use crate::access::InUse;
use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::Control;
use crate::error::{ControlError, Kind};
use crate::files::{open_reader, open_writer, path_of};
use crate::names;
use crate::ports::not_running;
use crate::preview::seal;

const EXPIRES_SECONDS_DEFAULT: i64 = 3600;
const EXPIRES_SECONDS_MAX: i64 = 604_800;
/// Longest token that is looked at: a path of 4,096 bytes, escaped and encoded, fits.
const TOKEN_BYTES_MAX: usize = 64 * 1024;
/// Keeps these seals apart from those of preview links, which are made with the same key.
const PURPOSE: &[u8] = b"file\0";
/// Stands in the audit log where requests with a key have its prefix.
const AUDITED_AS: &str = "signed url";

/// What a signed URL says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileGrant {
    #[serde(rename = "s")]
    sandbox: SandboxId,
    #[serde(rename = "t")]
    tenant: TenantId,
    #[serde(rename = "f")]
    path: String,
    #[serde(rename = "o")]
    operation: FileOperation,
    #[serde(rename = "e")]
    expires_ms: i64,
}

fn sealed(body: &[u8]) -> Vec<u8> {
    [PURPOSE, body].concat()
}

fn sign(key: &PreviewKey, grant: &FileGrant) -> Result<String, ControlError> {
    use hmac::Mac;
    let body = serde_json::to_vec(grant).map_err(ControlError::internal)?;
    let seal = seal(key, &sealed(&body))?.finalize().into_bytes();
    Ok(format!("{}.{}", URL_SAFE_NO_PAD.encode(&body), URL_SAFE_NO_PAD.encode(seal)))
}

fn verify(key: &PreviewKey, token: &str, now_ms: i64) -> Result<FileGrant, ControlError> {
    use hmac::Mac;
    let bad = || ControlError::new(Kind::Unauthorized, "this URL of a file is not valid");
    if token.len() > TOKEN_BYTES_MAX {
        return Err(bad());
    }
    let (body, mark) = token.split_once('.').ok_or_else(bad)?;
    let body = URL_SAFE_NO_PAD.decode(body).map_err(|_| bad())?;
    let mark = URL_SAFE_NO_PAD.decode(mark).map_err(|_| bad())?;
    seal(key, &sealed(&body))?.verify_slice(&mark).map_err(|_| bad())?;
    let grant: FileGrant = serde_json::from_slice(&body).map_err(|_| bad())?;
    if grant.expires_ms <= now_ms {
        let expired = ControlError::new(Kind::Unauthorized, "this URL of a file has expired");
        return Err(expired.hint("ask for a new one where you got it"));
    }
    Ok(grant)
}

impl FileGrant {
    /// The sandbox.
    #[must_use]
    pub const fn sandbox(&self) -> &SandboxId {
        &self.sandbox
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What may be done with it.
    #[must_use]
    pub const fn operation(&self) -> FileOperation {
        self.operation
    }

    /// The caller as the audit log names it.
    #[must_use]
    pub fn caller(&self) -> Caller {
        let scope = match self.operation {
            FileOperation::Read => Scope::Read,
            FileOperation::Write => Scope::Write,
        };
        Caller::new(self.tenant.clone(), AUDITED_AS.to_owned(), scope)
    }
}

impl Control {
    /// A URL of a file that works without a key for a while. `base` is where the API is reached.
    pub async fn sign_file(
        &self,
        caller: &Caller,
        id: &str,
        request: SignFile,
        base: &str,
    ) -> Result<SignedFile, ControlError> {
        caller.require(Scope::Write)?;
        path_of(&request.path)?;
        let seconds = request.expires_in_seconds.unwrap_or(EXPIRES_SECONDS_DEFAULT);
        if !(1..=EXPIRES_SECONDS_MAX).contains(&seconds) {
            let message = format!("expires_in_seconds must be between 1 and {EXPIRES_SECONDS_MAX}");
            return Err(ControlError::invalid(message));
        }
        let row = self.row(caller, id).await?;
        let grant = FileGrant {
            sandbox: row.id,
            tenant: row.tenant,
            path: request.path,
            operation: request.operation,
            expires_ms: now_ms() + seconds * 1000,
        };
        let token = sign(self.preview_key(), &grant)?;
        let method = match grant.operation {
            FileOperation::Read => "GET",
            FileOperation::Write => "PUT",
        };
        Ok(SignedFile {
            url: format!("{}/v1/f/{token}", base.trim_end_matches('/')),
            method: method.to_owned(),
            expires_at: rfc3339(grant.expires_ms),
            path: grant.path,
        })
    }

    /// What a signed URL says, if it is ours and still works.
    pub fn open_signed_file(&self, token: &str) -> Result<FileGrant, ControlError> {
        verify(self.preview_key(), token, now_ms())
    }

    async fn enter_signed(&self, grant: &FileGrant) -> Result<InUse, ControlError> {
        let row = self.store().sandbox(&grant.sandbox).await?;
        let row = row.filter(|row| row.tenant == grant.tenant);
        let row = row.ok_or_else(|| names::no_sandbox(grant.sandbox.as_str()))?;
        self.enter_row(row).await.map_err(not_running)
    }

    /// Opens a file for reading on the strength of a signed URL.
    pub async fn read_signed_file(&self, grant: &FileGrant) -> Result<(InUse, FileReader), ControlError> {
        let path = path_of(&grant.path)?;
        let sandbox = self.enter_signed(grant).await?;
        open_reader(sandbox, path).await
    }

    /// Opens a file for writing on the strength of a signed URL.
    pub async fn write_signed_file(&self, grant: &FileGrant) -> Result<(InUse, FileWriter), ControlError> {
        let path = path_of(&grant.path)?;
        let sandbox = self.enter_signed(grant).await?;
        open_writer(sandbox, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> FileGrant {
        FileGrant {
            sandbox: SandboxId::from_random([1; 16]),
            tenant: TenantId::from_random([2; 16]),
            path: "/root/é \" .txt".to_owned(),
            operation: FileOperation::Read,
            expires_ms: 1000,
        }
    }

    #[test]
    fn urls_are_refused_when_changed_expired_or_of_another_key() {
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
        for bad in ["", ".", "a.b"] {
            assert!(verify(&key, bad, 0).is_err());
        }
    }

    #[test]
    fn a_preview_link_opens_no_file_and_the_reverse() {
        use hmac::Mac;
        let key = PreviewKey([7; 32]);
        // The same words, sealed as a preview link is.
        let body = serde_json::to_vec(&grant()).unwrap();
        let mark = seal(&key, &body).unwrap().finalize().into_bytes();
        let token = format!("{}.{}", URL_SAFE_NO_PAD.encode(&body), URL_SAFE_NO_PAD.encode(mark));
        assert!(verify(&key, &token, 0).is_err());
        let token = sign(&key, &grant()).unwrap();
        assert!(crate::preview::verify(&key, &token, 0).is_err());
    }
}
