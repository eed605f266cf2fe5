//! Files, of any name and any size.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::{Body, Bytes, Frame};
use serde_json::{Value, json};
use tests::api::client::nothing;
use tests::api::event_stream::Event;
use tests::{in_api, wait};

use crate::api::at;

/// A large file, in pieces that are never all in memory.
const LARGE_BYTES: usize = 100 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// The byte at a place of the large file.
fn byte_at(place: usize) -> u8 {
    (place ^ (place >> 8) ^ (place >> 16)) as u8
}

fn piece(from: usize) -> Bytes {
    (from..from + PIECE_BYTES).map(byte_at).collect::<Vec<u8>>().into()
}

struct Large(usize);

impl Body for Large {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let from = self.0;
        if from >= LARGE_BYTES {
            return Poll::Ready(None);
        }
        self.0 += PIECE_BYTES;
        Poll::Ready(Some(Ok(Frame::data(piece(from)))))
    }
}

#[test]
fn files_come_back_as_they_were_sent() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let fs = |path: &str| at(&id, &format!("/fs?path={path}"));
        let bytes: Vec<u8> = (0..70_000_u32).map(|number| (number % 251) as u8).collect();
        let written = api.put(&fs("/root/new/deep/binary"), bytes.clone()).await?.expect(200)?.json()?;
        ensure!(written == json!({ "path": "/root/new/deep/binary", "bytes": 70_000 }), "{written}");
        let read = api.get(&fs("/root/new/deep/binary")).await?.expect(200)?;
        ensure!(read.body == bytes && read.header("content-type") == "application/octet-stream");
        api.put(&fs("/root/new/deep/binary"), Bytes::from_static(b"short")).await?.expect(200)?;
        ensure!(api.get(&fs("/root/new/deep/binary")).await?.body == "short");
        api.put(&fs("/root/empty"), Bytes::new()).await?.expect(200)?;
        ensure!(api.get(&fs("/root/empty")).await?.expect(200)?.body.is_empty());
        // Names with spaces, quotes, line breaks and other alphabets, decoded once.
        let odd = "/root/a%20b%27%22%0A%2525%F0%9F%90%BC";
        api.put(&fs(odd), Bytes::from_static(b"odd")).await?.expect(200)?;
        ensure!(api.get(&fs(odd)).await?.expect(200)?.body == "odd");
        ensure!(api.shell(&id, "cat \"/root/a b'\\\"\n%25🐼\"").await? == "odd");
        // What the kernel makes up as it is read has no size.
        ensure!(api.get(&fs("/proc/self/status")).await?.expect(200)?.text().contains("Name:"));

        api.get(&fs("/root/nonesuch")).await?.failure(404)?;
        api.get(&at(&id, "/fs/stat?path=/root/nonesuch")).await?.failure(404)?;
        api.get(&at(&id, "/fs/dir?path=/root/nonesuch")).await?.failure(404)?;
        api.delete(&fs("/root/nonesuch")).await?.failure(404)?;
        for wrong in ["", "relative", "%00", "/root/a%00b", "..", "./x"] {
            api.get(&fs(wrong)).await?.failure(400)?;
            api.put(&fs(wrong), Bytes::from_static(b"x")).await?.failure(400)?;
        }
        api.get(&at(&id, "/fs")).await?.failure(400)?;
        api.get(&fs("/root")).await?.failure(400)?;
        api.put(&fs("/root"), Bytes::from_static(b"x")).await?;
        ensure!(api.shell(&id, "test -d /root && echo directory").await? == "directory");
        // Whatever is asked for is the guest's.
        let passwd = api.get(&fs("/../../../../etc/hostname")).await?;
        ensure!(
            passwd.status == 400 || passwd.text().trim() == api.shell(&id, "hostname").await?,
            "{passwd:?}"
        );

        api.post(&at(&id, "/fs/mkdir"), json!({ "path": "/root/made/here", "mode": "0700" }))
            .await?
            .expect(204)?;
        api.post(&at(&id, "/fs/move"), json!({ "path": "/root/empty", "to": "/root/made/moved" }))
            .await?
            .expect(204)?;
        api.post(&at(&id, "/fs/chmod"), json!({ "path": "/root/made/moved", "mode": "0640" }))
            .await?
            .expect(204)?;
        api.post(&at(&id, "/fs/chmod"), json!({ "path": "/root/made/moved", "mode": "rw" }))
            .await?
            .failure(400)?;
        let listed = api.get(&at(&id, "/fs/dir?path=/root/made")).await?.expect(200)?.json()?;
        let entry = |name: &str| -> Value {
            let mut entries = listed["entries"].as_array().into_iter().flatten();
            entries.find(|entry| entry["name"] == name).cloned().unwrap_or_default()
        };
        ensure!(entry("here")["is_dir"] == true && entry("here")["mode"] == "drwx------", "{listed}");
        ensure!(entry("moved")["size"] == 0 && entry("moved")["mode"] == "-rw-r-----", "{listed}");
        ensure!(entry("moved")["path"] == "/root/made/moved" && entry("moved")["mtime"].is_i64(), "{listed}");
        let stat = api.get(&at(&id, "/fs/stat?path=/root/new/deep/binary")).await?.expect(200)?.json()?;
        ensure!(stat["name"] == "binary" && stat["size"] == 5 && stat["is_dir"] == false, "{stat}");
        let empty = api.get(&at(&id, "/fs/dir?path=/root/made/here")).await?.expect(200)?.json()?;
        ensure!(empty["entries"] == json!([]), "{empty}");
        ensure!(api.get(&at(&id, "/fs/dir")).await?.expect(200)?.json()?["path"] == "/");
        api.delete(&fs("/root/made")).await?.expect(204)?;
        api.get(&at(&id, "/fs/stat?path=/root/made")).await?.failure(404)?;
        api.remove(&id).await
    })
}

