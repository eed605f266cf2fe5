//! A client meets guests that break the rules. Each gets a typed error and a closed link; none gets more memory than its window.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use guest_link::client::{CallError, Flush, Link, LinkError, Opening};
use guest_link::frame::{self, Decoder, Incoming, Kind, Side};
use guest_link::limits::{DATA_BYTES_MAX, HOST_WINDOW_BYTES, STREAMS_MAX};
use guest_link::message::{
    Event, Failure, GuestControl, Offsets, ProcessFailure, ProcessId, ProcessSpec, Quiesced, Response,
    SignalScope, Started,
};
use guest_link::session::{GuestInfo, PROTOCOL_VERSION, Tag, encode_reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The guest's end, driven by the test.
struct FakeGuest {
    socket: UnixStream,
    tag: Tag,
    decoder: Decoder,
}

impl FakeGuest {
    async fn greet(mut socket: UnixStream, version: u16, stale: &[u8]) -> FakeGuest {
        let mut decoder = Decoder::new(Side::Guest);
        let nonce = loop {
            if let Some(Incoming::Hello(hello)) = decoder.next().unwrap() {
                break hello.nonce;
            }
            let count = socket.read(decoder.space()).await.unwrap();
            decoder.commit(count);
        };
        let tag = Tag::of(&nonce);
        let info = GuestInfo { version, program: "fake".into(), sessions_before: 0, uptime_ns: 1 };
        let mut bytes = stale.to_vec();
        frame::encode(&mut bytes, Kind::HelloReply, 0, &encode_reply(&nonce, &info), tag);
        socket.write_all(&bytes).await.unwrap();
        FakeGuest { socket, tag, decoder }
    }

    async fn send(&mut self, kind: Kind, stream: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, kind, stream, payload, self.tag);
        // The client may have closed the link already, which is what the test looks at.
        let _ = self.socket.write_all(&bytes).await;
    }

    async fn message<T: serde::Serialize>(&mut self, kind: Kind, stream: u32, message: &T) {
        self.send(kind, stream, &frame::to_payload(message).unwrap()).await;
    }

    /// The next frame of a kind.
    async fn expect(&mut self, wanted: Kind) -> u32 {
        loop {
            while let Some(incoming) = self.decoder.next().unwrap() {
                if let Incoming::Frame { kind, stream, .. } = incoming
                    && kind == wanted
                {
                    return stream;
                }
            }
            let count = self.socket.read(self.decoder.space()).await.unwrap();
            assert!(count > 0, "the client hung up");
            self.decoder.commit(count);
        }
    }
}

async fn pair(version: u16, stale: &[u8]) -> (Result<Link, CallError>, FakeGuest) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (link, guest) =
        tokio::join!(Link::open(ours, Opening::Reattach, None), FakeGuest::greet(theirs, version, stale));
    (link.map(|(link, _)| link), guest)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("took too long")
}

