//! Requests to one repository: let in by the credentials that its registry asks for.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderValue, WWW_AUTHENTICATE};
use hyper::{StatusCode, Uri};
use serde::Deserialize;

use super::Client;
use super::address;
use super::challenge::{self, Challenge};
use super::credentials::Login;
use super::error::PullError;
use super::http::{Answer, Ask};
use crate::reference::Reference;

/// Longest answer of a token server.
const TOKEN_BYTES_MAX: u64 = 1 << 20;
/// Longest error text that is read, and shown.
const MESSAGE_BYTES_MAX: u64 = 1 << 16;
const MESSAGE_SHOWN_MAX: usize = 200;
/// Longest pause between two tries.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(10);

/// One pull's dealings with a registry.
pub(super) struct Session<'a> {
    client: &'a Client,
    reference: &'a Reference,
    base: String,
    login: Option<&'a Login>,
    authorization: Mutex<Option<HeaderValue>>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> Session<'a> {
    pub(super) fn new(client: &'a Client, reference: &'a Reference) -> Self {
        let settings = &client.settings;
        let host = settings.endpoints.get(reference.registry()).unwrap_or(reference.registry());
        let scheme = if settings.plain_http.allows(host) { "http" } else { "https" };
        Self {
            client,
            reference,
            base: format!("{scheme}://{host}/v2/{}/", reference.repository()),
            login: client.credentials.for_image(reference),
            authorization: Mutex::new(None),
        }
    }

    pub(super) fn reference(&self) -> &Reference {
        self.reference
    }

    /// Asks for something of the repository, once. The answer is 200, or 206 or 416 when asked to begin in the middle.
    pub(super) async fn get(
        &self,
        path: &str,
        accept: &'static str,
        from_byte: u64,
    ) -> Result<Answer, PullError> {
        let address = self.address(path)?;
        let known = self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut ask = Ask { address: address.clone(), accept, authorization: known, from_byte, form: None };
        let mut answer = self.client.http.send(ask.clone()).await?;
        if answer.status() == StatusCode::UNAUTHORIZED && address::same_server(&answer.address, &address) {
            // Not asked yet, or what we had is no longer good.
            let authorization = self.authorize(&answer).await?;
            *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(authorization.clone());
            ask.authorization = Some(authorization);
            answer = self.client.http.send(ask).await?;
        }
        match answer.status() {
            StatusCode::OK => Ok(answer),
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if from_byte > 0 => Ok(answer),
            StatusCode::NOT_FOUND => Err(PullError::NotFound { reference: self.reference.to_string() }),
            _ => Err(refusal(answer).await),
        }
    }

    /// The pause after some failures in a row.
    pub(super) fn delay(&self, failures: u32) -> Duration {
        let factor = 1 << failures.saturating_sub(1).min(10);
        self.client.settings.retry_delay.saturating_mul(factor).min(RETRY_DELAY_MAX)
    }

    pub(super) fn attempts_max(&self) -> u32 {
        self.client.settings.attempts_max
    }

    fn address(&self, path: &str) -> Result<Uri, PullError> {
        let host = self.reference.registry().to_string();
        format!("{}{path}", self.base)
            .parse()
            .map_err(|_| PullError::Protocol { host, reason: "its address cannot be asked" })
    }

    async fn authorize(&self, answer: &Answer) -> Result<HeaderValue, PullError> {
        let host = answer.host();
        let denied = |message: &str| PullError::Denied { host: host.clone(), message: message.to_owned() };
        let headers = answer.response.headers().get_all(WWW_AUTHENTICATE);
        let challenges: Vec<Challenge> =
            headers.iter().filter_map(|value| value.to_str().ok()).flat_map(challenge::parse).collect();
        let bearer = challenges.iter().find(|challenge| matches!(challenge, Challenge::Bearer { .. }));
        match bearer.or_else(|| challenges.first()) {
            Some(Challenge::Bearer { realm, service, scope }) => {
                let realm = address::lead(&answer.address, realm, &self.client.settings.plain_http)?;
                let scope = scope
                    .clone()
                    .unwrap_or_else(|| format!("repository:{}:pull", self.reference.repository()));
                let token = self.token(&realm, service.as_deref(), &scope).await?;
                header(&format!("Bearer {token}")).ok_or_else(|| denied("its token server sent no token"))
            }
            Some(Challenge::Basic) => match self.login {
                Some(login @ Login::Password { .. }) => basic(login).ok_or_else(|| denied("")),
                _ => Err(denied("it wants a name and a password")),
            },
            None => Err(denied("it does not say what it wants")),
        }
    }

    async fn token(&self, realm: &Uri, service: Option<&str>, scope: &str) -> Result<String, PullError> {
        let mut query = format!("scope={}", escaped(scope));
        if let Some(service) = service {
            query.push_str(&format!("&service={}", escaped(service)));
        }
        let wrong = |reason| PullError::Protocol { host: address::host(realm), reason };
        let mut ask = Ask {
            address: realm.clone(),
            accept: "application/json",
            authorization: None,
            from_byte: 0,
            form: None,
        };
        if let Some(Login::IdentityToken(token)) = self.login {
            query.push_str("&grant_type=refresh_token&client_id=pandastack&refresh_token=");
            query.push_str(&escaped(token));
            ask.form = Some(query);
        } else {
            let joint = if realm.query().is_some() { '&' } else { '?' };
            ask.address =
                format!("{realm}{joint}{query}").parse().map_err(|_| wrong("its address cannot be asked"))?;
            ask.authorization = self.login.and_then(basic);
        }
        let answer = self.client.http.send(ask).await?;
        if answer.status() != StatusCode::OK {
            return Err(refusal(answer).await);
        }
        let bytes = answer.whole("the answer of the token server", TOKEN_BYTES_MAX).await?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|_| wrong("its answer holds no token"))?;
        let given = [token.token, token.access_token].into_iter().flatten().find(|token| !token.is_empty());
        given.ok_or_else(|| wrong("its answer holds no token"))
    }
}

fn basic(login: &Login) -> Option<HeaderValue> {
    match login {
        Login::Password { user, password } => {
            header(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
        }
        Login::IdentityToken(_) => None,
    }
}

/// A header that is never written to a log.
fn header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What an answer that is none says for itself.
async fn refusal(answer: Answer) -> PullError {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        #[serde(default)]
        message: String,
    }
    let (host, status) = (answer.host(), answer.status());
    let bytes = answer.whole("an error", MESSAGE_BYTES_MAX).await.unwrap_or_default();
    let said =
        serde_json::from_slice::<Errors>(&bytes).ok().and_then(|errors| errors.errors.into_iter().next());
    let message = said.map(|one| one.message).unwrap_or_default();
    let message: String = message.chars().filter(|c| !c.is_control()).take(MESSAGE_SHOWN_MAX).collect();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PullError::Denied { host, message },
        status => PullError::Status { host, status: status.as_u16(), message },
    }
}
