//! A collector of traces on loopback: takes OTLP over HTTP and keeps what comes, or takes connections and never answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A span as it came.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// Its trace, in hexadecimal.
    pub trace: String,
    /// Its id.
    pub id: String,
    /// What it is part of; empty when of nothing.
    pub parent: String,
    /// What it is called.
    pub name: String,
    /// When it began and ended, in nanoseconds of Unix time.
    pub times_ns: (u64, u64),
    /// What is known of it, as text.
    pub attributes: BTreeMap<String, String>,
    /// Whether it failed.
    pub failed: bool,
}

/// What came.
#[derive(Debug, Default)]
struct Received {
    bodies: Vec<Bytes>,
    heads: Vec<(String, HeaderMap)>,
}

/// A collector. Ends when dropped.
pub struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    task: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Collector {
    /// One that takes everything.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, received) = (listener.local_addr()?, Arc::<Mutex<Received>>::default());
        let keep = Arc::clone(&received);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let keep = Arc::clone(&keep);
                let service = service_fn(move |request| take(Arc::clone(&keep), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self { address, received, task })
    }

    /// One that takes connections and says nothing.
    pub async fn start_silent() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
            }
        });
        Ok(Self { address, received: Arc::default(), task })
    }

    /// Where it listens, as a setting.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All spans that came.
    pub fn spans(&self) -> Result<Vec<Span>> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let mut spans = Vec::new();
        for body in &received.bodies {
            for resource in messages(body, 1)? {
                for scope in messages(resource, 2)? {
                    for span in messages(scope, 2)? {
                        spans.push(self::span(span)?);
                    }
                }
            }
        }
        Ok(spans)
    }

    /// Paths and headers of the requests that came.
    pub fn heads(&self) -> Vec<(String, HeaderMap)> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).heads.clone()
    }

    /// Whether a text is anywhere in what came.
    pub fn holds(&self, text: &str) -> bool {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.bodies.iter().any(|body| body.windows(text.len()).any(|part| part == text.as_bytes()))
    }
}

async fn take(keep: Arc<Mutex<Received>>, request: Request<Incoming>) -> Result<Response<Empty<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut received = keep.lock().unwrap_or_else(PoisonError::into_inner);
    received.heads.push((head.uri.to_string(), head.headers));
    received.bodies.push(body);
    Ok(Response::new(Empty::new()))
}

/// A field's value in protobuf.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order.
fn fields(mut rest: &[u8]) -> Result<Vec<(u64, Field<'_>)>> {
    fn varint(rest: &mut &[u8]) -> Result<u64> {
        let mut number = 0;
        for place in 0..10 {
            let (byte, after) = rest.split_first().context("the message ends early")?;
            *rest = after;
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        bail!("a number is too long")
    }
    fn cut<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
        let (bytes, after) = rest.split_at_checked(length).context("the message ends early")?;
        *rest = after;
        Ok(bytes)
    }
    let mut found = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let value = match tag & 7 {
            0 => Field::Number(varint(&mut rest)?),
            1 => Field::Number(u64::from_le_bytes(cut(&mut rest, 8)?.try_into()?)),
            5 => Field::Number(u64::from(u32::from_le_bytes(cut(&mut rest, 4)?.try_into()?))),
            2 => {
                let length = usize::try_from(varint(&mut rest)?)?;
                Field::Bytes(cut(&mut rest, length)?)
            }
            other => bail!("wire type {other}"),
        };
        found.push((tag >> 3, value));
    }
    Ok(found)
}

fn messages(message: &[u8], wanted: u64) -> Result<Vec<&[u8]>> {
    let found = fields(message)?.into_iter();
    Ok(found
        .filter_map(|(number, field)| match field {
            Field::Bytes(bytes) if number == wanted => Some(bytes),
            _ => None,
        })
        .collect())
}

fn span(message: &[u8]) -> Result<Span> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut span = Span::default();
    for (number, field) in fields(message)? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => span.trace = hex(bytes),
            (2, Field::Bytes(bytes)) => span.id = hex(bytes),
            (4, Field::Bytes(bytes)) => span.parent = hex(bytes),
            (5, Field::Bytes(bytes)) => span.name = String::from_utf8(bytes.to_vec())?,
            (7, Field::Number(number)) => span.times_ns.0 = number,
            (8, Field::Number(number)) => span.times_ns.1 = number,
            (9, Field::Bytes(bytes)) => {
                let (key, value) = attribute(bytes)?;
                span.attributes.insert(key, value);
            }
            (15, Field::Bytes(_)) => span.failed = true,
            _ => {}
        }
    }
    ensure!(span.trace.len() == 32 && span.id.len() == 16 && !span.name.is_empty(), "{span:?}");
    Ok(span)
}

fn attribute(message: &[u8]) -> Result<(String, String)> {
    let key = messages(message, 1)?.first().context("an attribute without name")?.to_vec();
    let value = messages(message, 2)?.first().copied().context("an attribute without value")?;
    let text = match fields(value)?.pop().context("an empty value")? {
        (1, Field::Bytes(bytes)) => String::from_utf8(bytes.to_vec())?,
        (4, Field::Number(bits)) => f64::from_bits(bits).to_string(),
        (_, Field::Number(number)) => number.to_string(),
        (number, Field::Bytes(_)) => bail!("a value of kind {number}"),
    };
    Ok((String::from_utf8(key)?, text))
}