#[tokio::test]
async fn what_an_older_session_left_is_thrown_away() {
    let mut stale = vec![0xb2; 200_000];
    frame::encode(&mut stale, Kind::Data, 7, b"old", Tag::of(&[9; 16]));
    let (link, mut guest) = within(pair(PROTOCOL_VERSION, &stale)).await;
    let link = link.unwrap();
    let ping = tokio::spawn({
        let link = link.clone();
        async move { link.ping().await }
    });
    let stream = within(guest.expect(Kind::Request)).await;
    guest.message(Kind::Done, stream, &Ok::<_, Failure>(Response::Done)).await;
    within(ping).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_guest_of_another_version_is_refused() {
    let (link, _guest) = within(pair(PROTOCOL_VERSION + 1, b"")).await;
    assert!(
        matches!(link, Err(CallError::Link(LinkError::Version { guest })) if guest == PROTOCOL_VERSION + 1)
    );
}

#[tokio::test]
async fn garbage_closes_the_link_for_everyone() {
    for garbage in
        [&b"\x05\xff\xff\xff\xff\0\0\0\0"[..], b"\xee garbage....", b"\x05\x01\0\0\0\x01\0\0\0xTAGS"]
    {
        let (link, mut guest) = within(pair(PROTOCOL_VERSION, b"")).await;
        let link = link.unwrap();
        let waiting = tokio::spawn({
            let link = link.clone();
            async move { link.ping().await }
        });
        within(guest.expect(Kind::Request)).await;
        guest.socket.write_all(garbage).await.unwrap();
        assert!(matches!(within(link.closed()).await, LinkError::Frame(_)));
        assert!(matches!(within(waiting).await.unwrap(), Err(CallError::Link(LinkError::Frame(_)))));
        assert!(matches!(link.ping().await, Err(CallError::Link(LinkError::Frame(_)))));
    }
}

#[tokio::test]
async fn frames_that_make_no_sense_close_the_link() {
    for (kind, stream, payload) in [
        (Kind::Data, 77, &b"never opened"[..]),
        (Kind::Done, 1, b"\xff\xff\xff not a message"),
        (Kind::Event, 1, b"\xff"),
        (Kind::Credit, 1, b"123"),
        (Kind::Credit, 1, b"\xff\xff\xff\xff"),
        (Kind::Request, 1, b""),
        (Kind::Hello, 1, b""),
        (Kind::Control, 0, b"\xff"),
        (Kind::Control, 1, b""),
    ] {
        let (link, mut guest) = within(pair(PROTOCOL_VERSION, b"")).await;
        let link = link.unwrap();
        let _waiting = tokio::spawn({
            let link = link.clone();
            async move { link.ping().await }
        });
        within(guest.expect(Kind::Request)).await;
        guest.send(kind, stream, payload).await;
        let error = within(link.closed()).await;
        assert!(matches!(error, LinkError::Protocol(_)), "{kind:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_flood_stops_at_the_window() {
    let (link, mut guest) = within(pair(PROTOCOL_VERSION, b"")).await;
    let link = link.unwrap();
    let started = tokio::spawn({
        let link = link.clone();
        async move { link.start(ProcessSpec::argv(["x"])).await }
    });
    let stream = within(guest.expect(Kind::Request)).await;
    let offsets = Offsets { stdout: 0, stderr: 0 };
    let event = Event::Started(Started { process: ProcessId(1), pid: 2, from: offsets });
    guest.message(Kind::Event, stream, &event).await;
    // Nobody reads what the process writes.
    let mut process = within(started).await.unwrap().unwrap();
    let piece = vec![0; DATA_BYTES_MAX];
    for _ in 0..HOST_WINDOW_BYTES as usize / DATA_BYTES_MAX + 1 {
        guest.send(Kind::Data, stream, &piece).await;
    }
    assert!(matches!(within(link.closed()).await, LinkError::Protocol(_)));
    // What came before the end is still delivered, then the reason.
    let mut pieces = 0;
    let error = loop {
        match within(process.next()).await {
            Ok(_) => pieces += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CallError::Link(LinkError::Protocol(_))) && pieces < 8, "{pieces} {error:?}");
}

#[tokio::test]
async fn words_after_the_last_word_close_the_link() {
    let (link, mut guest) = within(pair(PROTOCOL_VERSION, b"")).await;
    let link = link.unwrap();
    let quiesce = tokio::spawn({
        let link = link.clone();
        async move { link.quiesce(Flush::Nothing).await }
    });
    within(guest.expect(Kind::Control)).await;
    let quiesced = Quiesced { streams: 0, processes: 0 };
    guest.message(Kind::Control, 0, &GuestControl::Quiesced(quiesced)).await;
    assert_eq!(within(quiesce).await.unwrap().unwrap(), quiesced);
    guest.send(Kind::Data, 1, b"x").await;
    assert!(matches!(within(link.closed()).await, LinkError::Protocol(_)));
}

#[tokio::test]
async fn too_many_requests_are_refused_and_a_dropped_one_is_cancelled() {
    let (link, mut guest) = within(pair(PROTOCOL_VERSION, b"")).await;
    let link = link.unwrap();
    let mut waiting: Vec<_> = Vec::new();
    for _ in 0..STREAMS_MAX {
        let link = link.clone();
        waiting.push(tokio::spawn(async move { link.ping().await }));
    }
    for _ in 0..STREAMS_MAX {
        within(guest.expect(Kind::Request)).await;
    }
    assert!(matches!(link.ping().await, Err(CallError::Link(LinkError::TooManyStreams))));
    waiting.pop().unwrap().abort();
    within(guest.expect(Kind::Cancel)).await;
    let again = tokio::spawn({
        let link = link.clone();
        async move { link.signal(ProcessId(1), 9, SignalScope::Group).await }
    });
    let stream = within(guest.expect(Kind::Request)).await;
    let refused = Failure::Process(ProcessFailure::NotFound);
    guest.message(Kind::Done, stream, &Err::<Response, _>(refused.clone())).await;
    assert!(matches!(within(again).await.unwrap(), Err(CallError::Guest(failure)) if failure == refused));
}

#[tokio::test]
async fn a_guest_that_does_not_read_cannot_make_the_host_hoard() {
    let (link, guest) = within(pair(PROTOCOL_VERSION, b"")).await;
    let link = link.unwrap();
    let long = "x".repeat(1 << 20);
    let mut refused = None;
    for _ in 0..64 {
        let call = link.start_detached(ProcessSpec::shell(long.clone()));
        match tokio::time::timeout(Duration::from_millis(5), call).await {
            Err(_) => {}
            Ok(result) => {
                refused = Some(result.unwrap_err());
                break;
            }
        }
    }
    assert!(matches!(refused, Some(CallError::Link(LinkError::Congested))), "{refused:?}");
    drop(guest);
    assert!(matches!(within(link.closed()).await, LinkError::Closed | LinkError::Io(_)));
}
