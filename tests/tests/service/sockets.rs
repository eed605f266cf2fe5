//! WebSockets into sandboxes: terminals, many commands at once, language servers; and clients that behave badly.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{SinkExt, StreamExt};
use hyper::Method;
use image::template::code_interpreter;
use serde_json::{Value, json};
use tests::api::client::Client;
use tests::{Api, ApiSettings, LabSettings, in_api, run, wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// How long an emulated guest on a busy host may take for anything here.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The first run makes an image of more than a gigabyte.
const BUILD_TIMEOUT: Duration = Duration::from_secs(1500);

/// A WebSocket client.
struct Socket {
    stream: WebSocketStream<TcpStream>,
    protocol: Option<String>,
    /// Binary messages so far.
    output: Vec<u8>,
    /// Text messages so far.
    texts: Vec<Value>,
}

impl Socket {
    /// Opens a connection; a refusal is the answer's status and body.
    async fn try_open(
        api: &Api,
        path: &str,
        key: Option<&str>,
        protocol: Option<&str>,
    ) -> Result<Result<Self, (u16, Value)>> {
        let mut request = format!("ws://{}{path}", api.address()).into_client_request()?;
        if let Some(key) = key {
            request.headers_mut().insert("authorization", format!("Bearer {key}").parse()?);
        }
        if let Some(protocol) = protocol {
            request.headers_mut().insert("sec-websocket-protocol", protocol.parse()?);
        }
        let stream = TcpStream::connect(api.address()).await?;
        match client_async(request, stream).await {
            Ok((stream, answer)) => {
                let header = answer.headers().get("sec-websocket-protocol");
                let protocol = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
                Ok(Ok(Self { stream, protocol, output: Vec::new(), texts: Vec::new() }))
            }
            Err(Error::Http(answer)) => {
                let body = answer.body().as_deref().unwrap_or_default();
                Ok(Err((answer.status().as_u16(), serde_json::from_slice(body).unwrap_or(Value::Null))))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn open(api: &Api, path: &str) -> Result<Self> {
        let opened = Self::try_open(api, path, api.key(), None).await?;
        opened.map_err(|(status, body)| anyhow::anyhow!("{path}: {status} {body}"))
    }

    async fn send(&mut self, message: impl Into<Message>) -> Result<()> {
        Ok(self.stream.send(message.into()).await?)
    }

    async fn say(&mut self, value: Value) -> Result<()> {
        self.send(value.to_string()).await
    }

    async fn type_in(&mut self, text: &str) -> Result<()> {
        self.send(text.as_bytes().to_vec()).await
    }

    /// Takes in one message; `false` at the end.
    async fn take(&mut self) -> Result<bool> {
        let next = tokio::time::timeout(TIMEOUT, self.stream.next()).await;
        match next.with_context(|| format!("silence after {:?} {}", self.texts, self.shown()))? {
            Some(Ok(Message::Binary(bytes))) => self.output.extend_from_slice(&bytes),
            Some(Ok(Message::Text(text))) => self.texts.push(serde_json::from_str(&text)?),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(false),
            Some(Ok(_)) => {}
        }
        Ok(true)
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// Reads until the output holds `wanted`.
    async fn until(&mut self, wanted: &str) -> Result<()> {
        while !self.shown().contains(wanted) {
            ensure!(self.take().await?, "closed before {wanted:?}: {:?} {}", self.texts, self.shown());
        }
        Ok(())
    }

    /// Reads until a text message matches.
    async fn until_text(&mut self, matches: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut seen = 0;
        loop {
            if let Some(found) = self.texts[seen..].iter().find(|text| matches(text)) {
                return Ok(found.clone());
            }
            seen = self.texts.len();
            ensure!(self.take().await?, "closed: {:?} {}", self.texts, self.shown());
        }
    }

    /// Reads until the connection is closed; the code it was closed with, if any.
    async fn until_closed(&mut self) -> Result<Option<u16>> {
        loop {
            let next = tokio::time::timeout(TIMEOUT, self.stream.next()).await.context("not closed")?;
            match next {
                Some(Ok(Message::Text(text))) => self.texts.push(serde_json::from_str(&text)?),
                Some(Ok(Message::Binary(bytes))) => self.output.extend_from_slice(&bytes),
                Some(Ok(Message::Close(frame))) => return Ok(frame.map(|frame| frame.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}

/// What one command over `exec/ws` wrote and how it ended.
fn collected(texts: &[Value], id: &str) -> (String, String) {
    let text = |stream: &str| {
        let pieces = texts.iter().filter(|text| text["id"] == id && text["stream"] == stream);
        pieces.filter_map(|text| text["data"].as_str()).collect()
    };
    (text("stdout"), text("stderr"))
}

async fn until_process_gone(api: &Client, id: &str, file: &str) -> Result<()> {
    let line = format!("kill -0 $(cat {file}) 2>/dev/null && echo there || echo gone");
    wait::until_async("the process is gone", TIMEOUT, async || Ok(api.shell(id, &line).await? == "gone"))
        .await
}

async fn until_file(api: &Client, id: &str, file: &str) -> Result<()> {
    let line = format!("test -s {file} && echo there || echo missing");
    wait::until_async("the file is there", TIMEOUT, async || Ok(api.shell(id, &line).await? == "there")).await
}

#[test]
fn a_terminal_is_a_login_shell_with_a_size_an_end_and_a_hang_up() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let path = format!("/v1/sandboxes/{id}/ssh?rows=30&cols=100&term=vt100");
        let mut shell = Socket::open(api, &path).await?;
        shell.type_in("stty size; echo term=$TERM dir=$PWD; shopt -q login_shell && echo lo''gin\n").await?;
        shell.until("30 100").await?;
        shell.until("term=vt100 dir=/root").await?;
        shell.until("\nlogin").await?;
        shell.say(json!({ "resize": { "rows": 41, "cols": 121 } })).await?;
        shell.say(json!({ "stdin": "stty size\n" })).await?;
        shell.until("41 121").await?;
        shell.say(json!({ "nonsense": 1 })).await?;
        shell.until_text(|text| text["error"].is_string()).await?;
        // Interrupts reach the foreground job, and what is typed is echoed.
        shell.type_in("sleep 1000; echo end=$?\n").await?;
        let asleep = "pgrep -x sleep >/dev/null && echo yes || echo no";
        wait::until_async("it sleeps", TIMEOUT, async || Ok(api.shell(&id, asleep).await? == "yes")).await?;
        shell.type_in("\x03").await?;
        shell.type_in("printf '\\360\\237\\220\\274 \\377\\n'; exit 7\n").await?;
        let code = shell.until_closed().await?;
        ensure!(shell.texts.last() == Some(&json!({ "exit": 7 })), "{:?}", shell.texts);
        ensure!(code == Some(1000), "{code:?}");
        ensure!(shell.output.windows(6).any(|bytes| bytes == b"\xf0\x9f\x90\xbc \xff"), "{}", shell.shown());

        // The connection wakes a sleeping sandbox, works in a browser's way, and going away hangs up.
        api.post_nothing(&format!("/v1/sandboxes/{id}/hibernate")).await?.expect(200)?;
        let key = api.key().context("no key")?;
        let path = format!("/v1/sandboxes/{id}/exec/pty?cwd=/tmp&access_token={key}");
        let mut shell = match Socket::try_open(api, &path, None, None).await? {
            Ok(shell) => shell,
            Err((status, body)) => bail!("{status} {body}"),
        };
        shell.type_in("echo dir=$PWD; echo $$ > shell; sh -c 'echo $$ > job; exec sleep 1000'\n").await?;
        shell.until("dir=/tmp").await?;
        until_file(api, &id, "/tmp/job").await?;
        drop(shell);
        until_process_gone(api, &id, "/tmp/shell").await?;
        until_process_gone(api, &id, "/tmp/job").await?;
        let mut stubborn = Socket::open(api, &format!("/v1/sandboxes/{id}/ssh")).await?;
        stubborn.type_in("trap '' HUP; echo $$ > /tmp/stubborn; while :; do read line; done\n").await?;
        until_file(api, &id, "/tmp/stubborn").await?;
        stubborn.stream.close(None).await?;
        until_process_gone(api, &id, "/tmp/stubborn").await?;

        let mut nowhere = Socket::open(api, &format!("/v1/sandboxes/{id}/ssh?cwd=/nowhere")).await?;
        nowhere.until_closed().await?;
        ensure!(nowhere.texts.len() == 1 && nowhere.texts[0]["error"].is_string(), "{:?}", nowhere.texts);

        let audit = api.get("/v1/audit?limit=1000").await?.expect(200)?.json()?;
        let opened = format!("/v1/sandboxes/{id}/ssh");
        let entries = audit["entries"].as_array().context("no entries")?;
        ensure!(
            entries.iter().any(|entry| entry["path"] == opened.as_str() && entry["status"] == 101),
            "{audit}"
        );
        api.remove(&id).await
    })
}

#[test]
fn what_cannot_be_opened_is_refused_in_json_before_the_upgrade() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let other = api.second_tenant().await?;
        for path in ["ssh", "exec/pty", "exec/ws", "lsp/python", "ports/9/tcp"] {
            let address = format!("/v1/sandboxes/{id}/{path}");
            let refused = async |address: &str, key: Option<&str>| -> Result<u16> {
                match Socket::try_open(api, address, key, None).await? {
                    Ok(_) => bail!("{address} was opened"),
                    Err((status, body)) => {
                        ensure!(body["error"].is_string(), "{address}: {body}");
                        Ok(status)
                    }
                }
            };
            ensure!(refused(&address, None).await? == 401);
            ensure!(refused(&address, Some("pds_00000000000000000000000000000000")).await? == 401);
            ensure!(refused(&address, other.key()).await? == 404);
            let missing = format!("/v1/sandboxes/00000000-0000-4000-8000-000000000000/{path}");
            ensure!(refused(&missing, api.key()).await? == 404);
            api.get(&address).await?.failure(400)?;
            other.get(&address).await?.failure(404)?;
            api.request(Method::POST, &address, None).await?.failure(405)?;
        }
        let cobol = format!("/v1/sandboxes/{id}/lsp/cobol");
        let Err((400, body)) = Socket::try_open(api, &cobol, api.key(), Some("lsp")).await? else {
            bail!("a server for cobol")
        };
        ensure!(body["error"].as_str().is_some_and(|error| error.contains("cobol")), "{body}");
        let wrong = format!("/v1/sandboxes/{id}/ssh?rows=many");
        ensure!(matches!(Socket::try_open(api, &wrong, api.key(), None).await?, Err((400, _))));
        api.post_nothing(&format!("/v1/sandboxes/{id}/pause")).await?.expect(204)?;
        let paused = format!("/v1/sandboxes/{id}/exec/ws");
        ensure!(matches!(Socket::try_open(api, &paused, api.key(), None).await?, Err((409, _))));
        api.remove(&id).await
    })
}

/// Takes one connection at a time on two ports: what comes on the first goes back in capitals once the client writes no more; on
/// the second a greeting is sent and the connection closed.
const TUNNELLED: &str = "\
import _socket as s, _thread, time
def listen(port, serve):
    a = s.socket(s.AF_INET, s.SOCK_STREAM)
    a.setsockopt(s.SOL_SOCKET, s.SO_REUSEADDR, 1)
    a.bind(('127.0.0.1', port))
    a.listen()
    while True:
        fd, _ = a._accept()
        c = s.socket(fileno=fd)
        serve(c)
        c.close()
def capitals(c):
    got = b''
    while True:
        piece = c.recv(65536)
        if not piece:
            break
        got += piece
    open('/tmp/got', 'w').write(str(len(got)))
    c.sendall(got.upper())
_thread.start_new_thread(listen, (22, lambda c: c.sendall(b'SSH-2.0-hello')))
listen(7000, capitals)
";

#[test]
fn a_tunnel_carries_one_connection_with_both_its_ends() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let path = |port: u16| format!("/v1/sandboxes/{id}/ports/{port}/tcp");
        let refused = async |port: u16| -> Result<(u16, Value)> {
            match Socket::try_open(api, &path(port), api.key(), None).await? {
                Ok(_) => bail!("port {port} was opened"),
                Err(refused) => Ok(refused),
            }
        };
        ensure!(refused(7000).await?.0 == 502 && refused(22).await?.0 == 502 && refused(0).await?.0 == 400);
        let argv = json!(["python3", "-c", TUNNELLED]);
        api.post(&format!("/v1/sandboxes/{id}/processes"), json!({ "argv": argv })).await?.expect(201)?;
        wait::until_async("it listens", TIMEOUT, async || {
            Ok(Socket::try_open(api, &path(22), api.key(), None).await?.is_ok())
        })
        .await?;
        wait::until_async("it listens", TIMEOUT, async || {
            let ports = api.get(&format!("/v1/sandboxes/{id}/ports")).await?.expect(200)?.json()?;
            Ok(ports.as_array().into_iter().flatten().any(|port| port["port"] == 7000))
        })
        .await?;
        // A sleeping sandbox is woken. More than fits anywhere on the way goes in, and comes back only after the end was told.
        api.post_nothing(&format!("/v1/sandboxes/{id}/hibernate")).await?.expect(200)?;
        let mut tunnel = Socket::open(api, &path(7000)).await?;
        let line = vec![b'a'; 256 << 10];
        for _ in 0..12 {
            tunnel.send(line.clone()).await?;
        }
        ensure!(tunnel.output.is_empty());
        tunnel.say(json!({ "eof": true })).await?;
        let code = tunnel.until_closed().await?;
        ensure!(
            code == Some(1000) && tunnel.texts == [json!({ "eof": true })],
            "{code:?} {:?}",
            tunnel.texts
        );
        ensure!(tunnel.output == vec![b'A'; 12 * line.len()], "{} bytes came back", tunnel.output.len());
        // The other way around: the guest ends first, and the client may still write.
        let mut greeted = Socket::open(api, &path(22)).await?;
        greeted.until("SSH-2.0-hello").await?;
        greeted.until_text(|text| text["eof"] == true).await?;
        greeted.say(json!({ "eof": true })).await?;
        ensure!(greeted.until_closed().await? == Some(1000));
        // What was sent before the WebSocket was closed still arrives.
        let mut hasty = Socket::open(api, &path(7000)).await?;
        hasty.send(b"hasty".to_vec()).await?;
        hasty.stream.close(None).await?;
        let got = async || Ok(api.shell(&id, "cat /tmp/got").await? == "5");
        wait::until_async("it arrived", TIMEOUT, got).await?;
        let mut strange = Socket::open(api, &path(7000)).await?;
        strange.say(json!({ "eof": false })).await?;
        ensure!(strange.until_closed().await? == Some(1008));
        // A key that does not work any more takes its connections along.
        let made = api.post("/v1/me/tokens", json!({ "label": "short" })).await?.expect(201)?.json()?;
        let key = made["token"].as_str().context("no key")?;
        let prefix = made["prefix"].as_str().context("no prefix")?;
        let reading = api.post("/v1/me/tokens", json!({ "scope": "read" })).await?.expect(201)?.json()?;
        let opened = Socket::try_open(api, &path(7000), reading["token"].as_str(), None).await?;
        ensure!(matches!(opened, Err((403, _))), "a key that may only read opened it");
        let opened = Socket::try_open(api, &path(7000), Some(key), None).await?;
        let mut revoked = opened.map_err(|(status, body)| anyhow::anyhow!("{status} {body}"))?;
        api.delete(&format!("/v1/me/tokens/{prefix}")).await?.expect(204)?;
        ensure!(revoked.until_closed().await? == Some(1008));
        let audit = api.get("/v1/audit?limit=1000").await?.expect(200)?.json()?;
        let entries = audit["entries"].as_array().context("no entries")?;
        ensure!(entries.iter().any(|entry| entry["path"] == path(7000).as_str() && entry["status"] == 101));
        api.remove(&id).await
    })
}

#[test]
fn many_commands_share_a_connection_and_end_with_it() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let path = format!("/v1/sandboxes/{id}/exec/ws");
        let mut socket = Socket::open(api, &path).await?;
        socket.say(json!({ "id": "slow", "cmd": "echo $$ > /tmp/slow; sleep 1000 & wait" })).await?;
        socket.say(json!({ "id": "late", "cmd": "sleep 1000", "timeout_seconds": 1 })).await?;
        socket.say(json!({ "id": "quick", "cmd": "echo héllo 🐼; echo oops >&2; exit 3" })).await?;
        ensure!(socket.until_text(|text| text["id"] == "quick" && text["exit"].is_i64()).await?["exit"] == 3);
        let (stdout, stderr) = collected(&socket.texts, "quick");
        ensure!((stdout.as_str(), stderr.as_str()) == ("héllo 🐼\n", "oops\n"), "{:?}", socket.texts);
        let late = socket.until_text(|text| text["id"] == "late" && !text["error"].is_null()).await?;
        ensure!(late["error"].as_str().is_some_and(|error| error.contains("timeout")), "{late}");
        socket.say(json!({ "id": "slow", "cmd": "true" })).await?;
        socket.until_text(|text| text["id"] == "slow" && text["error"].is_string()).await?;
        socket.say(json!({ "id": "slow", "cancel": true })).await?;
        ensure!(
            socket.until_text(|text| text["id"] == "slow" && text["exit"].is_i64()).await?["exit"] == 137
        );
        until_process_gone(api, &id, "/tmp/slow").await?;
        for bad in
            [json!({ "id": "x", "cancel": true }), json!({ "id": "x" }), json!({ "id": "x", "cmd": 5 })]
        {
            socket.texts.clear();
            socket.say(bad.clone()).await?;
            socket.until_text(|text| text["error"].is_string()).await.with_context(|| bad.to_string())?;
        }
        for bad in ["", "{", "[]", "\"x\"", "{\"cmd\":\"true\"}", "{\"id\":7,\"cmd\":\"true\"}"] {
            socket.texts.clear();
            socket.send(bad.to_owned()).await?;
            socket.until_text(|text| text["error"].is_string()).await.with_context(|| bad.to_owned())?;
        }
        // More than fits anywhere on the way.
        socket.texts.clear();
        socket.say(json!({ "id": "big", "cmd": "head -c 6000000 /dev/zero | tr '\\0' é" })).await?;
        socket.say(json!({ "id": "small", "cmd": "echo small" })).await?;
        socket.until_text(|text| text["id"] == "small" && text["exit"] == 0).await?;
        socket.until_text(|text| text["id"] == "big" && text["exit"] == 0).await?;
        ensure!(collected(&socket.texts, "big").0.len() >= 6_000_000);
        // A bound on how many run at once.
        socket.texts.clear();
        for number in 0..=64 {
            socket.say(json!({ "id": format!("crowd{number}"), "cmd": "exec sleep 1000" })).await?;
        }
        let refused = socket.until_text(|text| text["error"].is_string()).await?;
        ensure!(refused["id"] == "crowd64", "{refused}");
        let count = "pgrep -x sleep | wc -l";
        wait::until_async("all run", TIMEOUT, async || Ok(api.shell(&id, count).await? == "64")).await?;
        drop(socket);
        wait::until_async("all are gone", TIMEOUT, async || Ok(api.shell(&id, count).await? == "0")).await?;

        let mut socket = Socket::open(api, &path).await?;
        let line = format!("true {}", "x".repeat(1 << 20));
        // The server stops reading at its bound, so the rest of the message may meet a connection that is gone.
        if socket.say(json!({ "id": "long", "cmd": line })).await.is_ok()
            && let Ok(code) = socket.until_closed().await
        {
            ensure!(code.is_none_or(|code| code == 1009), "{code:?}");
        }
        api.remove(&id).await
    })
}