#[test]
fn changes_are_told_as_they_happen() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        api.shell(&id, "mkdir -p /srv/w/old && echo 1 > /srv/w/old/a && echo 1 > /srv/one").await?;
        let watch = |rest: &str| at(&id, &format!("/fs/watch?path={rest}"));
        let mut changes = api.events(Method::GET, &watch("/srv/w/&recursive=true"), None).await?;
        ensure!(changes.next().await?.is_some_and(|event| event.name == "ready" && event.data == json!({})));
        let mut one = api.events(Method::GET, &watch("/srv/one"), None).await?;
        one.until(|event| event.name == "ready").await?;
        // A file that is made in a new directory at once, a move within and one out, one over the single file.
        let line = "cd /srv/w && mkdir -p new/deep && echo x > new/deep/leaf && mv old/a old/b && mv old/b /srv/gone \
            && ln -s / new/root && printf x > \"$(printf 'odd\\377')\" && rm -r new && echo 2 > /srv/two && mv /srv/two /srv/one";
        api.shell(&id, line).await?;
        let mut told = Vec::new();
        let done = |event: &Event| event.data["path"] == "/srv/w/new" && event.data["kind"] == "removed";
        loop {
            let event = changes.next().await?.context("the watch ended")?;
            let last = done(&event);
            told.push(event);
            if last {
                break;
            }
        }
        ensure!(told.iter().all(|event| event.name == "change"), "{told:?}");
        let has = |expected: Value| told.iter().any(|event| event.data == expected);
        for expected in [
            json!({ "path": "/srv/w/new", "kind": "created", "is_dir": true }),
            json!({ "path": "/srv/w/new/deep", "kind": "created", "is_dir": true }),
            json!({ "path": "/srv/w/new/deep/leaf", "kind": "created", "is_dir": false }),
            json!({ "path": "/srv/w/old/a", "kind": "moved", "is_dir": false, "to": "/srv/w/old/b" }),
            json!({ "path": "/srv/w/old/b", "kind": "removed", "is_dir": false }),
            json!({ "path": "/srv/w/odd\u{fffd}", "kind": "created", "is_dir": false }),
            json!({ "path": "/srv/w/new/deep/leaf", "kind": "removed", "is_dir": false }),
        ] {
            ensure!(has(expected.clone()), "{expected} is missing in {told:?}");
        }
        let below_link = |event: &Event| {
            event.data["path"].as_str().is_some_and(|path| path.starts_with("/srv/w/new/root/"))
        };
        ensure!(!told.iter().any(below_link), "a symbolic link was followed");
        let replaced = one.until(|event| event.name == "change").await?;
        let expected = json!({ "path": "/srv/two", "kind": "moved", "is_dir": false, "to": "/srv/one" });
        ensure!(replaced.data == expected, "{replaced:?}");
        // The watched directory goes, and with it the watch.
        api.shell(&id, "rm -r /srv/w").await?;
        let end = changes.until(|event| event.name == "error").await?;
        ensure!(end.data["code"] == "not_found" && end.data["error"].is_string(), "{end:?}");
        ensure!(changes.next().await?.is_none());
        api.get(&watch("/nonesuch")).await?.failure(404)?;
        api.get(&watch("relative")).await?.failure(400)?;
        api.get(&at(&id, "/fs/watch")).await?.failure(400)?;
        let audit = api.get("/v1/audit?limit=1000").await?.expect(200)?.json()?;
        let watched = at(&id, "/fs/watch");
        let entries = audit["entries"].as_array().context("no entries")?;
        ensure!(entries.iter().any(|entry| entry["path"] == watched.as_str() && entry["status"] == 200));
        api.remove(&id).await
    })
}

