//! A carrier between a client and a socket that answers as Firecracker's does.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::OwnedFd;

use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use super::*;

/// As much as a host says first that follows another.
const FIRST_WORDS: usize = 70_000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A client whose bytes are carried, and the socket they are carried to.
struct Carried {
    client: UnixStream,
    guests: UnixListener,
    life: watch::Sender<Life>,
    carrier: JoinHandle<()>,
    _directory: TempDir,
}

impl Carried {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let guests = UnixListener::bind(directory.path().join(LINK_SOCKET)).unwrap();
        let room = Room::standing_in(OwnedFd::from(File::open(directory.path()).unwrap()));
        let life = watch::Sender::new(Life { runs: true, saves: 0 });
        let (client, ours) = UnixStream::pair().unwrap();
        let carrier = tokio::spawn(carry(Arc::new(room), life.subscribe(), ours));
        Self { client, guests, life, carrier, _directory: directory }
    }

    /// The next connection, which asks for the guest's port and is not answered yet.
    async fn asked(&self) -> UnixStream {
        let (mut guest, _) = within(self.guests.accept()).await.unwrap();
        let mut line = vec![0; format!("CONNECT {PORT}\n").len()];
        within(guest.read_exact(&mut line)).await.unwrap();
        assert_eq!(line, format!("CONNECT {PORT}\n").as_bytes());
        guest
    }

    /// The next connection, accepted.
    async fn accepted(&self) -> UnixStream {
        let mut guest = self.asked().await;
        guest.write_all(b"OK 1073741824\n").await.unwrap();
        guest
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, work).await.expect("it takes too long")
}

async fn read(stream: &mut UnixStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    within(stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

#[tokio::test]
async fn first_words_that_nobody_answered_are_said_again() {
    let mut carried = Carried::start();
    let words: Vec<u8> = (0..FIRST_WORDS).map(|number| (number % 251) as u8).collect();
    carried.client.write_all(&words).await.unwrap();
    for heard in [FIRST_WORDS, 0, 10, FIRST_WORDS] {
        let mut guest = carried.accepted().await;
        assert_eq!(read(&mut guest, heard).await, words[..heard]);
    }
    // One that does not answer the try is no connection at all.
    drop(carried.asked().await);
    let mut guest = carried.accepted().await;
    assert_eq!(read(&mut guest, FIRST_WORDS).await, words);
    guest.write_all(b"answer").await.unwrap();
    assert_eq!(read(&mut carried.client, 6).await, b"answer");
    carried.client.write_all(b"more").await.unwrap();
    assert_eq!(read(&mut guest, 4).await, b"more");
}

#[tokio::test]
async fn a_connection_that_ends_after_an_answer_ends_the_link() {
    let mut carried = Carried::start();
    let mut guest = carried.accepted().await;
    carried.client.write_all(b"hello").await.unwrap();
    read(&mut guest, 5).await;
    guest.write_all(b"answer").await.unwrap();
    assert_eq!(read(&mut carried.client, 6).await, b"answer");
    drop(guest);
    assert_eq!(within(carried.client.read(&mut [0; 8])).await.unwrap(), 0);
    within(carried.carrier).await.unwrap();
}

#[tokio::test]
async fn a_save_replaces_the_connection_when_the_guest_runs_again() {
    let mut carried = Carried::start();
    let mut guest = carried.accepted().await;
    carried.client.write_all(b"hello").await.unwrap();
    read(&mut guest, 5).await;
    guest.write_all(b"answer").await.unwrap();
    assert_eq!(read(&mut carried.client, 6).await, b"answer");
    for saves in 1..4 {
        carried.life.send_modify(|life| life.runs = false);
        carried.life.send_modify(|life| life.saves = saves);
        carried.client.write_all(b"later").await.unwrap();
        quiet(&mut guest).await;
        carried.life.send_modify(|life| life.runs = true);
        assert_eq!(within(guest.read(&mut [0; 8])).await.unwrap(), 0, "the old connection stays");
        guest = carried.accepted().await;
        assert_eq!(read(&mut guest, 5).await, b"later");
        guest.write_all(b"again").await.unwrap();
        assert_eq!(read(&mut carried.client, 5).await, b"again");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_connection() {
    let carried = Carried::start();
    let mut guest = carried.accepted().await;
    drop(carried.client);
    assert_eq!(within(guest.read(&mut [0; 8])).await.unwrap(), 0);
    within(carried.carrier).await.unwrap();
}

#[tokio::test]
async fn a_paused_guest_hears_nothing() {
    // Of a client that hangs up.
    let mut carried = Carried::start();
    let mut guest = carried.accepted().await;
    guest.write_all(b"answer").await.unwrap();
    assert_eq!(read(&mut carried.client, 6).await, b"answer");
    carried.life.send_modify(|life| life.runs = false);
    drop(carried.client);
    quiet(&mut guest).await;
    carried.life.send_modify(|life| life.runs = true);
    assert_eq!(within(guest.read(&mut [0; 8])).await.unwrap(), 0);
    within(carried.carrier).await.unwrap();

    // Of a try that was under way, and of another.
    let mut carried = Carried::start();
    let mut asked = carried.asked().await;
    carried.life.send_modify(|life| life.runs = false);
    quiet(&mut asked).await;
    carried.life.send_modify(|life| life.runs = true);
    let mut guest = carried.accepted().await;
    carried.client.write_all(b"hello").await.unwrap();
    assert_eq!(read(&mut guest, 5).await, b"hello");
}

/// Gives whoever could disturb the guest every chance to.
async fn quiet(guest: &mut UnixStream) {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let told = guest.try_read(&mut [0; 8]);
    assert!(told.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "{told:?}");
}

extern "C" fn ignore(_: libc::c_int) {}

/// A client that is there is never taken for one that hung up, whatever signals arrive while that is asked.
#[tokio::test]
async fn signals_do_not_end_a_link() {
    let (client, other) = UnixStream::pair().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    // SAFETY: the handler does nothing; no other test of this process uses the signal.
    unsafe { libc::signal(libc::SIGUSR2, ignore as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    // SAFETY: no arguments.
    let this_thread = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                // SAFETY: the thread lives until the scope ends, which waits for this one.
                unsafe { libc::pthread_kill(this_thread, libc::SIGUSR2) };
            }
        });
        // A look under signals takes microseconds on one host and a hundred times as long on another.
        let began = std::time::Instant::now();
        let mut looks = (0..1_000_000).take_while(|_| began.elapsed() < std::time::Duration::from_secs(5));
        let gone = looks.find(|_| has_hung_up(&client));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(gone, None, "it was told to have hung up at this look");
    });
    drop(other);
    assert!(has_hung_up(&client));
}
