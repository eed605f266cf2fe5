//! A server and the key to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::ServerAddress;
use crate::error::ClientError;
use crate::events::Events;
use crate::http::{Ask, Http, Upload, upload_bytes};
use crate::retry;

/// A creation that was refused for lack of room and will be asked for again.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// What the server said.
    pub message: String,
    /// How long until then.
    pub delay: Duration,
}

/// How a server is reached.
#[derive(Clone)]
pub struct ApiSettings {
    /// Where it is.
    pub server: ServerAddress,
    /// The key to it.
    pub key: Option<String>,
    /// How long a creation that is refused for lack of room is asked for again.
    pub create_patience: Duration,
    /// Told of each such wait.
    pub waiting: Arc<dyn Fn(&Waiting) + Send + Sync>,
}

/// A server and the key to it. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    pub(crate) http: Http,
    create_patience: Duration,
    waiting: Arc<dyn Fn(&Waiting) + Send + Sync>,
}

impl Api {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// When the key cannot be sent, or there is no TLS.
    pub fn new(settings: ApiSettings) -> Result<Self, ClientError> {
        let http = Http::new(settings.server, settings.key.as_deref())?;
        Ok(Self { http, create_patience: settings.create_patience, waiting: settings.waiting })
    }

    /// Where the server is.
    pub fn server(&self) -> &ServerAddress {
        self.http.server()
    }

    /// Asks for something.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, None::<&()>).await
    }

    /// Sends something and reads the answer.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Changes something and reads the answer.
    pub(crate) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.call(Method::PATCH, path, Some(body)).await
    }

    /// Sends something; the answer has no body.
    pub(crate) async fn tell(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(), ClientError> {
        self.ask(method, path, body).await.map(drop)
    }

    pub(crate) async fn remove(&self, path: &str) -> Result<(), ClientError> {
        self.tell(Method::DELETE, path, None::<&()>).await
    }

    /// Asks for something to be made, again and again while there is no room for it.
    pub(crate) async fn make<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let started = Instant::now();
        let mut attempt = 0;
        loop {
            let error = match self.post(path, body).await {
                Err(ClientError::Refused(refusal)) => refusal,
                other => return other,
            };
            let remaining = self.create_patience.saturating_sub(started.elapsed());
            let Some(delay) = retry::delay(&error, attempt, remaining, luck()) else {
                return Err(ClientError::Refused(error));
            };
            (self.waiting)(&Waiting { message: error.message.clone(), delay });
            tokio::time::sleep(delay).await;
            attempt += 1;
        }
    }

    /// Follows events.
    pub(crate) async fn follow(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Events, ClientError> {
        let (content_type, body) = self.json(body)?;
        let ask = Ask { method, path, accept: "text/event-stream", content_type, headers: Vec::new(), body };
        let response = self.http.send(ask).await?;
        Ok(Events::new(self.http.clone(), response.into_body()))
    }

    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let bytes = self.read(method, path, body).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.http.protocol(error.to_string()))
    }

    /// Sends something and reads the answer as it is.
    pub(crate) async fn read(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Vec<u8>, ClientError> {
        let answer = self.ask(method, path, body).await?;
        self.http.whole(answer).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Incoming, ClientError> {
        let (content_type, body) = self.json(body)?;
        let ask = Ask { method, path, accept: "application/json", content_type, headers: Vec::new(), body };
        Ok(self.http.send(ask).await?.into_body())
    }

    fn json(&self, body: Option<&impl Serialize>) -> Result<(Option<&'static str>, Upload), ClientError> {
        let Some(body) = body else { return Ok((None, upload_bytes(Vec::new()))) };
        let bytes = serde_json::to_vec(body).map_err(|error| self.http.protocol(error.to_string()))?;
        Ok((Some("application/json"), upload_bytes(bytes)))
    }
}

/// A number between 0 and 1, different for clients that wait at the same time.
fn luck() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    f64::from(now.subsec_nanos() % 1_000_000) / 1e6
}
