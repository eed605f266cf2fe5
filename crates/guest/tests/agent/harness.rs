//! A guest program of its own for each test, ended with it.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use guest_link::GuestPath;
use guest_link::client::{ExecLimits, Link, Opening, Output};
use guest_link::message::ProcessSpec;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

pub(crate) const LIMITS: ExecLimits = ExecLimits { stdout_bytes_max: 64 << 20, stderr_bytes_max: 64 << 20 };

pub(crate) struct Guest {
    child: Child,
    /// The machine's end of the byte stream, which outlives every client.
    socket: Arc<UnixStream>,
    /// Carries bytes for the newest client, as a machine monitor does.
    relay: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Guest {
    pub(crate) fn start() -> Guest {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_guest"))
            .args(["--serve-fd", "0"])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .unwrap();
        ours.set_nonblocking(true).unwrap();
        Guest { child, socket: Arc::new(UnixStream::from_std(ours).unwrap()), relay: Mutex::new(None) }
    }

    /// A new client. An older one loses its connection.
    pub(crate) async fn open(&self, opening: Opening) -> Link {
        let (client, far) = UnixStream::pair().unwrap();
        let relay = tokio::spawn(relay(Arc::clone(&self.socket), Arc::new(far)));
        if let Some(old) = self.relay.lock().unwrap().replace(relay) {
            old.abort();
        }
        within(Link::open(client, opening, None)).await.unwrap().0
    }

    /// Bytes that are nobody's frame.
    pub(crate) async fn write_raw(&self, bytes: &[u8]) {
        send(&self.socket, bytes).await;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

async fn send(socket: &UnixStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        socket.writable().await.unwrap();
        match socket.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // The guest is gone, which the client will see.
            Err(_) => return,
        }
    }
}

/// Copies in both directions until one end is gone.
pub(crate) async fn relay(guest: Arc<UnixStream>, client: Arc<UnixStream>) {
    let copy = async |from: &UnixStream, to: &UnixStream| {
        let mut buffer = vec![0; 65_536];
        loop {
            from.readable().await.unwrap();
            match from.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => send(to, &buffer[..count]).await,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    tokio::select! {
        () = copy(&client, &guest) => {}
        () = copy(&guest, &client) => {}
    }
}

/// A guest and a link to it.
pub(crate) async fn guest() -> (Guest, Link) {
    let guest = Guest::start();
    let link = guest.open(Opening::Clean).await;
    (guest, link)
}

/// Nothing in these tests takes long.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("took more than a minute")
}

pub(crate) async fn shell(link: &Link, line: &str) -> Output {
    within(link.exec(ProcessSpec::shell(line), b"", LIMITS)).await.unwrap()
}

pub(crate) fn path(text: impl AsRef<std::path::Path>) -> GuestPath {
    use std::os::unix::ffi::OsStrExt;
    GuestPath::parse(text.as_ref().as_os_str().as_bytes()).unwrap()
}

/// Waits until `condition` gives something.
pub(crate) async fn until<T>(mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    within(async {
        loop {
            if let Some(found) = condition().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}
