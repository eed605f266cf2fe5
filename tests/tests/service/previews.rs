//! Programs in guests, reached from outside: with a key, by signed links, by hosts of their own. Real guests, a real server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{SinkExt, StreamExt};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use sha2::{Digest, Sha256};
use tests::api::client::{Answer, Payload};
use tests::api::{Api, ApiSettings, KEY};
use tests::{run, wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// What runs in the guest.
const APP: &str = include_str!("previews/app.py");
/// How long it may take to begin an answer before the server gives up.
const GUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// How long to wait for what must happen.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Enough that no buffer on the way holds it.
const LARGE: usize = 24 << 20;

/// A sandbox with the program in it.
struct Stage<'a> {
    api: &'a Api,
    id: String,
}

fn nothing() -> Payload {
    Empty::new().boxed()
}

impl Stage<'_> {
    fn host(&self, port: u16) -> String {
        format!("{port}-{}.localhost:1234", self.id)
    }

    fn proxy(&self, rest: &str) -> String {
        format!("/v1/sandboxes/{}/proxy/8000{rest}", self.id)
    }

    /// Sends a request to a host, without a key.
    async fn send(
        &self,
        host: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Payload,
    ) -> Result<Response<Incoming>> {
        let stream = TcpStream::connect(self.api.address()).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends by itself when the answer has been read or dropped.
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = tokio::time::timeout(TIMEOUT, sender.send_request(request.body(body)?)).await;
        answer.with_context(|| format!("{host}{path}: no answer"))?.with_context(|| format!("{host}{path}"))
    }

    async fn ask(&self, host: &str, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
        self.api.read(self.send(host, method, path, headers, nothing()).await?).await
    }

    async fn get(&self, port: u16, path: &str) -> Result<Answer> {
        self.ask(&self.host(port), Method::GET, path, &[]).await
    }

    async fn with_key(&self, method: Method, rest: &str, headers: &[(&str, &str)]) -> Result<Answer> {
        self.api.read(self.api.send(method, &self.proxy(rest), headers, nothing()).await?).await
    }

    /// A signed link's path.
    async fn link(&self, request: serde_json::Value) -> Result<String> {
        let path = format!("/v1/sandboxes/{}/preview-token", self.id);
        let made = self.api.post(&path, request).await?.expect(200)?.json()?;
        let token = made["token"].as_str().context("no token")?.to_owned();
        ensure!(made["url"].as_str().is_some_and(|url| url.ends_with(&format!("/v1/p/{token}/"))), "{made}");
        Ok(format!("/v1/p/{token}"))
    }
}

/// Headers that a client might send and a guest must not see.
const SECRETS: [(&str, &str); 9] = [
    ("x-request-id", "secret-1"),
    ("x-pandastack-org", "secret-2"),
    ("x-stub-user", "secret-3"),
    ("x-fcs-workspace", "secret-4"),
    ("x-forwarded-for", "secret-5"),
    ("x-forwarded-prefix", "secret-6"),
    ("forwarded", "for=secret-7"),
    ("connection", "x-mine"),
    ("x-mine", "secret-8"),
];

/// An error unless a guest saw nothing of ours, but the cookie, and was told who asks.
fn clean(seen: &str) -> Result<()> {
    ensure!(!seen.contains("secret") && !seen.contains(KEY) && !seen.contains("/v1/"), "{seen}");
    ensure!(!seen.to_lowercase().contains("authorization"), "{seen}");
    ensure!(seen.contains("cookie: own=1\r\n") && seen.contains("x-forwarded-for: 127.0.0.1\r\n"), "{seen}");
    ensure!(seen.contains("x-forwarded-proto: http\r\n") && seen.contains("connection: close\r\n"), "{seen}");
    Ok(())
}

