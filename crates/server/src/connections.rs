//! Connections: each served on a task of its own, with a bound on how many there are and how slowly a head may come.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::serve::ServerConfig;

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 8192;
/// How long to wait after the host had no file descriptor left.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until `stop`, then lets what is under way finish.
pub(crate) async fn run(
    listener: TcpListener,
    app: Router,
    config: &ServerConfig,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let tasks = TaskTracker::new();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = stop.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Answers are small and wait for nothing.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(app.clone());
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(config.head_patience).half_close(true);
        let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let stop = stop.clone();
        tasks.spawn(async move {
            let _place = place;
            let mut connection = std::pin::pin!(connection);
            let outcome = tokio::select! {
                outcome = connection.as_mut() => outcome,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "a connection ended badly");
            }
        });
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(config.drain_patience, tasks.wait()).await.is_err() {
        tracing::warn!("some requests were still under way and are cut off");
    }
    Ok(())
}