#[test]
fn a_signed_url_is_good_for_one_file_and_one_thing() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let open = api.without_key();
        let sign = async |body: Value| api.post(&at(&id, "/fs/sign"), body).await;
        let path = "/root/a b é.bin";
        let signed = sign(json!({ "path": path, "operation": "write" })).await?.expect(200)?.json()?;
        ensure!(
            signed["method"] == "PUT" && signed["path"] == path && signed["expires_at"].is_string(),
            "{signed}"
        );
        let local = |signed: &Value| -> Result<String> {
            let url = signed["url"].as_str().context("no url")?;
            let at = url.find("/v1/f/").with_context(|| format!("no path: {url}"))?;
            Ok(url[at..].to_owned())
        };
        let up = local(&signed)?;
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let written = open.put(&up, bytes.clone()).await?.expect(200)?.json()?;
        ensure!(written == json!({ "path": path, "bytes": bytes.len() }), "{written}");
        open.get(&up).await?.failure(405)?;
        let down = sign(json!({ "path": path, "operation": "read", "expires_in_seconds": 60 })).await?;
        let down = local(&down.expect(200)?.json()?)?;
        api.post_nothing(&at(&id, "/hibernate")).await?.expect(200)?;
        let got = open.get(&down).await?.expect(200)?;
        ensure!(
            got.body == bytes && got.header("content-length") == bytes.len().to_string(),
            "{:?}",
            got.headers
        );
        ensure!(
            got.header("content-disposition")
                == "attachment; filename=\"a b _.bin\"; filename*=UTF-8''a%20b%20%C3%A9.bin",
            "{:?}",
            got.headers
        );
        for (name, value) in [
            ("referrer-policy", "no-referrer"),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "private, no-store"),
        ] {
            ensure!(got.header(name) == value, "{name}: {:?}", got.headers);
        }
        let head = open.request(Method::HEAD, &down, None).await?.expect(200)?;
        ensure!(head.body.is_empty() && head.header("content-length") == bytes.len().to_string());
        open.put(&down, Bytes::from_static(b"x")).await?.failure(405)?;
        open.bytes(Method::POST, &up, "text/plain", "posted").await?.expect(200)?;
        ensure!(open.get(&down).await?.expect(200)?.body == "posted");
        // A preview link opens no file, and what was changed opens nothing.
        open.get(&format!("{down}x")).await?.failure(401)?;
        open.get("/v1/f/x.y").await?.failure(401)?;
        open.get(&down.replace("/v1/f/", "/v1/p/")).await?.failure(401)?;
        for wrong in [
            json!({ "path": "relative", "operation": "read" }),
            json!({ "path": "/x", "operation": "append" }),
            json!({ "path": "/x" }),
            json!({ "path": "/x", "operation": "read", "expires_in_seconds": 0 }),
            json!({ "path": "/x", "operation": "read", "expires_in_seconds": 604_801 }),
        ] {
            sign(wrong).await?.failure(400)?;
        }
        let brief = sign(json!({ "path": path, "operation": "read", "expires_in_seconds": 1 })).await?;
        let brief = local(&brief.expect(200)?.json()?)?;
        wait::until_async("it expires", Duration::from_secs(30), async || {
            Ok(open.get(&brief).await?.status == 401)
        })
        .await?;
        let page =
            format!("GET {brief} HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\nConnection: close\r\n\r\n");
        let page = open.raw(page.as_bytes()).await?;
        ensure!(
            page.starts_with("HTTP/1.1 401") && page.contains("<h1>") && page.contains("expired"),
            "{page}"
        );
        let token = up.rsplit('/').next().context("no token")?;
        let audit = api.get("/v1/audit?limit=1000").await?.expect(200)?;
        ensure!(!audit.text().contains(token), "the audit log holds a token");
        let audit = audit.json()?;
        let entries = audit["entries"].as_array().context("no entries")?;
        let noted = |method: &str, path: String| {
            entries.iter().any(|entry| entry["method"] == method && entry["path"] == path.as_str())
        };
        ensure!(noted("POST", at(&id, "/fs/sign")) && noted("PUT", at(&id, "/fs")), "{audit}");
        let metrics = open.get("/metrics").await?.expect(200)?.text();
        ensure!(metrics.contains("/v1/f/{token}") && !metrics.contains(token));
        api.remove(&id).await?;
        open.get(&down).await?.failure(404).map(drop)
    })
}

#[test]
fn a_large_file_goes_through_without_being_held() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let path = at(&id, "/fs?path=/root/large");
        let begun = Instant::now();
        let headers = [("content-type", "application/octet-stream")];
        let sent = api.send(Method::PUT, &path, &headers, Large(0).boxed()).await?;
        let sent = api.read(sent).await?.expect(200)?.json()?;
        ensure!(sent["bytes"] == LARGE_BYTES, "{sent}");
        let uploaded = begun.elapsed();
        let mut response = api.send(Method::GET, &path, &[], nothing()).await?;
        ensure!(response.status() == 200);
        let mut place = 0;
        while let Some(frame) = response.body_mut().frame().await {
            let data = frame.context("the download was cut off")?.into_data().unwrap_or_default();
            let same = data.iter().zip(place..).all(|(byte, place)| *byte == byte_at(place));
            ensure!(same, "another byte within {} of {place}", data.len());
            place += data.len();
        }
        ensure!(place == LARGE_BYTES, "{place} bytes came back");
        eprintln!("100 MiB: up in {uploaded:?}, down in {:?}", begun.elapsed() - uploaded);
        api.remove(&id).await
    })
}
