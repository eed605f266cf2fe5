//! The task that reads what the guest sends. A guest is hostile: whatever breaks a rule ends the link.

use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

use super::LinkError;
use super::state::{Item, Shared};
use crate::frame::{CONTROL_STREAM, Decoder, Incoming, Kind};
use crate::limits::cost;
use crate::message::{Channel, GuestControl};

pub(super) async fn run(shared: Arc<Shared>, mut reading: OwnedReadHalf, mut decoder: Decoder) {
    let error = loop {
        if let Err(error) = drain(&shared, &mut decoder) {
            break error;
        }
        match reading.read(decoder.space()).await {
            Ok(0) => break LinkError::Closed,
            Ok(count) => decoder.commit(count),
            Err(error) => break error.into(),
        }
    };
    shared.fail(error);
}

fn drain(shared: &Shared, decoder: &mut Decoder) -> Result<(), LinkError> {
    while let Some(incoming) = decoder.next().map_err(LinkError::Frame)? {
        let Incoming::Frame { kind, stream, payload } = incoming else {
            return Err(LinkError::Protocol("a session inside a session"));
        };
        dispatch(shared, kind, stream, payload)?;
    }
    Ok(())
}

fn dispatch(shared: &Shared, kind: Kind, stream: u32, payload: &[u8]) -> Result<(), LinkError> {
    if shared.lock().is_silent() {
        return Err(LinkError::Protocol("frame while quiesced"));
    }
    let item = match kind {
        Kind::Data => Item::Data(Channel::Stdout, payload.to_vec()),
        Kind::DataError => Item::Data(Channel::Stderr, payload.to_vec()),
        Kind::Event => Item::Event(decode(payload)?, cost(payload.len())),
        Kind::End => Item::End,
        Kind::Done => Item::Done(decode(payload)?),
        Kind::Credit => {
            let bytes = payload.try_into().map_err(|_| LinkError::Protocol("malformed credit"))?;
            if shared.lock().grant(stream, u32::from_le_bytes(bytes))? {
                shared.work.notify_one();
            }
            return Ok(());
        }
        Kind::Control if stream == CONTROL_STREAM => {
            let GuestControl::Quiesced(quiesced) = decode(payload)?;
            shared.lock().quiesced(quiesced);
            return Ok(());
        }
        Kind::Control | Kind::Request | Kind::RequestPart | Kind::Cancel | Kind::Hello | Kind::HelloReply => {
            return Err(LinkError::Protocol("frame of a kind that guests do not send"));
        }
    };
    let waker = shared.lock().deliver(stream, item)?;
    if let Some(waker) = waker {
        waker.wake();
    }
    Ok(())
}

fn decode<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, LinkError> {
    crate::message::decode(payload).ok_or(LinkError::Protocol("malformed message"))
}
