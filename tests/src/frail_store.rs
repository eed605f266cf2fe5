//! A way to an HTTP store that is as bad as it is told to be: requests pass through it to the real one, and answers come back late, cut,
//! wrong or not at all.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderValue, RANGE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>>>>;

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The answer is this status, and the store hears nothing of the request.
    Status(u16),
    /// The connection is closed without an answer, and the store hears nothing.
    Close,
    /// The store does what was asked, and the connection is closed without an answer.
    LoseAnswer,
    /// The connection is closed after this many bytes of the body.
    CutAfter(usize),
    /// No answer comes, and the connection stays open.
    Stall,
    /// Nothing comes after this many bytes of the body.
    StallAfter(usize),
    /// The body comes a byte at a time, with a pause after each.
    Trickle(Duration),
    /// A bit of this byte of the body is another one.
    Flip(usize),
    /// The answer begins this much later.
    Late(Duration),
}

/// A request that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub target: String,
    /// The bytes it asked for, as it says it.
    pub range: Option<String>,
    /// The bytes it brought, as it says it.
    pub length: u64,
}

/// Which requests a fault is for.
pub type Concerned = fn(&Seen) -> bool;

#[derive(Debug, Default)]
struct Plan {
    next: VecDeque<Option<Fault>>,
    always: Option<(Concerned, Fault)>,
    seen: Vec<Seen>,
}

/// The way to a store. Ends when dropped, with every connection.
pub struct FrailStore {
    address: SocketAddr,
    plan: Arc<Mutex<Plan>>,
    task: JoinHandle<()>,
}

impl Drop for FrailStore {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FrailStore {
    /// One in front of a store, on a loopback port of its own. Nothing goes wrong yet.
    pub async fn start(store: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, plan) = (listener.local_addr()?, Arc::<Mutex<Plan>>::default());
        let way = Way {
            store,
            plan: Arc::clone(&plan),
            client: Client::builder(TokioExecutor::new()).build_http(),
        };
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let way = way.clone();
                let service = service_fn(move |request| pass(way.clone(), request));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self { address, plan, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What goes wrong with the requests from now on, one after the other; `None` for one that goes well.
    pub fn next(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.plan().next.extend(faults);
    }

    /// What goes wrong with all requests that [`FrailStore::next`] says nothing about.
    pub fn always(&self, fault: Fault) {
        self.always_when(|_| true, fault);
    }

    /// The same for some of them only.
    pub fn always_when(&self, concerned: Concerned, fault: Fault) {
        self.plan().always = Some((concerned, fault));
    }

    /// Nothing goes wrong from now on.
    pub fn heal(&self) {
        let mut plan = self.plan();
        plan.next.clear();
        plan.always = None;
    }

    /// Requests that came since this was last asked.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.plan().seen)
    }

    /// How many requests came since they were last asked for.
    pub fn seen_count(&self) -> usize {
        self.plan().seen.len()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct Way {
    store: SocketAddr,
    plan: Arc<Mutex<Plan>>,
    client: Client<HttpConnector, Full<Bytes>>,
}

async fn pass(way: Way, request: Request<Incoming>) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let fault = {
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let seen = Seen {
            method: parts.method.clone(),
            target: target.clone(),
            range: parts.headers.get(RANGE).map(text),
            length: parts
                .headers
                .get(CONTENT_LENGTH)
                .map(text)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
        };
        let mut plan = way.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let always = plan.always.filter(|(concerned, _)| concerned(&seen)).map(|(_, fault)| fault);
        plan.seen.push(seen);
        plan.next.pop_front().unwrap_or(always)
    };
    let body = body.collect().await?.to_bytes();
    match fault {
        Some(Fault::Status(status)) => return refused(status),
        Some(Fault::Close) => return Err(anyhow!("closed, as asked")),
        Some(Fault::Stall) => std::future::pending().await,
        Some(Fault::Late(pause)) => tokio::time::sleep(pause).await,
        _ => {}
    }
    parts.uri = Uri::try_from(format!("http://{}{target}", way.store))?;
    let answer = way.client.request(Request::from_parts(parts, Full::new(body))).await?;
    let (mut parts, body) = answer.into_parts();
    // Of the connection behind, not of this one.
    parts.headers.remove(hyper::header::CONNECTION);
    let body = body.collect().await?.to_bytes();
    if fault == Some(Fault::LoseAnswer) {
        return Err(anyhow!("closed, as asked"));
    }
    Ok(Response::from_parts(parts, StreamBody::new(spoiled(body, fault))))
}

fn refused(status: u16) -> Result<Response<Body>> {
    let said = stream::once(async { Ok(Frame::data(Bytes::from_static(b"<Error>as asked</Error>"))) });
    let body = StreamBody::new(said.boxed());
    Ok(Response::builder().status(StatusCode::from_u16(status)?).body(body)?)
}

/// A body that goes wrong. Its length was announced already.
fn spoiled(body: Bytes, fault: Option<Fault>) -> BoxStream<'static, Result<Frame<Bytes>>> {
    let all = |bytes: Bytes| stream::once(async { Ok(Frame::data(bytes)) });
    match fault {
        Some(Fault::CutAfter(at)) => {
            let end = stream::once(async { Err(anyhow!("cut, as asked")) });
            all(body.slice(..at.min(body.len()))).chain(end).boxed()
        }
        Some(Fault::StallAfter(at)) => all(body.slice(..at.min(body.len()))).chain(stream::pending()).boxed(),
        Some(Fault::Trickle(pause)) => stream::unfold(0, move |at| {
            let byte = (at < body.len()).then(|| body.slice(at..at + 1));
            async move {
                tokio::time::sleep(pause).await;
                byte.map(|byte| (Ok(Frame::data(byte)), at + 1))
            }
        })
        .boxed(),
        Some(Fault::Flip(at)) => {
            let mut bytes = body.to_vec();
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1;
            }
            all(bytes.into()).boxed()
        }
        _ => all(body).boxed(),
    }
}