#[test]
fn a_language_server_talks_in_bytes() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let path = format!("/v1/sandboxes/{id}/lsp/py");
        let open = async || -> Result<Socket> {
            let opened = Socket::try_open(api, &path, api.key(), Some("lsp")).await?;
            opened.map_err(|(status, body)| anyhow::anyhow!("{status} {body}"))
        };
        let mut missing = open().await?;
        ensure!(missing.protocol.as_deref() == Some("lsp"));
        missing.until_closed().await?;
        ensure!(missing.texts.len() == 1 && missing.texts[0]["hint"].is_string(), "{:?}", missing.texts);

        // The bridge does not look at what it carries: a server that says everything back shows that all of it arrives.
        let script =
            "#!/bin/sh\necho $$ > /tmp/server\necho ready >&2\nhead -c 900036\nprintf half >&2\nexit 4\n";
        api.put(&format!("/v1/sandboxes/{id}/fs?path=/usr/local/bin/pylsp"), script).await?;
        api.shell(&id, "chmod +x /usr/local/bin/pylsp").await?;
        let mut server = open().await?;
        server.until_text(|text| *text == json!({ "stream": "stderr", "line": "ready" })).await?;
        let head = "Content-Length: 900000\r\n\r\n";
        let mut message = head.as_bytes().to_vec();
        message.extend((0..900_000_u32).map(|number| number as u8));
        server.send(message.clone()).await?;
        server.send("0123456789".to_owned()).await?;
        server.until_closed().await?;
        message.extend(b"0123456789");
        ensure!(server.output == message, "{} bytes came back", server.output.len());
        let ends = [json!({ "stream": "stderr", "line": "half" }), json!({ "exit": 4 })];
        ensure!(server.texts.ends_with(&ends), "{:?}", server.texts);

        api.shell(&id, "rm /tmp/server").await?;
        let server = open().await?;
        until_file(api, &id, "/tmp/server").await?;
        drop(server);
        until_process_gone(api, &id, "/tmp/server").await?;
        api.remove(&id).await
    })
}

