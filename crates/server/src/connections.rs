//! Connections: each served on a task of its own, with a bound on how many there are and how slowly a head may come.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::arrival::ClientConnection;
use crate::client_stream::ClientStream;
use crate::serve::ServerConfig;

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 8192;
/// How long to wait after the host had no file descriptor left.
const PAUSE: Duration = Duration::from_millis(50);

/// Lets the kernel ask clients that say nothing whether they are still there: one that vanished must not keep a sandbox awake.
fn keep_alive(stream: &TcpStream) {
    let set = sockopt::set_tcp_keepidle(stream, Duration::from_secs(60))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, Duration::from_secs(15)))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, 4))
        .and_then(|()| sockopt::set_socket_keepalive(stream, true));
    if let Err(error) = set {
        tracing::debug!(%error, "a connection is not watched");
    }
}

/// Accepts until `stop`, then lets what is under way finish.
pub(crate) async fn run(
    listener: TcpListener,
    app: Router,
    config: &ServerConfig,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let tasks = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => match place {
                Ok(place) => place,
                // Nobody closes it.
                Err(_) => break,
            },
            () = stop.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Answers are small and wait for nothing.
        let _ = stream.set_nodelay(true);
        keep_alive(&stream);
        let stream = Arc::new(stream);
        let arrival = ClientConnection {
            peer: peer.ip(),
            guest_patience: config.guest_patience,
            stream: Arc::downgrade(&stream),
            place: Arc::new(place),
        };
        let routes = TowerToHyperService::new(app.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(arrival.clone());
            routes.call(request)
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(config.head_patience).half_close(true);
        let connection =
            builder.serve_connection(TokioIo::new(ClientStream(stream)), service).with_upgrades();
        let (stop, cut) = (stop.clone(), cut.clone());
        tasks.spawn(async move {
            let mut connection = std::pin::pin!(connection);
            let outcome = tokio::select! {
                outcome = connection.as_mut() => outcome,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        outcome = connection => outcome,
                        () = cut.cancelled() => return,
                    }
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
        cut.cancel();
        tasks.wait().await;
    }
    Ok(())
}
