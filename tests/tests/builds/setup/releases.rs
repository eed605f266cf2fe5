//! A server of releases on loopback that does as it is told, also what no good server does.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Longest request that is read.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How a request is answered.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// With all of it.
    Whole(Vec<u8>),
    /// With less than was promised, and the end of the connection.
    Cut(Vec<u8>),
    /// With less than was promised, and silence.
    Stall(Vec<u8>),
    /// With a length, and silence.
    Claim(u64),
    /// By sending elsewhere.
    Redirect(String),
    /// With nothing but a status.
    Status(u16),
}

type Routes = HashMap<String, Vec<Answer>>;

/// A server. Ends when dropped.
pub(crate) struct Releases {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Releases {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Releases {
    /// One that answers each path in the same way every time.
    pub(crate) async fn start<'a>(routes: impl IntoIterator<Item = (&'a str, Answer)>) -> Result<Self> {
        Self::serve(routes.into_iter().map(|(path, answer)| (path.to_owned(), vec![answer])).collect()).await
    }

    /// One that answers a path in one way after the other; the last way is kept to.
    pub(crate) async fn start_in_turn(path: &str, answers: impl IntoIterator<Item = Answer>) -> Result<Self> {
        Self::serve(HashMap::from([(path.to_owned(), answers.into_iter().collect())])).await
    }

    async fn serve(routes: Routes) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, asked) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
        let (routes, counted) = (Arc::new(Mutex::new(routes)), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, Arc::clone(&routes), Arc::clone(&counted)));
            }
        });
        Ok(Self { address, asked, task })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url())
    }

    /// Requests that came.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// One request on each connection. A client that goes away is no error of the server's.
async fn answer(mut stream: TcpStream, routes: Arc<Mutex<Routes>>, asked: Arc<AtomicUsize>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        head.push(stream.read_u8().await.ok()?);
    }
    asked.fetch_add(1, Ordering::SeqCst);
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1)?.to_owned();
    let answer = {
        let mut routes = routes.lock().unwrap_or_else(PoisonError::into_inner);
        match routes.get_mut(&path) {
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers.first()?.clone(),
            None => Answer::Status(404),
        }
    };
    let promised =
        |length: u64| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let (head, body, stall) = match answer {
        Answer::Whole(body) => (promised(body.len() as u64), body, false),
        Answer::Cut(body) => (promised(body.len() as u64 + 100), body, false),
        Answer::Stall(body) => (promised(body.len() as u64 + 100), body, true),
        Answer::Claim(length) => (promised(length), Vec::new(), true),
        Answer::Redirect(to) => (
            format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
            Vec::new(),
            false,
        ),
        Answer::Status(status) => (
            format!("HTTP/1.1 {status} As told\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
            Vec::new(),
            false,
        ),
    };
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(&body).await.ok()?;
    if stall {
        // Until the client has had enough.
        while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
    }
    stream.shutdown().await.ok()
}