#[test]
fn clients_that_do_not_read_or_are_silent_are_dropped() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        // Answers no ping, because it never reads.
        let mut deaf = Socket::open(api, &format!("/v1/sandboxes/{id}/exec/ws")).await?;
        deaf.say(json!({ "id": "flood", "cmd": "echo $$ > /tmp/flood; exec yes" })).await?;
        let mut deaf_shell = Socket::open(api, &format!("/v1/sandboxes/{id}/ssh")).await?;
        deaf_shell.type_in("echo $$ > /tmp/flooded; exec yes\n").await?;
        // Reads, and is otherwise dead.
        let mut silent = TcpStream::connect(api.address()).await?;
        let head = format!(
            "GET /v1/sandboxes/{id}/ssh HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nupgrade: websocket\r\n\
             connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            api.key().context("no key")?
        );
        silent.write_all(head.as_bytes()).await?;
        until_file(api, &id, "/tmp/flood").await?;
        until_file(api, &id, "/tmp/flooded").await?;
        let shells = "pgrep -c -x 'bash|yes'";
        let mut answer = Vec::new();
        tokio::time::timeout(TIMEOUT, silent.read_to_end(&mut answer)).await.context("not dropped")??;
        ensure!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
        until_process_gone(api, &id, "/tmp/flood").await?;
        until_process_gone(api, &id, "/tmp/flooded").await?;
        let none = format!("{shells} || true");
        wait::until_async("no shell is left", TIMEOUT, async || Ok(api.shell(&id, &none).await? == "0"))
            .await?;
        drop((deaf, deaf_shell));
        api.remove(&id).await
    })
}

