//! Who we are to registries: given by the caller, or read from a file as `docker login` writes it.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::reference::Reference;

/// Why a file with credentials cannot be used. Tells nothing of what is in it.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// Not JSON of the right form.
    #[error("file with credentials cannot be read")]
    Malformed,
    /// A login that is no name and password.
    #[error("credentials for `{registry}` cannot be read")]
    Login {
        /// For which registry.
        registry: String,
    },
}

/// How to log in.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// A name and a password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token that gets other tokens.
    IdentityToken(String),
}

/// Never shows a secret.
impl fmt::Debug for Login {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => write!(out, "Password({user})"),
            Self::IdentityToken(_) => write!(out, "IdentityToken"),
        }
    }
}

/// Logins by registry, or by registry and the start of a repository's path.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    logins: BTreeMap<String, Login>,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerLogin>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
struct DockerLogin {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    identitytoken: String,
}

impl Credentials {
    /// Nobody anywhere.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a login for `host[:port]`, or for `host[:port]/path` and what is below it.
    pub fn add(&mut self, registry: &str, login: Login) {
        self.logins.insert(normal(registry), login);
    }

    /// Reads what `docker login` writes (`config.json`, or podman's `auth.json`). Programs that keep credentials elsewhere are not
    /// run; entries that are left to them are passed over.
    ///
    /// # Errors
    /// When it is not such a file, or a login in it is damaged.
    pub fn from_docker_config(bytes: &[u8]) -> Result<Self, CredentialsError> {
        let config: DockerConfig = serde_json::from_slice(bytes).map_err(|_| CredentialsError::Malformed)?;
        let mut credentials = Self::default();
        for (registry, login) in config.auths {
            let wrong = || CredentialsError::Login { registry: registry.clone() };
            let login = if !login.identitytoken.is_empty() {
                Login::IdentityToken(login.identitytoken)
            } else if !login.auth.is_empty() {
                let bytes = STANDARD.decode(login.auth.trim()).map_err(|_| wrong())?;
                let text = String::from_utf8(bytes).map_err(|_| wrong())?;
                let (user, password) = text.split_once(':').ok_or_else(wrong)?;
                // Docker pads with NULs.
                let password = password.trim_end_matches('\0').to_owned();
                Login::Password { user: user.to_owned(), password }
            } else if !login.username.is_empty() {
                Login::Password { user: login.username, password: login.password }
            } else {
                continue;
            };
            credentials.add(&registry, login);
        }
        Ok(credentials)
    }

    /// The login for an image: that of the longest name it is below.
    pub(super) fn for_image(&self, reference: &Reference) -> Option<&Login> {
        let full = format!("{}/{}", reference.registry(), reference.repository());
        let mut name = full.as_str();
        loop {
            if let Some(login) = self.logins.get(name) {
                return Some(login);
            }
            name = &name[..name.rfind('/')?];
        }
    }
}

/// Keys were addresses once: `https://host/v1/` means the host.
fn normal(registry: &str) -> String {
    let bare = registry.strip_prefix("https://").or_else(|| registry.strip_prefix("http://"));
    let name = match bare {
        Some(address) => address.split('/').next().unwrap_or(address),
        None => registry.trim_end_matches('/'),
    };
    let (host, path) = name.split_once('/').map_or((name, None), |(host, path)| (host, Some(path)));
    let host = match host.to_ascii_lowercase().as_str() {
        // `docker login` writes down the address that Docker Hub had at first.
        "index.docker.io" => "docker.io".to_owned(),
        host => host.to_owned(),
    };
    match path {
        Some("v1" | "v2") | None => host,
        Some(path) => format!("{host}/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Naming;

    #[test]
    fn logins_are_found_by_the_longest_name() {
        let file = br#"{"auths": {
            "https://hub.example/v1/": {"auth": "dXNlcjpwYXNzOndvcmQ="},
            "ghcr.example/team": {"username": "t", "password": "p"},
            "ghcr.example": {"identitytoken": "secret"},
            "kept.example": {}}, "credsStore": "desktop"}"#;
        let credentials = Credentials::from_docker_config(file).unwrap();
        let login =
            |name: &str| credentials.for_image(&Reference::parse(name, &Naming::default()).unwrap()).cloned();
        let password =
            |user: &str, password: &str| Login::Password { user: user.into(), password: password.into() };
        assert_eq!(login("hub.example/a"), Some(password("user", "pass:word")));
        assert_eq!(login("ghcr.example/team/a"), Some(password("t", "p")));
        assert_eq!(login("ghcr.example/teams/a"), Some(Login::IdentityToken("secret".into())));
        assert_eq!((login("kept.example/a"), login("other.example/hub.example/a")), (None, None));
        let shown = format!("{credentials:?}");
        assert!(!shown.contains("secret") && !shown.contains("pass:word"), "{shown}");
        for wrong in [
            &b"nonsense"[..],
            br#"{"auths": {"a": {"auth": "%%"}}}"#,
            br#"{"auths": {"a": {"auth": "dXNlcg=="}}}"#,
        ] {
            assert!(Credentials::from_docker_config(wrong).is_err());
        }
    }
}
