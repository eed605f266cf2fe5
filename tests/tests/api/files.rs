//! Files, of any name and any size.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::{Body, Bytes, Frame};
use serde_json::{Value, json};
use tests::api::client::nothing;
use tests::in_api;

use crate::at;

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