#[test]
fn a_revoked_key_loses_its_connections() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let made = api.post("/v1/me/tokens", json!({ "label": "short" })).await?.expect(201)?.json()?;
        let key = made["token"].as_str().context("no key")?;
        let path = format!("/v1/sandboxes/{id}/exec/ws");
        let mut socket = match Socket::try_open(api, &path, Some(key), None).await? {
            Ok(socket) => socket,
            Err((status, body)) => bail!("{status} {body}"),
        };
        socket.say(json!({ "id": "before", "cmd": "true" })).await?;
        socket.until_text(|text| text["id"] == "before" && text["exit"] == 0).await?;
        api.delete(&format!("/v1/me/tokens/{}", &key[..12])).await?.expect(204)?;
        socket.say(json!({ "id": "after", "cmd": "true" })).await?;
        let refused = socket.until_text(|text| text["id"] == "after").await?;
        ensure!(refused["error"].is_string(), "{refused}");
        ensure!(socket.until_closed().await? == Some(1008));
        api.remove(&id).await
    })
}

#[test]
fn a_server_that_goes_down_says_so_and_leaves_commands_running() -> Result<()> {
    run(async || {
        let api = Api::start("sockets").await?;
        let id = api.create().await?;
        let mut socket = Socket::open(&api, &format!("/v1/sandboxes/{id}/exec/ws")).await?;
        let line = "echo $$ > /tmp/kept; while ! test -e /tmp/go; do sleep 0.1; done; echo went";
        socket.say(json!({ "id": "kept", "cmd": line })).await?;
        let mut shell = Socket::open(&api, &format!("/v1/sandboxes/{id}/ssh")).await?;
        shell.type_in("echo $$ > /tmp/shell\n").await?;
        until_file(&api, &id, "/tmp/kept").await?;
        until_file(&api, &id, "/tmp/shell").await?;
        let (api, code, shell_code) =
            tokio::join!(api.restart(), socket.until_closed(), shell.until_closed());
        let api = api?;
        ensure!((code?, shell_code?) == (Some(1001), Some(1001)));
        until_process_gone(&api, &id, "/tmp/shell").await?;
        let processes = api.get(&format!("/v1/sandboxes/{id}/processes")).await?.expect(200)?.json()?;
        let kept = processes.as_array().context("no list")?.iter().find(|process| process["command"] == line);
        let kept = kept.with_context(|| processes.to_string())?;
        ensure!(kept["running"] == true, "{kept}");
        let output = format!("/v1/sandboxes/{id}/processes/{}/output", kept["id"]);
        api.shell(&id, "touch /tmp/go").await?;
        let said = api.get(&output).await?.expect(200)?.text();
        ensure!(said.contains("went") && said.contains("\"exit_code\":0"), "{said}");
        api.finish().await
    })
}

