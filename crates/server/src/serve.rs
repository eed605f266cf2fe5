//! Listens, and stops when told to: first no new requests, then what is under way gets to finish.

use std::time::Duration;

use axum::Router;
use control::Control;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::router;
use crate::forward::GUEST_TIMEOUT;
use crate::operations::Build;
use crate::preview_host;

/// Settings of the server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Host names under which `{port}-{id}` leads to a sandbox, such as `localhost`.
    pub preview_suffixes: Vec<String>,
    /// How long a client may take to send its request's head.
    pub head_patience: Duration,
    /// How long a program in a guest may take to begin its answer to a request that is passed on to it.
    pub guest_patience: Duration,
    /// How long requests that are under way get when the server stops.
    pub drain_patience: Duration,
    /// What the program was built from.
    pub build: Build,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            preview_suffixes: vec!["localhost".to_owned()],
            head_patience: Duration::from_secs(20),
            guest_patience: GUEST_TIMEOUT,
            drain_patience: Duration::from_secs(20),
            build: Build::default(),
        }
    }
}

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    control: &Control,
    config: &ServerConfig,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let app: Router =
        preview_host::in_front(router(control, &config.build), control, &config.preview_suffixes);
    crate::connections::run(listener, app, config, stop).await
}