async fn keys(stage: &Stage<'_>) -> Result<()> {
    let mut headers = SECRETS.to_vec();
    headers.push(("cookie", "own=1"));
    let target = format!("/echo/a%2Fb//c?x=1&access_token={KEY}&y=%20");
    let answer = stage.with_key(Method::GET, &target, &headers).await?.expect(200)?;
    let seen = answer.text();
    clean(&seen)?;
    ensure!(seen.contains("\r\nhost: localhost:8000\r\n"), "{seen}");
    ensure!(seen.starts_with("GET /echo/a%2Fb//c?x=1&y=%20 HTTP/1.1\r\n"), "{seen}");
    ensure!(
        answer.header("x-request-id") == "secret-1" && answer.header("access-control-allow-origin") == "*"
    );
    // The key may be in the query alone.
    let path = stage.proxy(&format!("?access_token={KEY}"));
    let seen = stage.api.without_key().get(&path).await?.expect(200)?.text();
    ensure!(seen.starts_with("GET / HTTP/1.1\r\n") && !seen.contains(KEY), "{seen}");
    for method in ["PUT", "DELETE", "PROPFIND", "OPTIONS"] {
        let seen = stage.with_key(method.parse()?, "/echo", &[]).await?.expect(200)?.text();
        ensure!(seen.starts_with(&format!("{method} /echo ")), "{seen}");
    }
    let asked = [("origin", "http://a.test"), ("access-control-request-method", "GET")];
    stage.ask("localhost", Method::OPTIONS, &stage.proxy("/echo"), &asked).await?.expect(204)?;
    let head = stage.with_key(Method::HEAD, "/echo", &[]).await?.expect(200)?;
    ensure!(head.body.is_empty() && head.header("content-length").parse::<u64>()? > 0);

    let id = &stage.id;
    for port in ["22", "0", "65536", "-1", "x", "80%20"] {
        stage.api.get(&format!("/v1/sandboxes/{id}/proxy/{port}/")).await?.failure(400)?;
    }
    stage.api.without_key().get(&stage.proxy("/")).await?.failure(401)?;
    stage.api.second_tenant().await?.get(&stage.proxy("/")).await?.failure(404)?;
    stage.api.get("/v1/sandboxes/nosuch/proxy/8000/").await?.failure(404)?;
    let refused = stage.api.get(&format!("/v1/sandboxes/{id}/proxy/8001/")).await?.failure(502)?;
    ensure!(refused.starts_with("upstream: "), "{refused}");
    // With a key also ports that are not open to the world.
    stage.api.get(&format!("/v1/sandboxes/{id}/proxy/5432/echo")).await?.expect(200)?;
    Ok(())
}

async fn bodies(stage: &Stage<'_>) -> Result<()> {
    let piece = Bytes::from(vec![7u8; 1 << 20]);
    let mut digest = Sha256::new();
    (0..LARGE >> 20).for_each(|_| digest.update(&piece));
    let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = format!("{LARGE} {digest}");
    // Once with its length, once in chunks.
    let whole = Full::new(Bytes::from(vec![7u8; LARGE])).boxed();
    let answer = stage.api.send(Method::POST, &stage.proxy("/upload"), &[], whole).await?;
    ensure!(stage.api.read(answer).await?.expect(200)?.text() == expected);
    let frames = (0..LARGE >> 20).map(move |_| Ok(Frame::data(piece.clone())));
    let chunked: Payload = BoxBody::new(StreamBody::new(futures::stream::iter(frames)));
    let answer = stage.send(&stage.host(8000), Method::PUT, "/upload", &[], chunked).await?;
    ensure!(stage.api.read(answer).await?.expect(200)?.text() == expected);
    let answer = stage.get(8000, &format!("/download?{LARGE}")).await?.expect(200)?;
    ensure!(answer.body.len() == LARGE && answer.header("content-length") == LARGE.to_string());

    // The first piece of a stream is there while the guest still waits to be told to send the second.
    let mut answer = stage.send(&stage.host(8000), Method::GET, "/stream", &[], nothing()).await?;
    let first = answer.body_mut().frame().await.context("no first piece")??;
    ensure!(first.data_ref().is_some_and(|data| data.as_ref() == b"first"), "{first:?}");
    stage.get(8000, "/gate").await?.expect(200)?;
    ensure!(stage.api.read(answer).await?.text() == "second");
    ensure!(stage.get(8000, "/old").await?.expect(200)?.text() == "until the end");
    Ok(())
}