#[test]
fn a_sandbox_is_not_idle_while_a_connection_is_open() -> Result<()> {
    in_api(async |api| {
        let used = api.create_with(json!({ "ttl_seconds": 3 })).await?;
        let socket = Socket::open(api, &format!("/v1/sandboxes/{used}/exec/ws")).await?;
        // Made later and never used: once it is gone, the time of the other would have been up too.
        let unused = api.create_with(json!({ "ttl_seconds": 3 })).await?;
        let gone = async |id: &str| Ok(api.get(&format!("/v1/sandboxes/{id}")).await?.status == 404);
        wait::until_async("the unused one goes", TIMEOUT, async || gone(&unused).await).await?;
        ensure!(api.status(&used).await? == "running");
        drop(socket);
        wait::until_async("the other one goes", TIMEOUT, async || gone(&used).await).await
    })
}

/// A conversation with a language server.
struct Editor {
    socket: Socket,
    /// Bytes of the output that were read as messages.
    read: usize,
    last_id: u64,
}

impl Editor {
    async fn open(api: &Api, id: &str, language: &str) -> Result<Self> {
        let path = format!("/v1/sandboxes/{id}/lsp/{language}");
        Ok(Self { socket: Socket::open(api, &path).await?, read: 0, last_id: 0 })
    }

