//! A link made of connections: hosts that follow each other, and a silent session that loses its connection.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use guest_link::client::{Flush, Link, Opening};
use guest_link::message::ProcessSpec;
use tempfile::TempDir;
use tokio::net::UnixStream;

use crate::harness::{LIMITS, relay, shell, within};

/// A guest program that listens.
struct Listening {
    child: Child,
    directory: TempDir,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Listening {
    fn start() -> Listening {
        let directory = TempDir::new().unwrap();
        let listener = UnixListener::bind(directory.path().join("link")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_guest"))
            .args(["--serve-listener", "0"])
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .spawn()
            .unwrap();
        Listening { child, directory }
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join("link")).await.unwrap()
    }

    async fn open(&self, opening: Opening) -> Link {
        within(Link::open(self.connect().await, opening, None)).await.unwrap().0
    }
}

#[tokio::test]
async fn hosts_are_served_one_after_the_other() {
    let guest = Listening::start();
    let first = guest.open(Opening::Clean).await;
    let waiting = tokio::spawn(Link::open(guest.connect().await, Opening::Reattach, None));
    assert_eq!(shell(&first, "echo first").await.stdout, b"first\n");
    assert!(!waiting.is_finished(), "two hosts are served at once");
    drop(first);
    let (second, _) = within(waiting).await.unwrap().unwrap();
    assert_eq!(second.guest().sessions_before, 1);
    assert_eq!(shell(&second, "echo second").await.stdout, b"second\n");
    // Each before the guest can have heard that the last one went.
    let mut link = second;
    for _ in 0..100 {
        drop(link);
        link = guest.open(Opening::Reattach).await;
        within(link.ping()).await.unwrap();
    }
}

#[tokio::test]
async fn a_silent_session_goes_on_with_the_next_connection() {
    let guest = Listening::start();
    let (client, far) = UnixStream::pair().unwrap();
    let far = Arc::new(far);
    let mut carrier = tokio::spawn(relay(Arc::new(guest.connect().await), Arc::clone(&far)));
    let (link, _) = within(Link::open(client, Opening::Clean, None)).await.unwrap();
    let mut loud = within(link.start(ProcessSpec::shell("seq 1 300000"))).await.unwrap();
    for _ in 0..3 {
        within(link.quiesce(Flush::Nothing)).await.unwrap();
        // As when the machine is saved: the connection is gone, and nobody at either end asked for that.
        carrier.abort();
        drop(carrier.await);
        carrier = tokio::spawn(relay(Arc::new(guest.connect().await), Arc::clone(&far)));
        link.resume();
        within(link.ping()).await.unwrap();
    }
    let output = within(loud.collect(LIMITS)).await.unwrap();
    assert!(output.stdout.ends_with(b"300000\n"));
    assert_eq!(shell(&link, "echo still").await.stdout, b"still\n");
}

#[tokio::test]
async fn a_session_that_was_not_silent_ends_with_its_connection() {
    let guest = Listening::start();
    let link = guest.open(Opening::Clean).await;
    let survivor = within(link.start(ProcessSpec::argv(["sleep", "1000"]))).await.unwrap();
    let id = survivor.id();
    drop((survivor, link));
    let link = guest.open(Opening::Reattach).await;
    assert_eq!(link.guest().sessions_before, 1);
    // Processes live on, as they do on any link.
    within(link.attach(id, guest_link::message::Offsets::BEGINNING)).await.unwrap();
}
