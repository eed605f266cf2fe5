//! Pulling from registries by the distribution protocol.
//!
//! Everything that comes is checked against a digest while it streams; what a server says beyond that is believed as little as
//! possible. Credentials go to the registry they are for, and to the token server it names, and nowhere else: a redirect to another
//! host loses them. Dropping the future of a pull ends it; what has come of a blob stays for the next try.

mod address;
mod blob;
mod blocking;
mod challenge;
mod credentials;
mod error;
mod http;
mod partial;
mod pull;
mod session;
mod settings;
mod tls;

pub use credentials::{Credentials, CredentialsError, Login};
pub use error::{PullError, PullLimit};
pub use pull::{Progress, Pulled};
pub use settings::{PlainHttp, PullSettings};
pub use tls::TlsError;

use http::Http;

/// Pulls images.
pub struct Client {
    settings: PullSettings,
    credentials: Credentials,
    http: Http,
}

impl Client {
    /// A client with the host's trusted certificates and `settings.certificates`.
    ///
    /// # Errors
    /// When there is no certificate to trust at all, or one of those given is none.
    pub fn new(settings: PullSettings, credentials: Credentials) -> Result<Self, TlsError> {
        let http = Http::new(&settings)?;
        Ok(Self { settings, credentials, http })
    }
}
