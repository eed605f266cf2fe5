//! A server that speaks S3, on a loopback port of its own: a published one, unmodified, that keeps its content in memory.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;

use crate::{published, wait};

/// The bucket that every server has.
pub const BUCKET: &str = "saved";
const START_TIMEOUT: Duration = Duration::from_secs(60);
const ANNOUNCED: &str = "Running on http://";

/// A running server. Ends when dropped, and what it holds is gone.
pub struct S3Server {
    address: SocketAddr,
    reader: JoinHandle<()>,
    /// Killed when dropped.
    _process: Child,
}

impl S3Server {
    /// Starts one with an empty bucket.
    pub async fn start() -> Result<Self> {
        let programs = published::python("requirements-s3.txt").await?;
        let mut command = Command::new(programs.join("moto_server"));
        command.args(["-H", "127.0.0.1", "-p", "0"]).env("PYTHONUNBUFFERED", "1").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().context("start the S3 server")?;
        let mut lines = BufReader::new(process.stderr.take().context("no standard error")?).lines();
        let address = tokio::time::timeout(wait::scaled(START_TIMEOUT), announced(&mut lines)).await;
        let address = address.context("the S3 server does not start")??;
        // Whatever it says later must not block it.
        let reader = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let server = Self { address, reader, _process: process };
        let made = server.request(Method::PUT, BUCKET).await?;
        ensure!(made.0 == 200, "no bucket: {made:?}");
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Uploads that have begun and are not complete, as the server tells them.
    pub async fn incomplete_uploads(&self) -> Result<usize> {
        let (status, text) = self.request(Method::GET, &format!("{BUCKET}?uploads")).await?;
        ensure!(status == 200, "{status}: {text}");
        Ok(text.matches("<UploadId>").count())
    }

    async fn request(&self, method: Method, path: &str) -> Result<(u16, String)> {
        let request = Request::builder().method(method).uri(format!("http://{}/{path}", self.address));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request.body(Empty::<Bytes>::new())?).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn announced(lines: &mut Lines<BufReader<ChildStderr>>) -> Result<SocketAddr> {
    let mut said = String::new();
    while let Some(line) = lines.next_line().await? {
        if let Some((_, rest)) = line.split_once(ANNOUNCED) {
            let address = rest.trim_end_matches(|end: char| !end.is_ascii_digit());
            return address.parse().with_context(|| format!("the S3 server says `{line}`"));
        }
        said.push_str(&line);
        said.push('\n');
    }
    bail!("the S3 server ended: {said}")
}

/// The variables that lead a client to a server at this address.
pub fn environment(address: SocketAddr) -> Vec<(String, String)> {
    let endpoint = format!("http://{address}");
    [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "a-test"),
        ("AWS_SECRET_ACCESS_KEY", "not-a-secret"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}
