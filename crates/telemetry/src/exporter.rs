//! Sends spans to the collector, many at a time, behind everybody's back.
//!
//! A collector that refuses, hangs or is not there costs nothing but the spans: each request has a deadline, a batch is tried a few
//! times, and what comes meanwhile waits in the queue or is lost and counted.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::endpoint::Collector;
use crate::protobuf;
use crate::span::FinishedSpan;

/// Spans sent at once.
const BATCH_MAX: usize = 512;
/// How long a span waits for others to go with.
const LINGER: Duration = Duration::from_secs(1);
/// How long the collector may take for a batch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a batch is tried, and how long the first pause is; each pause is twice the one before.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// How much of a collector's answer is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What became of spans.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Taken by the collector.
    pub sent: Counter,
    /// Never sent: the queue was full, or the collector did not take them.
    pub lost: Counter,
}

/// Sends spans once it is started.
pub struct Exporter {
    sender: Sender,
    waiting: mpsc::Receiver<FinishedSpan>,
    counts: Counts,
}

/// A started exporter.
pub struct Sending {
    stop: CancellationToken,
    task: JoinHandle<()>,
    counts: Counts,
}

/// Why a batch did not arrive.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("could not connect")]
    Connect(#[source] std::io::Error),
    #[error("could not be asked")]
    Http(#[from] hyper::Error),
    #[error("could not be asked")]
    Request(#[from] hyper::http::Error),
    #[error("answered {0}")]
    Refused(StatusCode),
    #[error("did not answer in time")]
    Silent,
}

impl SendError {
    /// Whether the same batch may succeed later, as OTLP says.
    fn passes(&self) -> bool {
        match self {
            Self::Refused(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Self::Request(_) => false,
            Self::Connect(_) | Self::Http(_) | Self::Silent => true,
        }
    }
}

impl Exporter {
    pub(crate) fn new(
        collector: Collector,
        resource: &[(String, String)],
        waiting: mpsc::Receiver<FinishedSpan>,
        counts: Counts,
    ) -> Self {
        let sender = Sender { collector, resource: protobuf::resource(resource), connection: None };
        Self { sender, waiting, counts }
    }

    /// What becomes of spans.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Starts sending. Needs a runtime.
    #[must_use]
    pub fn start(self) -> Sending {
        let (stop, counts) = (CancellationToken::new(), self.counts.clone());
        let task = tokio::spawn(self.run(stop.clone()));
        Sending { stop, task, counts }
    }

    async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut works = true;
        loop {
            self.gather(&mut batch, &stop).await;
            if batch.is_empty() {
                return;
            }
            let body = Bytes::from(protobuf::request(&self.sender.resource, &batch));
            let count = batch.len() as u64;
            batch.clear();
            match self.deliver(body, &stop).await {
                Ok(()) => {
                    self.counts.sent.inc_by(count);
                    works = true;
                }
                Err(error) => {
                    self.counts.lost.inc_by(count);
                    // Once, until it has worked again: the counter says how much is lost.
                    if std::mem::take(&mut works) {
                        let error: &dyn std::error::Error = &error;
                        let collector = &self.sender.collector.authority;
                        tracing::warn!(error, collector, "traces are lost: the collector does not take them");
                    }
                }
            }
        }
    }

    /// Fills a batch: waits for a first span and a little for others. Stays empty only when all is sent and the end is near.
    async fn gather(&mut self, batch: &mut Vec<FinishedSpan>, stop: &CancellationToken) {
        tokio::select! {
            biased;
            _ = self.waiting.recv_many(batch, BATCH_MAX) => {}
            () = stop.cancelled() => return,
        }
        let until = Instant::now() + LINGER;
        while batch.len() < BATCH_MAX {
            let room = BATCH_MAX - batch.len();
            tokio::select! {
                biased;
                more = timeout_at(until, self.waiting.recv_many(batch, room)) => {
                    if more.is_err() || more.is_ok_and(|count| count == 0) {
                        return;
                    }
                }
                () = stop.cancelled() => return,
            }
        }
    }

    /// Sends a batch, again after a pause when that may help; but only once when the end is near.
    async fn deliver(&mut self, body: Bytes, stop: &CancellationToken) -> Result<(), SendError> {
        let mut pause = PAUSE;
        for _ in 1..TRIES {
            match self.sender.send(body.clone()).await {
                Err(error) if error.passes() && !stop.is_cancelled() => {}
                outcome => return outcome,
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
            pause *= 2;
        }
        self.sender.send(body).await
    }
}

impl Sending {
    /// Sends what waits, for as long as `patience` lasts.
    pub async fn finish(mut self, patience: Duration) {
        self.stop.cancel();
        if timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!(
                lost = self.counts.lost.get(),
                "the collector did not take the last traces in time"
            );
        }
    }
}

/// Speaks to the collector over one connection that is kept.
struct Sender {
    collector: Collector,
    resource: Vec<u8>,
    connection: Option<Connection>,
}

struct Connection {
    requests: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sender {
    async fn send(&mut self, body: Bytes) -> Result<(), SendError> {
        let kept = self.connection.take();
        let (connection, status) =
            timeout(REQUEST_TIMEOUT, self.ask(kept, body)).await.map_err(|_| SendError::Silent)??;
        self.connection = connection;
        if status.is_success() { Ok(()) } else { Err(SendError::Refused(status)) }
    }

    async fn connect(&self) -> Result<Connection, SendError> {
        let stream = TcpStream::connect(&self.collector.authority).await.map_err(SendError::Connect)?;
        let (requests, connection) = handshake(TokioIo::new(stream)).await?;
        // How the connection ended is told to whoever asks next.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Connection { requests, task })
    }

    async fn ask(
        &self,
        kept: Option<Connection>,
        body: Bytes,
    ) -> Result<(Option<Connection>, StatusCode), SendError> {
        let mut connection = match kept {
            Some(kept) if !kept.requests.is_closed() => kept,
            _ => self.connect().await?,
        };
        connection.requests.ready().await?;
        let mut request = Request::post(&self.collector.path)
            .header(HOST, &self.collector.authority)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(body))?;
        let agent = HeaderValue::from_static(concat!("pandastack/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        request.headers_mut().extend(self.collector.headers.clone());
        let answer = connection.requests.send_request(request).await?;
        let status = answer.status();
        // Read to its end, so that the connection can be used again; one that says too much is closed.
        let read = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((read.is_ok().then_some(connection), status))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tracing_subscriber::prelude::*;

    use super::*;
    use crate::{Sampler, TraceConfig, Traces};

    /// An exporter of one span to a collector at that address.
    fn exporter(address: std::net::SocketAddr) -> Exporter {
        let collector = Collector::at(&format!("http://{address}")).unwrap();
        let resource = vec![("service.name".to_owned(), "test".to_owned())];
        let traces = Traces::new(TraceConfig { collector, sampler: Sampler::default(), resource });
        let subscriber = tracing_subscriber::registry().with(traces.layer.watching_marked());
        tracing::subscriber::with_default(subscriber, || {
            drop(tracing::info_span!("one", otel.kind = "internal"));
        });
        traces.exporter
    }

    #[tokio::test]
    async fn what_waits_is_sent_at_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let exporter = exporter(listener.local_addr().unwrap());
        let counts = exporter.counts().clone();
        let collect = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 16];
            stream.read_exact(&mut head).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            assert_eq!(&head, b"POST /v1/traces ");
            stream
        };
        let (_stream, ()) = tokio::join!(collect, exporter.start().finish(Duration::from_secs(30)));
        assert_eq!((counts.sent.get(), counts.lost.get()), (1, 0));
    }

    #[tokio::test]
    async fn a_collector_that_is_not_there_ends_with_the_program() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let exporter = exporter(address);
        let counts = exporter.counts().clone();
        exporter.start().finish(Duration::from_secs(30)).await;
        assert_eq!((counts.sent.get(), counts.lost.get()), (0, 1));
    }

    #[tokio::test]
    async fn a_collector_that_never_answers_is_left_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let exporter = exporter(listener.local_addr().unwrap());
        let started = Instant::now();
        exporter.start().finish(Duration::from_millis(50)).await;
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}
