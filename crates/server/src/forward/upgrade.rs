//! A connection on which HTTP is no longer spoken: bytes, both ways, until both ends are done.

use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// How long the client's end may take to get the answer that ends HTTP.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long one end may go on after the other has ended.
const LINGER: Duration = Duration::from_secs(30);

async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    // An end that fails is an end that is gone; the other one is told by the shutdown.
    let _ = tokio::io::copy(&mut from, &mut to).await;
    let _ = to.shutdown().await;
}

/// Carries bytes between both ends.
pub(super) async fn carry(client: OnUpgrade, guest: OnUpgrade) {
    let both = async { tokio::try_join!(client, guest) };
    let Ok(Ok((client, guest))) = tokio::time::timeout(CHANGE_TIMEOUT, both).await else { return };
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_guest, to_guest) = tokio::io::split(TokioIo::new(guest));
    let mut inward = std::pin::pin!(one_way(from_client, to_guest));
    let mut outward = std::pin::pin!(one_way(from_guest, to_client));
    let _ = tokio::select! {
        () = inward.as_mut() => tokio::time::timeout(LINGER, outward).await,
        () = outward.as_mut() => tokio::time::timeout(LINGER, inward).await,
    };
}
