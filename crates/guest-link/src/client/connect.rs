//! TCP connections into the guest, as an ordinary byte stream.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::Stream;
use super::{CallError, Link, LinkError};
use crate::message::{ConnectRequest, Event, Request};

/// A connection to a port inside a guest. Shutting it down closes our direction; dropping it resets what is left.
pub struct Connection {
    stream: Stream,
    piece: Vec<u8>,
    taken: usize,
    ended: bool,
}

impl Link {
    /// Connects to a TCP port inside the guest: on its loopback unless an address is given.
    pub async fn connect(&self, address: Option<IpAddr>, port: u16) -> Result<Connection, CallError> {
        let stream = self.stream(&Request::Connect(ConnectRequest { address, port }))?;
        match stream.event().await? {
            Ok(Event::Connected) => Ok(Connection { stream, piece: Vec::new(), taken: 0, ended: false }),
            _ => Err(LinkError::Unexpected.into()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.taken == self.piece.len() {
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            match ready!(self.stream.poll_data(context)) {
                Ok(Some(piece)) => {
                    self.piece = piece;
                    self.taken = 0;
                }
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
        let count = buffer.remaining().min(self.piece.len() - self.taken);
        buffer.put_slice(&self.piece[self.taken..self.taken + count]);
        self.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(match ready!(self.stream.poll_send(context, data)) {
            Ok(Some(count)) => Ok(count),
            Ok(None) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) => Err(CallError::from(error).into()),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(context).map_err(|error| CallError::from(error).into())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.end();
        Poll::Ready(Ok(()))
    }
}
