//! Bytes between this host and a tunnel, both ways, until the guest's side is over.

use std::io::{self, Write};

use client::{TunnelEvent, TunnelInput, TunnelOutput};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// Size of a piece.
const PIECE_BYTES: usize = 32 << 10;

/// Where bytes for the guest come from.
trait Source: Send {
    /// The next piece; nothing at its end.
    fn next(&mut self) -> impl Future<Output = io::Result<Option<Vec<u8>>>> + Send;
}

/// Where bytes of the guest go.
trait Drain: Send {
    fn put(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
    /// No more come.
    fn end(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

impl Source for ReadHalf<'_> {
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut piece = vec![0; PIECE_BYTES];
        let read = self.read(&mut piece).await?;
        piece.truncate(read);
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }
}

impl Drain for WriteHalf<'_> {
    async fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await
    }

    async fn end(&mut self) -> io::Result<()> {
        self.shutdown().await
    }
}

impl Source for mpsc::Receiver<Vec<u8>> {
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.recv().await)
    }
}

/// This program's standard output.
struct Stdout;

impl Drain for Stdout {
    async fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        // What reads it reads all of it, so waiting for it is right.
        tokio::task::block_in_place(|| {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes)?;
            stdout.flush()
        })
    }

    async fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Relays a TCP connection.
pub(super) async fn tcp(tunnel: (TunnelInput, TunnelOutput), mut socket: TcpStream) -> anyhow::Result<()> {
    let (reader, writer) = socket.split();
    relay(tunnel, reader, writer).await
}

/// Relays this program's standard input, in pieces, and its standard output.
pub(super) async fn standard(
    tunnel: (TunnelInput, TunnelOutput),
    input: mpsc::Receiver<Vec<u8>>,
) -> anyhow::Result<()> {
    relay(tunnel, input, Stdout).await
}

async fn relay(
    (mut input, mut output): (TunnelInput, TunnelOutput),
    mut source: impl Source,
    mut drain: impl Drain,
) -> anyhow::Result<()> {
    let there = async {
        while let Some(piece) = source.next().await? {
            input.write(piece).await?;
        }
        input.end().await?;
        // The guest may still have something to say.
        std::future::pending::<anyhow::Result<()>>().await
    };
    let here = async {
        loop {
            match output.next().await? {
                TunnelEvent::Bytes(bytes) => drain.put(&bytes).await?,
                TunnelEvent::Eof => drain.end().await?,
                TunnelEvent::Closed => return anyhow::Ok(()),
            }
        }
    };
    let ended = tokio::select! {
        ended = there => ended,
        ended = here => ended,
    };
    // Both ends know by now; a connection that is broken needs no closing.
    drop(input.close().await);
    ended
}