    async fn tell(&mut self, method: &str, params: Value) -> Result<()> {
        self.write(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await
    }

    async fn write(&mut self, message: Value) -> Result<()> {
        let body = message.to_string();
        self.socket.send(format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()).await
    }

    async fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        self.write(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await?;
        let answer = self.until(|message| message["id"] == id && message["method"].is_null()).await?;
        ensure!(answer["error"].is_null(), "{method}: {answer}");
        Ok(answer["result"].clone())
    }

    /// Reads until a message matches; others are passed over.
    async fn until(&mut self, matches: impl Fn(&Value) -> bool) -> Result<Value> {
        loop {
            while let Some(message) = self.next_message()? {
                if matches(&message) {
                    return Ok(message);
                }
            }
            ensure!(self.socket.take().await?, "closed: {:?} {}", self.socket.texts, self.socket.shown());
        }
    }

    fn next_message(&mut self) -> Result<Option<Value>> {
        let rest = &self.socket.output[self.read..];
        let Some(end) = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(None) };
        let head = std::str::from_utf8(&rest[..end])?;
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.with_context(|| format!("no length in {head:?}"))?.trim().parse()?;
        let Some(body) = rest.get(end + 4..end + 4 + length) else { return Ok(None) };
        self.read += end + 4 + length;
        Ok(Some(serde_json::from_slice(body)?))
    }

