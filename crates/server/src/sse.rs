//! Event streams, in the one form that all published clients read: LF line ends, one `data:` line, a comment as heartbeat.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::ascii_json::ascii_json;

/// A silent stream says at least this often that it is alive: idle proxies cut connections after 30 s and more.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Events that wait for a slow reader; then whoever makes them waits.
const WAITING_MAX: usize = 16;

/// Where events are sent to. Sending fails when the reader is gone.
pub(crate) struct Events {
    sender: mpsc::Sender<Bytes>,
}

/// The reader is gone.
#[derive(Debug)]
pub(crate) struct ReaderGone;

impl Events {
    /// Sends a named event with JSON data.
    pub(crate) async fn send(&self, name: &str, data: &impl Serialize) -> Result<(), ReaderGone> {
        self.write(format!("event: {name}\ndata: {}\n\n", ascii_json(data))).await
    }

    /// Sends a line of text as an event without a name. It must be one line.
    pub(crate) async fn line(&self, line: &str) -> Result<(), ReaderGone> {
        self.write(format!("data: {line}\n\n")).await
    }

    /// Sends the event that ends a stream of lines.
    pub(crate) async fn done(&self) -> Result<(), ReaderGone> {
        self.write("event: done\ndata: end\n\n".to_owned()).await
    }

    async fn write(&self, text: String) -> Result<(), ReaderGone> {
        self.sender.send(Bytes::from(text)).await.map_err(|_| ReaderGone)
    }

    /// Waits until the reader is gone.
    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }
}

/// Answers with a stream of what `produce` sends. The stream ends with it; it is dropped when the reader goes away.
pub(crate) fn stream_events<F>(produce: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel::<Bytes>(WAITING_MAX);
    let producing = Box::pin(produce(Events { sender }));
    let body = stream::unfold((receiver, Some(producing)), |(mut receiver, mut producing)| async move {
        let next = async {
            loop {
                let Some(work) = &mut producing else { return receiver.recv().await };
                tokio::select! {
                    biased;
                    item = receiver.recv() => return item,
                    () = work => producing = None,
                }
            }
        };
        match tokio::time::timeout(HEARTBEAT, next).await {
            Ok(Some(bytes)) => Some((Ok::<_, Infallible>(bytes), (receiver, producing))),
            Ok(None) => None,
            Err(_) => Some((Ok(Bytes::from_static(b": ping\n\n")), (receiver, producing))),
        }
    });
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
