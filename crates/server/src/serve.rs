//! Listens, and stops when told to: first no new requests, then what is under way gets to finish.

use std::time::Duration;

use axum::Router;
use control::Control;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::router;

/// Settings of the server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Host names under which `{port}-{id}` leads to a sandbox, such as `localhost`.
    pub preview_suffixes: Vec<String>,
    /// How long a client may take to send its request's head.
    pub head_patience: Duration,
    /// How long requests that are under way get when the server stops.
    pub drain_patience: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            preview_suffixes: vec!["localhost".to_owned()],
            head_patience: Duration::from_secs(20),
            drain_patience: Duration::from_secs(20),
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
    let app: Router = router(control);
    crate::connections::run(listener, app, config, stop).await
}