async fn links(stage: &Stage<'_>) -> Result<()> {
    let any = stage.api.without_key();
    let link = stage.link(json!({ "port": 8000 })).await?;
    let mut headers = SECRETS.to_vec();
    let page = format!("http://api.test{link}/page");
    headers.extend([("cookie", "own=1"), ("referer", &page)]);
    let answer =
        stage.ask("api.test", Method::GET, &format!("{link}/echo?a=b"), &headers).await?.expect(200)?;
    let (seen, token) = (answer.text(), link.trim_start_matches("/v1/p/"));
    clean(&seen)?;
    ensure!(!seen.contains(token) && seen.contains("referer: http://localhost:8000/page\r\n"), "{seen}");
    ensure!(answer.header("x-request-id").is_empty());
    ensure!(answer.header("access-control-allow-origin").is_empty());
    // Redirects and cookies stay below the link.
    let moved = any.get(&format!("{link}/move")).await?.expect(302)?;
    ensure!(moved.header("location") == format!("{link}/echo?moved"), "{:?}", moved.headers);
    ensure!(moved.header("set-cookie") == format!("a=b; Path={link}/"), "{:?}", moved.headers);
    ensure!(moved.header("service-worker-allowed").is_empty());
    any.get(&link).await?.expect(200)?;

    let link = stage.link(json!({ "port": 8000, "paths": ["/echo", "/ws"] })).await?;
    for path in ["/echo", "/echo/", "/echo/deep?x=/../", "/echo?q"] {
        any.get(&format!("{link}{path}")).await?.expect(200)?;
    }
    for path in [
        "",
        "/",
        "/other",
        "/echoes",
        "/echo/../other",
        "/echo/%2e%2E/other",
        "/echo/..%2fother",
        "/%65cho/../x",
        "//echo",
        "/echo/..;/x",
    ] {
        any.get(&format!("{link}{path}")).await?.failure(403)?;
    }
    for token in ["x", "x.y", &token[1..], &format!("{token}A"), "%2e%2e"] {
        any.get(&format!("/v1/p/{token}/echo")).await?.failure(401)?;
    }
    // Another protocol could ask for any path.
    let upgrade = [("connection", "upgrade"), ("upgrade", "shout")];
    let answer = stage.ask("localhost", Method::GET, &format!("{link}/echo"), &upgrade).await?.expect(200)?;
    ensure!(!answer.text().contains("upgrade"), "{}", answer.text());

    let link = stage.link(json!({ "port": 8000, "ttl_seconds": 1 })).await?;
    wait::until_async("the link expires", TIMEOUT, async || {
        Ok(any.get(&format!("{link}/echo")).await?.status == 401)
    })
    .await?;
    let sandbox = &stage.id;
    for request in
        [json!({ "port": 22 }), json!({ "port": 0 }), json!({ "port": 80, "ttl_seconds": 604_801 })]
    {
        stage.api.post(&format!("/v1/sandboxes/{sandbox}/preview-token"), request).await?.failure(400)?;
    }
    Ok(())
}

