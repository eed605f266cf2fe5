//! A server that answers as a test tells it to, also as no server should; and a plain client to fill registries with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Where it wants to begin.
    pub(crate) fn begins_at(&self) -> usize {
        let range = self.header("range").and_then(|range| range.strip_prefix("bytes="));
        range.and_then(|range| range.trim_end_matches('-').parse().ok()).unwrap_or(0)
    }
}

/// What to answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Breaks the connection after so many bytes of the body.
    pub(crate) cut: Option<usize>,
    /// Says nothing more after so many bytes of the body, and stays.
    pub(crate) stall: Option<usize>,
    /// Does not say how long the body is.
    pub(crate) unsized_body: bool,
}

impl Reply {
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, body: body.into(), ..Self::default() }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The part of some content that was asked for.
    pub(crate) fn part(asked: &Asked, content: &[u8]) -> Self {
        match asked.begins_at() {
            0 => Self::ok(content),
            from if from >= content.len() => Self::status(416),
            from => {
                let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
                Self { status: 206, ..Self::ok(&content[from..]) }.with("content-range", range)
            }
        }
    }
}

/// A server on loopback, gone when dropped.
pub(crate) struct Server {
    pub(crate) host: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), asked.clone());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let (answer, seen) = (answer.clone(), seen.clone());
                connections.spawn(async move {
                    let _ = serve(connection, &*answer, &seen).await;
                });
            }
        });
        Self { host, asked, task }
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut connection: TcpStream,
    answer: &(dyn Fn(&Asked) -> Reply + Send + Sync),
    seen: &Mutex<Vec<Asked>>,
) -> std::io::Result<()> {
    let (head, body) = message(&mut connection).await?;
    let path = head[0].split(' ').nth(1).unwrap_or("").to_owned();
    let asked = Asked { path, headers: headers(&head), body: String::from_utf8_lossy(&body).into_owned() };
    seen.lock().unwrap().push(asked.clone());
    let reply = answer(&asked);
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", reply.status);
    if !reply.unsized_body {
        head.push_str(&format!("content-length: {}\r\n", reply.body.len()));
    }
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    connection.write_all(format!("{head}\r\n").as_bytes()).await?;
    let end = reply.cut.or(reply.stall).unwrap_or(reply.body.len()).min(reply.body.len());
    connection.write_all(&reply.body[..end]).await?;
    connection.flush().await?;
    if reply.stall.is_some() {
        // Until the other side gives up.
        connection.read_to_end(&mut Vec::new()).await?;
    }
    connection.shutdown().await
}

fn headers(head: &[String]) -> BTreeMap<String, String> {
    let pairs = head[1..].iter().filter_map(|line| line.split_once(": "));
    pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect()
}

/// The head's lines and the body of a request or an answer.
async fn message(connection: &mut TcpStream) -> std::io::Result<(Vec<String>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if connection.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head: Vec<String> = String::from_utf8_lossy(&bytes[..end]).split("\r\n").map(str::to_owned).collect();
    let mut body = bytes.split_off(end + 4);
    let length = headers(&head).get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    while body.len() < length && connection.read_buf(&mut body).await? > 0 {}
    Ok((head, body))
}

/// Sends a request and tells the status and the `Location` of the answer.
pub(crate) async fn send(host: &str, request: &str, kind: &str, body: &[u8]) -> (u16, String) {
    let mut connection = TcpStream::connect(host).await.unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    connection.write_all(body).await.unwrap();
    let (head, _) = message(&mut connection).await.unwrap();
    let status = head[0].split(' ').nth(1).unwrap().parse().unwrap();
    (status, headers(&head).remove("location").unwrap_or_default())
}
