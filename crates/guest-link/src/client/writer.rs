//! The task that writes to the guest: whole frames, requests before data, data in turn.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;

use super::state::Shared;

pub(super) async fn run(shared: Arc<Shared>, mut writing: OwnedWriteHalf) {
    loop {
        if shared.failure().is_some() {
            return;
        }
        let batch = shared.lock().batch(shared.tag);
        if batch.is_empty() {
            shared.work.notified().await;
            continue;
        }
        if let Err(error) = writing.write_all(&batch).await {
            shared.fail(error.into());
            return;
        }
    }
}