async fn hosts(stage: &Stage<'_>) -> Result<()> {
    let mut headers = SECRETS.to_vec();
    let bearer = format!("Bearer {KEY}");
    headers.extend([("cookie", "own=1"), ("authorization", &bearer)]);
    let host = stage.host(8000);
    let answer = stage.ask(&host, Method::GET, "/echo", &headers).await?.expect(200)?;
    let seen = answer.text();
    clean(&seen)?;
    ensure!(seen.contains(&format!("host: {host}\r\n")), "{seen}");
    for name in ["x-request-id", "access-control-allow-origin", "access-control-allow-methods"] {
        ensure!(answer.header(name).is_empty(), "{name}: {:?}", answer.headers);
    }
    let own =
        stage.ask(&host, Method::GET, "/echo?access_token=own", &[("authorization", "Bearer own")]).await?;
    ensure!(own.text().contains("authorization: Bearer own") && own.text().contains("access_token=own"));
    // No route of the API is there, and every method is the guest's.
    for path in ["/healthz", "/v1/sandboxes", "/openapi.json", "/metrics"] {
        let seen = stage.ask(&host, Method::OPTIONS, path, &headers).await?.expect(200)?.text();
        ensure!(seen.starts_with(&format!("OPTIONS {path} ")), "{seen}");
    }
    let moved = stage.get(8000, "/move").await?.expect(302)?;
    ensure!(moved.header("location") == "/echo?moved" && moved.header("set-cookie") == "a=b; Path=/");

    // Ports that hold data are closed until they are named; 22 stays closed.
    for port in [22, 25, 5432] {
        stage.get(port, "/echo").await?.failure(403)?;
    }
    let ports = format!("/v1/sandboxes/{}/ports", stage.id);
    stage.api.post(&ports, json!({ "port": 5432, "label": "page" })).await?.expect(201)?;
    stage.get(5432, "/echo").await?.expect(200)?;
    stage.api.delete(&format!("{ports}/5432")).await?.expect(204)?;
    stage.get(5432, "/echo").await?.failure(403)?;
    stage.api.post(&ports, json!({ "port": 22 })).await?.failure(400)?;

    let failed = stage.get(8001, "/").await?;
    ensure!(failed.failure(502)?.starts_with("upstream: ") && failed.header("x-request-id").is_empty());
    for host in ["8000-nosuch.localhost", "fn-abc.localhost", "www.localhost", "a.b.localhost"] {
        let answer = stage.ask(host, Method::GET, "/healthz", &[]).await?;
        answer.failure(404)?;
    }
    for host in ["localhost", "LOCALHOST:99", "127.0.0.1", "elsewhere.test", "api.localhost"] {
        stage.ask(host, Method::GET, "/healthz", &[]).await?.expect(200)?;
    }
    let tunnel = stage.api.raw(format!("CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).await?;
    ensure!(tunnel.starts_with("HTTP/1.1 405 "), "{tunnel}");
    Ok(())
}

async fn sockets(stage: &Stage<'_>) -> Result<()> {
    let link = stage.link(json!({ "port": 8000, "paths": ["/ws"] })).await?;
    let ways = [
        format!("ws://{}/ws", stage.host(8000)),
        format!("ws://localhost{link}/ws"),
        format!("ws://localhost{}", stage.proxy(&format!("/ws?access_token={KEY}"))),
    ];
    for way in &ways {
        let stream = TcpStream::connect(stage.api.address()).await?;
        let request = way.as_str().into_client_request()?;
        let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.context(way.clone())?;
        for text in ["hello".to_owned(), "x".repeat(3000)] {
            socket.send(Message::text(text.clone())).await?;
            let echoed = socket.next().await.context("no echo")??;
            ensure!(echoed.to_text()? == text);
        }
        socket.close(None).await?;
        while let Some(Ok(_)) = socket.next().await {}
    }
    // Any other protocol, bytes as they are; the client's end of input reaches the guest.
    let mut stream = TcpStream::connect(stage.api.address()).await?;
    let host = stage.host(8000);
    let head =
        format!("GET /raw HTTP/1.1\r\nHost: {host}\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\nearly\n");
    stream.write_all(head.as_bytes()).await?;
    let mut heard = String::new();
    while !heard.ends_with("EARLY\n") {
        ensure!(
            tokio::time::timeout(TIMEOUT, stream.read_u8())
                .await?
                .map(|byte| heard.push(byte.into()))
                .is_ok()
        );
    }
    stream.write_all(b"late\n").await?;
    stream.shutdown().await?;
    tokio::time::timeout(TIMEOUT, stream.read_to_string(&mut heard)).await.context("no end")??;
    ensure!(heard.starts_with("HTTP/1.1 101 ") && heard.ends_with("\r\n\r\nEARLY\nLATE\n"), "{heard}");
    Ok(())
}

async fn misbehaviour(stage: &Stage<'_>) -> Result<()> {
    for path in ["/garbage", "/endless", "/silent", "/unasked"] {
        let message = stage.get(8000, path).await?.failure(502)?;
        ensure!(message.starts_with("upstream: "), "{path}: {message}");
    }
    let message = stage.get(8000, "/never").await?.failure(504)?;
    ensure!(message.starts_with("upstream: "), "{message}");
    let answer = stage.send(&stage.host(8000), Method::GET, "/short", &[], nothing()).await?;
    ensure!(answer.into_body().collect().await.is_err(), "a body that was cut short looked whole");

    // A client that goes away takes everything with it, even while nothing is sent.
    let hanging = async || -> Result<String> { Ok(stage.get(8000, "/hanging").await?.expect(200)?.text()) };
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(stage.api.address()).await?;
        let head = format!("GET /hang HTTP/1.1\r\nHost: {}\r\n\r\n", stage.host(8000));
        stream.write_all(head.as_bytes()).await?;
        let mut heard = Vec::new();
        while !heard.ends_with(b"so ") {
            ensure!(stream.read_buf(&mut heard).await? > 0, "{}", String::from_utf8_lossy(&heard));
        }
        clients.push(stream);
    }
    ensure!(hanging().await? == "3");
    drop(clients);
    wait::until_async("the guest's connections end", TIMEOUT, async || Ok(hanging().await? == "0")).await
}

async fn sleep(stage: &Stage<'_>) -> Result<()> {
    let (api, id) = (stage.api, &stage.id);
    api.post_nothing(&format!("/v1/sandboxes/{id}/hibernate")).await?.expect(200)?;
    stage.get(5432, "/echo").await?.failure(403)?;
    ensure!(api.status(id).await? == "hibernated");
    stage.get(8000, "/echo").await?.expect(200)?;
    ensure!(api.status(id).await? == "running");
    api.post_nothing(&format!("/v1/sandboxes/{id}/pause")).await?.expect(204)?;
    stage.get(8000, "/echo").await?.failure(503)?;
    stage.with_key(Method::GET, "/echo", &[]).await?.failure(503)?;
    api.post_nothing(&format!("/v1/sandboxes/{id}/resume")).await?.expect(204)?;
    stage.get(8000, "/echo").await?.expect(200)?;
    let link = stage.link(json!({ "port": 8000 })).await?;
    api.remove(id).await?;
    stage.get(8000, "/echo").await?.failure(404)?;
    api.without_key().get(&format!("{link}/echo")).await?.failure(404).map(drop)
}

#[test]
fn programs_in_guests_are_reached_by_key_link_and_host() -> Result<()> {
    run(async || {
        let mut settings = ApiSettings::new("previews");
        settings.server.guest_patience = GUEST_TIMEOUT;
        let api = Api::start_with(settings).await?;
        let id = api.create().await?;
        api.put(&format!("/v1/sandboxes/{id}/fs?path=/run/app.py"), APP).await?.expect(200)?;
        api.shell(&id, "setsid python3 /run/app.py 8000 5432 >/run/app.log 2>&1 </dev/null &").await?;
        let stage = Stage { api: &api, id };
        wait::until_async("the program listens", TIMEOUT, async || {
            let open = async |port: u16| {
                let path = format!("/v1/sandboxes/{}/proxy/{port}/echo", stage.id);
                Ok::<_, anyhow::Error>(api.get(&path).await?.status == 200)
            };
            Ok(open(8000).await? && open(5432).await?)
        })
        .await?;
        keys(&stage).await.context("with a key")?;
        links(&stage).await.context("by signed links")?;
        hosts(&stage).await.context("by hosts")?;
        sockets(&stage).await.context("other protocols")?;
        bodies(&stage).await.context("bodies")?;
        misbehaviour(&stage).await.context("misbehaviour")?;
        sleep(&stage).await.context("sleep")?;
        api.finish().await
    })
}