    /// Opens a text with a mistake in it and an unfinished last line, as an editor does: is told of the mistake, and what may
    /// follow.
    async fn edit(
        &mut self,
        file: &str,
        language: &str,
        text: &str,
        mistake: &str,
        completion: &str,
    ) -> Result<()> {
        let shown = json!({ "publishDiagnostics": {}, "completion": {}, "hover": {} });
        let params = json!({ "processId": null, "rootUri": "file:///workspace", "capabilities": { "textDocument": shown } });
        let said = self.ask("initialize", params).await?;
        ensure!(said["capabilities"]["completionProvider"].is_object(), "{said}");
        self.tell("initialized", json!({})).await?;
        let uri = format!("file:///workspace/{file}");
        let document = json!({ "uri": uri, "languageId": language, "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document })).await?;
        let told = |message: &Value| {
            message["method"] == "textDocument/publishDiagnostics" && message.to_string().contains(mistake)
        };
        let diagnostics = self.until(told).await?;
        ensure!(diagnostics["params"]["uri"] == uri, "{diagnostics}");
        let last = text.lines().last().context("no text")?;
        let at = json!({ "line": text.lines().count() - 1, "character": last.len() });
        let offered = self
            .ask("textDocument/completion", json!({ "textDocument": { "uri": uri }, "position": at }))
            .await?;
        let items = offered["items"].as_array().or(offered.as_array()).context("no list")?;
        let found = items
            .iter()
            .any(|item| item["label"].as_str().is_some_and(|label| label.starts_with(completion)));
        ensure!(found, "{offered}");
        self.ask("shutdown", Value::Null).await?;
        Ok(())
    }
}

#[test]
fn language_servers_find_mistakes_and_complete() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let test = async {
        let lab = LabSettings::with_templates("editors", &[code_interpreter()]);
        let api = Api::start_with(ApiSettings { lab, ..ApiSettings::new("editors") }).await?;
        let id = api.create_with(json!({ "template": "code-interpreter" })).await?;
        let mut python = Editor::open(&api, &id, "python").await?;
        python.edit("a.py", "python", "import os\nprint(nobody)\nos.pa", "nobody", "path").await?;
        drop(python);
        let mut typescript = Editor::open(&api, &id, "typescript").await?;
        let text = "const wrong: number = 'text';\nconst list = [wrong];\nlist.pus";
        typescript.edit("a.ts", "typescript", text, "not assignable to type 'number'", "push").await?;
        drop(typescript);
        api.finish().await
    };
    runtime
        .block_on(async { tokio::time::timeout(BUILD_TIMEOUT, test).await.context("the test did not end")? })
}
