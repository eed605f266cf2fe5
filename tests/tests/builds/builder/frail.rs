//! Something between a registry and who asks it, that breaks answers off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Bytes of answers that a connection carries before it breaks: more than all but a layer.
const CUT_BYTES: usize = 64 << 10;

/// When it stops breaking answers off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// After the first.
    Once,
    /// Nobody is there any more after the first.
    ForGood,
}

/// Passes connections on to a registry; gone when dropped.
pub(crate) struct Frail {
    pub(crate) host: String,
    broken: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Frail {
    pub(crate) async fn start(registry: &str, breaks: Breaks) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let host = listener.local_addr()?.to_string();
        let broken = Arc::new(AtomicUsize::new(0));
        let (registry, counted) = (registry.to_owned(), Arc::clone(&broken));
        let task = tokio::spawn(async move {
            let dead = CancellationToken::new();
            let mut connections = JoinSet::new();
            loop {
                let asked = tokio::select! {
                    asked = listener.accept() => asked,
                    () = dead.cancelled() => return,
                };
                let Ok((asked, _)) = asked else { return };
                let (registry, broken, dead) = (registry.clone(), Arc::clone(&counted), dead.clone());
                connections.spawn(async move {
                    let Ok(passed) = TcpStream::connect(registry).await else { return };
                    let whole = pass_on(asked, passed, &broken).await.unwrap_or(true);
                    if !whole && breaks == Breaks::ForGood {
                        dead.cancel();
                    }
                });
            }
        });
        Ok(Self { host, broken, task })
    }

    /// How often it broke an answer off.
    pub(crate) fn broken(&self) -> usize {
        self.broken.load(Ordering::Relaxed)
    }
}

impl Drop for Frail {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether the connection came to its own end.
async fn pass_on(asked: TcpStream, passed: TcpStream, broken: &AtomicUsize) -> std::io::Result<bool> {
    let (mut from_client, mut to_client) = asked.into_split();
    let (mut from_registry, mut to_registry) = passed.into_split();
    let mut requests = JoinSet::new();
    requests.spawn(async move { tokio::io::copy(&mut from_client, &mut to_registry).await });
    let (mut buffer, mut carried) = (vec![0; 16 << 10], 0);
    loop {
        let count = from_registry.read(&mut buffer).await?;
        if count == 0 {
            return Ok(true);
        }
        carried += count;
        let first = carried > CUT_BYTES
            && broken.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if first {
            return Ok(false);
        }
        to_client.write_all(&buffer[..count]).await?;
    }
}
