//! A booted machine that belongs to no sandbox. Whoever works with it may give up at any moment; then it ends, and everything it
//! has on the host goes with it.

use std::sync::Arc;

use machine::Vm;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::machine_resources::MachineResources;
use crate::node::Shared;

/// A machine and the task that ends it. Dropping ends it too, in the background.
pub(crate) struct ScopedMachine {
    vm: Arc<dyn Vm>,
    ended: watch::Receiver<Option<String>>,
    end: DropGuard,
    keeper: JoinHandle<()>,
}

impl ScopedMachine {
    pub(crate) fn new(shared: &Arc<Shared>, vm: Arc<dyn Vm>, resources: MachineResources) -> Self {
        let (end, (tell, ended)) = (CancellationToken::new(), watch::channel(None));
        let keeper =
            shared.tasks.spawn(keep(Arc::clone(shared), Arc::clone(&vm), resources, end.clone(), tell));
        Self { vm, ended, end: end.drop_guard(), keeper }
    }

    pub(crate) fn vm(&self) -> &dyn Vm {
        &*self.vm
    }

    /// Why it ended, once it has.
    pub(crate) fn ended(&self) -> watch::Receiver<Option<String>> {
        self.ended.clone()
    }

    /// Ends it and removes everything of it.
    pub(crate) async fn close(self) {
        let Self { end, keeper, .. } = self;
        drop(end);
        if let Err(error) = keeper.await {
            tracing::error!(%error, "a machine without a sandbox was not removed");
        }
    }
}

/// Owns the machine until it ends or nobody wants it any more, then removes everything of it.
async fn keep(
    shared: Arc<Shared>,
    vm: Arc<dyn Vm>,
    resources: MachineResources,
    end: CancellationToken,
    tell: watch::Sender<Option<String>>,
) {
    let reason = tokio::select! {
        exit = vm.exited() => exit.reason,
        () = end.cancelled() => "it was closed".to_owned(),
        () = shared.closing.cancelled() => "the node is shutting down".to_owned(),
    };
    tell.send_replace(Some(reason));
    vm.kill().await;
    resources.remove(&shared.network).await;
}
