//! The host's client with a guest that says anything: every call ends, with an answer or an error.

#![no_main]

use std::time::Duration;

use fuzz::{frame, raw, seeds, stream};
use guest_link::GuestPath;
use guest_link::client::{Link, Opening};
use guest_link::frame::{HEADER_BYTES, Kind, encode};
use guest_link::message::{Event, Failure, Links, ProcessId, Response};
use guest_link::session::{GuestInfo, HELLO_BYTES, Hello, PROTOCOL_VERSION, Tag, encode_reply};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// A guest: answers the greeting as it should, then sends what the script says and goes away.
async fn guest(mut socket: UnixStream, script: &[u8]) {
    let mut first = vec![0; HEADER_BYTES + HELLO_BYTES];
    if socket.read_exact(&mut first).await.is_err() {
        return;
    }
    let Some(hello) = Hello::decode(&first[HEADER_BYTES..]) else { return };
    let tag = Tag::of(&hello.nonce);
    let info = GuestInfo {
        version: PROTOCOL_VERSION,
        program: "0.1.0".to_owned(),
        sessions_before: 0,
        uptime_ns: 1,
    };
    let mut bytes = Vec::new();
    encode(&mut bytes, Kind::HelloReply, 0, &encode_reply(&hello.nonce, &info), tag);
    bytes.extend(stream(script, tag));
    let _ = socket.write_all(&bytes).await;
    let _ = socket.shutdown().await;
    // What the host still says is read, so that it is not held up.
    let _ = tokio::io::copy(&mut socket, &mut tokio::io::sink()).await;
}

async fn host(socket: UnixStream) {
    let Ok((link, _)) = Link::open(socket, Opening::Clean, None).await else { return };
    let path = || GuestPath::parse("/x").expect("a path");
    let calls = async {
        let _ = tokio::join!(
            link.processes(),
            link.stat(path(), Links::Follow),
            link.read_link(path()),
            link.process(ProcessId(1)),
        );
    };
    calls.await;
    link.closed().await;
}

fn message<T: serde::Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("a message can be written")
}

fuzz_target!(
    init: seeds(|| {
        let done = |response: Response| message(&Ok::<_, Failure>(response));
        vec![
            [
                frame(Kind::Event, 1, &message(&Event::Processes(Vec::new()))),
                frame(Kind::Done, 1, &done(Response::Done)),
                frame(Kind::Done, 3, &done(Response::Link(b"target".to_vec()))),
            ]
            .concat(),
            [frame(Kind::Data, 2, b"data"), frame(Kind::Credit, 1, &[0, 1, 0, 0]), frame(Kind::End, 1, b"")].concat(),
            [frame(Kind::Control, 0, &[0, 1, 2]), raw(&[0; 9]), raw(&[200, 1, 2, 3])].concat(),
        ]
    }),
    |data: &[u8]| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
            let both = async { tokio::join!(guest(theirs, data), host(ours)) };
            tokio::time::timeout(Duration::from_secs(10), both).await.expect("every call ends");
        });
    }
);
