//! A server and the key to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;

use contract::error::Progress;
use tokio::sync::watch;

use crate::address::ServerAddress;
use crate::error::ClientError;
use crate::events::Events;
use crate::http::{Ask, Http, Upload, upload_bytes};
use crate::preparing::{Preparing, progress_of};
use crate::retry;

/// A creation that was refused for now and will be asked for again, or the end of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Waiting<'a> {
    /// There is no room.
    NoRoom {
        /// What the server said.
        message: &'a str,
        /// How long until it is asked for again.
        delay: Duration,
    },
    /// What it starts from is being prepared.
    Preparing {
        /// The template, where the request names one.
        template: Option<&'a str>,
        /// How far that is.
        progress: &'a Progress,
        /// Since when it is waited for.
        since: Instant,
    },
    /// There is nothing to wait for any more. Comes once after any of the others.
    Over,
}

/// How often it is told that something is waited for, and how far that is.
const TICK: Duration = Duration::from_secs(1);

/// How a server is reached.
#[derive(Clone)]
pub struct ApiSettings {
    /// Where it is.
    pub server: ServerAddress,
    /// The key to it.
    pub key: Option<String>,
    /// How long a creation that is refused for lack of room is asked for again.
    pub create_patience: Duration,
    /// How long a template that a creation waits for may stay at the same step.
    pub stuck_timeout: Duration,
    /// Told of each such wait.
    pub waiting: Arc<dyn Fn(&Waiting<'_>) + Send + Sync>,
}

/// A server and the key to it. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    pub(crate) http: Http,
    create_patience: Duration,
    stuck_timeout: Duration,
    waiting: Arc<dyn Fn(&Waiting<'_>) + Send + Sync>,
    /// Whether what is waited for is given up.
    given_up: Arc<watch::Sender<bool>>,
}

impl Api {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// When the key cannot be sent, or there is no TLS.
    pub fn new(settings: ApiSettings) -> Result<Self, ClientError> {
        let http = Http::new(settings.server, settings.key.as_deref())?;
        let ApiSettings { create_patience, stuck_timeout, waiting, .. } = settings;
        let given_up = Arc::new(watch::Sender::new(false));
        Ok(Self { http, create_patience, stuck_timeout, waiting, given_up })
    }

    /// From now on creations are not waited for: one that is asked for at this moment is still answered, and a refusal is the answer.
    pub fn stop_waiting(&self) {
        self.given_up.send_replace(true);
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

    /// Asks for something to be made, again and again while there is no room for it, or while what it starts from is being prepared.
    pub(crate) async fn make<T: DeserializeOwned>(
        &self,
        path: &str,
        template: Option<&str>,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let mut told = false;
        let made = self.make_or_wait(path, template, body, &mut told).await;
        if told {
            (self.waiting)(&Waiting::Over);
        }
        made
    }

    async fn make_or_wait<T: DeserializeOwned>(
        &self,
        path: &str,
        template: Option<&str>,
        body: &impl Serialize,
        told: &mut bool,
    ) -> Result<T, ClientError> {
        let (mut given_up, since) = (self.given_up.subscribe(), Instant::now());
        let (mut attempt, mut full_for, mut preparing) = (0, Duration::ZERO, Preparing::default());
        let mut known: Option<Progress> = None;
        loop {
            // The server holds a request for a while before it refuses.
            let mut asked = std::pin::pin!(self.post(path, body));
            let answer = loop {
                tokio::select! {
                    answer = &mut asked => break answer,
                    () = tokio::time::sleep(TICK), if !*given_up.borrow() => {
                        known = self.progress_of_template(template).await.or(known);
                        if let Some(progress) = &known {
                            *told = true;
                            (self.waiting)(&Waiting::Preparing { template, progress, since });
                        }
                    }
                }
            };
            let error = match answer {
                Err(ClientError::Refused(refusal)) => refusal,
                other => return other,
            };
            let delay = match progress_of(&error) {
                Some(progress) => {
                    known = Some(progress.clone());
                    preparing.delay(&error, progress, self.stuck_timeout, Instant::now())
                }
                None => {
                    known = None;
                    let remaining = self.create_patience.saturating_sub(full_for);
                    attempt += 1;
                    retry::delay(&error, attempt - 1, remaining, luck())
                }
            };
            let Some(delay) = delay.filter(|_| !*given_up.borrow()) else {
                return Err(ClientError::Refused(error));
            };
            *told = true;
            if known.is_none() {
                (self.waiting)(&Waiting::NoRoom { message: &error.message, delay });
                full_for += delay;
            }
            let until = tokio::time::Instant::now() + delay;
            while tokio::time::Instant::now() < until {
                if let Some(progress) = &known {
                    (self.waiting)(&Waiting::Preparing { template, progress, since });
                }
                tokio::select! {
                    () = tokio::time::sleep_until(until.min(tokio::time::Instant::now() + TICK)) => {}
                    Ok(_) = given_up.wait_for(|given_up| *given_up) => {
                        return Err(ClientError::Refused(error));
                    }
                }
            }
        }
    }

    /// How far a template is that is being prepared at this moment.
    async fn progress_of_template(&self, name: Option<&str>) -> Option<Progress> {
        let template = tokio::time::timeout(TICK, self.template(name?)).await.ok()?.ok()?;
        template.progress_detail.filter(|_| template.status == "preparing")
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
