//! Carries the guest link: bytes between who connected and a connection to the guest's virtio socket.
//!
//! A virtio socket does not outlive a save: Firecracker tells the guest, the one that goes on as well as the restored ones, that all
//! its connections are gone. Our end is silent then (a caller quiesces the link first), so a new connection takes the old one's
//! place, and neither end of the link notices.
//!
//! Connections are made and ended only while the guest runs. Firecracker goes on serving its sockets while the guest is paused: whatever
//! it hears then it writes into the guest's memory at once. If that falls between the saved devices and the saved memory, whoever is
//! restored from them has a queue whose two sides disagree, and loses packets. And a connection that the guest finds before it hears
//! that the old ones are gone would go with them.

use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::room::{LINK_SOCKET, Room};

/// Where the guest listens.
pub const PORT: u32 = 1024;
/// How long one try may take. Firecracker gives up after two seconds itself.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between tries: a guest that boots has nobody to answer yet.
const DIAL_PAUSE: Duration = Duration::from_millis(20);
/// Longest line that answers a try.
const ANSWER_BYTES_MAX: usize = 32;
/// What is kept of the first words on a connection, to be said again if it was lost before the guest answered any. A host that follows
/// another begins with more than 64 KiB of padding, and says who the guest is to be.
const FIRST_WORDS_BYTES_MAX: usize = 256 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;

/// What the link must know of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    /// Whether the guest runs.
    pub(super) runs: bool,
    /// How often it was saved.
    pub(super) saves: u64,
}

/// Who ended a connection.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Client,
    Guest,
}

/// Carries bytes until the client hangs up or the guest does.
pub(super) async fn carry(room: Arc<Room>, mut life: watch::Receiver<Life>, mut client: UnixStream) {
    // What was said on a connection that was lost before the guest said anything.
    let mut unheard = Vec::new();
    loop {
        let Some((mut guest, saves)) = dial(&room, &mut life, &client).await else { return };
        if guest.write_all(&unheard).await.is_err() {
            continue;
        }
        let words = FirstWords(Mutex::new(Some(unheard)));
        let end = {
            let (from_client, to_client) = client.split();
            let (from_guest, to_guest) = guest.split();
            tokio::select! {
                end = up(from_client, to_guest, &words) => end,
                end = down(from_guest, to_client, &words) => end,
                _ = life.wait_for(|life| life.saves != saves) => End::Guest,
            }
        };
        let saved = life.borrow().saves != saves;
        let goes_on = match (end, words.take()) {
            (End::Client, _) => None,
            (End::Guest, _) if saved => Some(Vec::new()),
            (End::Guest, Some(words)) => Some(words),
            (End::Guest, None) => return,
        };
        // The connection is ended when the guest runs, or with everything else.
        let outcome = life.wait_for(|life| life.runs).await.map(drop);
        drop(guest);
        match (outcome, goes_on) {
            (Ok(()), Some(words)) => unheard = words,
            _ => return,
        }
    }
}

/// The first words on a connection; `None` once the guest has answered.
struct FirstWords(Mutex<Option<Vec<u8>>>);

impl FirstWords {
    fn add(&self, bytes: &[u8]) {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = words.as_mut() {
            kept.extend_from_slice(bytes);
            if kept.len() > FIRST_WORDS_BYTES_MAX {
                *words = None;
            }
        }
    }

    fn take(&self) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

async fn up(mut client: ReadHalf<'_>, mut guest: WriteHalf<'_>, words: &FirstWords) -> End {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = match client.read(&mut buffer).await {
            Ok(0) | Err(_) => return End::Client,
            Ok(count) => count,
        };
        words.add(&buffer[..count]);
        if guest.write_all(&buffer[..count]).await.is_err() {
            return End::Guest;
        }
    }
}

async fn down(mut guest: ReadHalf<'_>, mut client: WriteHalf<'_>, words: &FirstWords) -> End {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = match guest.read(&mut buffer).await {
            Ok(0) | Err(_) => return End::Guest,
            Ok(count) => count,
        };
        words.take();
        if client.write_all(&buffer[..count]).await.is_err() {
            return End::Client;
        }
    }
}

/// Tries until the guest answers; says also how often it had been saved then. `None` when there is nobody left to try for, or no
/// process to try.
async fn dial(
    room: &Room,
    life: &mut watch::Receiver<Life>,
    client: &UnixStream,
) -> Option<(UnixStream, u64)> {
    loop {
        let saves = life.wait_for(|life| life.runs).await.ok()?.saves;
        if has_hung_up(client) {
            return None;
        }
        let mut attempt = pin!(tokio::time::timeout(DIAL_TIMEOUT, try_once(room)));
        let outcome = tokio::select! {
            outcome = &mut attempt => Some(outcome),
            () = until_paused(life) => None,
        };
        let Some(outcome) = outcome else {
            // Left as it is until the guest runs; whether it still means something then cannot be told.
            life.wait_for(|life| life.runs).await.ok()?;
            continue;
        };
        match outcome {
            Ok(Ok(guest)) => return Some((guest, saves)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return None,
            Ok(Err(_)) | Err(_) => tokio::time::sleep(DIAL_PAUSE).await,
        }
    }
}

async fn until_paused(life: &mut watch::Receiver<Life>) {
    // Nobody pauses a machine that is let go of; what follows finds that out.
    let _life = life.wait_for(|life| !life.runs).await;
}

async fn try_once(room: &Room) -> io::Result<UnixStream> {
    let mut guest = room.connect(LINK_SOCKET).await?;
    guest.write_all(format!("CONNECT {PORT}\n").as_bytes()).await?;
    let mut answer = Vec::new();
    while answer.last() != Some(&b'\n') {
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        answer.push(guest.read_u8().await?);
    }
    if answer.starts_with(b"OK ") { Ok(guest) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Whether the client is gone.
fn has_hung_up(client: &UnixStream) -> bool {
    let descriptor = client.as_fd();
    let mut polled = [PollFd::new(&descriptor, PollFlags::empty())];
    // A signal (the end of some machine process is one) interrupts even a look that does not wait; it says nothing about the client.
    while let Err(Errno::INTR) = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {}
    polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests;
