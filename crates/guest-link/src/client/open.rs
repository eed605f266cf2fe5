//! Starting a session: padding if the byte stream may be torn, `Hello`, and with it the guest's new identity.

use std::io::Read;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;

use super::stream::Stream;
use super::{CallError, Inner, Link, LinkError, Shared, reader, writer};
use crate::frame::{Decoder, Incoming, RESYNC_BYTES, Side, encode_hello};
use crate::message::{Identity, IdentityConfirmed, Request, Response};
use crate::session::{GuestInfo, Hello, Nonce, PROTOCOL_VERSION, Tag};

/// What is known about the byte stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The guest is at a frame boundary: it has just booted, or its snapshot was taken while quiesced.
    Clean,
    /// An earlier host process may have died in the middle of a frame.
    Reattach,
}

impl Link {
    /// Starts a session, and in the same breath makes the guest a machine of its own if `identity` is given. Any earlier session
    /// ends: its processes live on, its file transfers are aborted. `Err` means that the link must not be used, and with an
    /// identity that the machine must not.
    pub async fn open(
        stream: UnixStream,
        opening: Opening,
        identity: Option<Identity>,
    ) -> Result<(Link, Option<IdentityConfirmed>), CallError> {
        let nonce = random_nonce()?;
        let tag = Tag::of(&nonce);
        let mut first = match opening {
            Opening::Clean => Vec::new(),
            Opening::Reattach => vec![0; RESYNC_BYTES],
        };
        encode_hello(&mut first, &Hello { version: PROTOCOL_VERSION, nonce });
        let request = identity.map(|identity| Request::Identify(Box::new(identity)));
        if let Some(request) = &request {
            for frame in Stream::encode_request(Stream::FIRST, request, tag)? {
                first.extend_from_slice(&frame);
            }
        }
        let (mut reading, mut writing) = stream.into_split();
        let mut decoder = Decoder::new(Side::Host(nonce));
        // Both at once: what an older session left unread must not keep the guest from reading.
        let (_, guest) = tokio::try_join!(
            async { writing.write_all(&first).await.map_err(LinkError::from) },
            await_reply(&mut reading, &mut decoder)
        )?;
        if guest.version != PROTOCOL_VERSION {
            return Err(LinkError::Version { guest: guest.version }.into());
        }
        let shared = Arc::new(Shared::new(guest, tag, request.is_some()));
        let tasks = [
            tokio::spawn(reader::run(Arc::clone(&shared), reading, decoder)),
            tokio::spawn(writer::run(Arc::clone(&shared), writing)),
        ];
        let link = Link { inner: Arc::new(Inner { shared, tasks }) };
        if request.is_none() {
            return Ok((link, None));
        }
        match Stream::first(link.clone()).response().await? {
            Response::Identified(confirmed) => Ok((link, Some(confirmed))),
            _ => Err(LinkError::Unexpected.into()),
        }
    }
}

/// Throws away what an older session left, until the guest answers this one.
async fn await_reply(reading: &mut OwnedReadHalf, decoder: &mut Decoder) -> Result<GuestInfo, LinkError> {
    loop {
        match decoder.next().map_err(LinkError::Frame)? {
            Some(Incoming::Reply(guest)) => return Ok(guest),
            Some(_) => return Err(LinkError::Protocol("frame before the session")),
            None => {}
        }
        let count = reading.read(decoder.space()).await?;
        if count == 0 {
            return Err(LinkError::Closed);
        }
        decoder.commit(count);
    }
}

fn random_nonce() -> Result<Nonce, LinkError> {
    let mut nonce = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}
