//! The network of one instance: opens it, leases wires to sandboxes, changes their policies, closes it.

mod config;
mod open;
mod release;
mod rest;
mod resting;
mod state;
mod supply;

use std::{
    io,
    os::unix::net,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use config::NFT;
pub use config::NetworkConfig;
pub(crate) use open::CLAIM_PREFIX;
pub use open::OpenError;
pub use release::{Release, ReleaseError};
pub use resting::Rest;
pub use state::Stats;
pub use supply::{AcquireError, Lease};

use crate::{
    address::{GuestAddresses, Slot},
    firewall::{self, FirewallError},
    namespace,
    netlink::{Netlink, NetlinkError},
    policy::{self, Policy},
    reserve,
    thread::{self, ThreadError},
    wire::{Site, Wire, WireError},
};
use state::State;

/// Wires made or removed at a time; the kernel takes one lock for most of the work, so more only wait for each other.
const WORKERS_MAX: usize = 4;
/// Threads inside namespaces on behalf of callers at a time; further callers wait.
const VISITORS_MAX: usize = 64;

/// The network of one instance.
///
/// Dropping it stops the work ahead but removes nothing; what it prepared is found and removed by the next open.
#[derive(Debug)]
pub struct Network {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    site: Arc<Site>,
    nft: PathBuf,
    prepared: u32,
    state: Mutex<State>,
    /// Something in the state changed that a waiting caller may be waiting for.
    changed: Notify,
    /// More wires may have to be made ahead, or can be.
    wanted: Notify,
    makers: Semaphore,
    removers: Semaphore,
    visitors: Arc<Semaphore>,
    tasks: TaskTracker,
    runtime: Handle,
    stop: CancellationToken,
    /// Held for as long as this process works under the tag; gone once it is closed.
    claim: Mutex<Option<net::UnixDatagram>>,
}

/// Why a policy could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum SetPolicyError {
    /// No sandbox has this slot, or the network is closed.
    #[error("slot {slot} is not leased")]
    NotLeased {
        /// The slot.
        slot: Slot,
    },
    /// It did not work. The sandbox was closed instead, unless closing is what failed.
    #[error("could not set the policy of slot {slot}")]
    Apply {
        /// The slot.
        slot: Slot,
        /// Why not.
        #[source]
        source: WireError,
    },
    /// The work could not be done.
    #[error("could not work on the network of slot {slot}")]
    Thread {
        /// The slot.
        slot: Slot,
        /// Why not.
        #[source]
        source: ThreadError,
    },
    /// The runtime was shut down before the end.
    #[error("the change was abandoned")]
    Abandoned,
}

/// Why work inside a sandbox's namespace was not done.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// No sandbox has this slot, or the network is closed.
    #[error("slot {slot} is not leased")]
    NotLeased {
        /// The slot.
        slot: Slot,
    },
    /// The namespace could not be entered.
    #[error("could not enter network namespace `{namespace}`")]
    Enter {
        /// Its name.
        namespace: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The work could not be started or panicked.
    #[error("could not work in network namespace `{namespace}`")]
    Thread {
        /// Its name.
        namespace: String,
        /// Why not.
        #[source]
        source: ThreadError,
    },
}

/// Why something was left on the host when the network was closed. The next open removes it.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// A wire that was prepared or rested.
    #[error("could not remove a network that was not in use")]
    Release(#[source] ReleaseError),
    /// The firewall table.
    #[error("could not remove the firewall table")]
    Firewall(#[source] FirewallError),
    /// The route that refuses unused addresses.
    #[error("could not remove the route that refuses unused addresses")]
    Route(#[source] NetlinkError),
}

impl Network {
    /// Leases a closed network to a sandbox: at once if one is ready, else as soon as one is made.
    pub async fn acquire(&self) -> Result<Lease, AcquireError> {
        self.inner.acquire().await
    }

    /// Removes a sandbox's network and frees its slot, in the background.
    ///
    /// Safe to repeat until the slot is leased again. A slot that is not in use is fine; one that rests goes on
    /// resting.
    pub fn release(&self, slot: Slot) -> Release {
        self.inner.release(slot)
    }

    /// Takes note that a leased slot is about to be released or to rest: whoever needs a slot when there is none waits for it.
    pub fn leave_soon(&self, slot: Slot) {
        if let Some(leased) = self.inner.lock().leased.get_mut(&slot) {
            leased.is_leaving = true;
        }
    }

    /// Keeps a sandbox's network for when the sandbox comes back, closed and with a new tap, instead of removing it.
    ///
    /// Call it when the machine's process is gone, and with it the connections into the namespace. The slot is not
    /// leased from here on, and stays taken while it rests. It is made ready in the background; if that fails it is
    /// removed. A slot that is not leased is fine: nothing rests under the token then.
    pub fn rest(&self, slot: Slot) -> Rest {
        self.inner.rest(slot)
    }

    /// Leases the very network that rests, with the same slot and addresses, or `None` if it is not ready or gone:
    /// then `acquire` one. Never waits. A token is good for one try: what was not ready is removed.
    pub fn acquire_again(&self, rest: Rest) -> Option<Lease> {
        self.inner.acquire_again(rest)
    }

    /// Removes a resting network whose sandbox will not come back, in the background. Gone already is fine.
    pub fn forget(&self, rest: Rest) {
        self.inner.forget(rest);
    }

    /// Sets what a sandbox's guest can reach. Changes to one slot follow each other in the order they were asked for,
    /// and go on to their end if the caller stops waiting.
    pub async fn set_policy(&self, slot: Slot, policy: Policy) -> Result<(), SetPolicyError> {
        let inner = Arc::clone(&self.inner);
        let turn = inner.leased_turn(slot).ok_or(SetPolicyError::NotLeased { slot })?;
        let task = async move {
            let _turn = Arc::clone(&turn).lock_owned().await;
            // Released, and perhaps leased anew, while we waited.
            if !inner.leased_turn(slot).is_some_and(|current| Arc::ptr_eq(&current, &turn)) {
                return Err(SetPolicyError::NotLeased { slot });
            }
            inner.apply(slot, policy).await
        };
        let running = self.inner.tasks.spawn_on(task, &self.inner.runtime);
        running.await.map_err(|_| SetPolicyError::Abandoned)?
    }

    /// The policy last set or found, or `None` if the slot is not leased or was found broken.
    pub fn policy(&self, slot: Slot) -> Option<Policy> {
        self.inner.lock().leased.get(&slot)?.policy
    }

    /// The addresses that belong to a slot, in use or not; `None` beyond the pool.
    pub fn addresses(&self, slot: Slot) -> Option<GuestAddresses> {
        self.inner.site.pool.addresses(slot)
    }

    /// Runs `visit` on a thread inside a sandbox's namespace, from where its guest can be reached whatever its policy.
    ///
    /// A socket made there keeps to the namespace when it is used elsewhere later. `visit` holds one of a bounded
    /// number of places until it returns, so it should make its socket and leave.
    pub async fn enter<R: Send + 'static>(
        &self,
        slot: Slot,
        visit: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, EnterError> {
        self.inner.leased_turn(slot).ok_or(EnterError::NotLeased { slot })?;
        let name = self.inner.site.tag.namespace(slot);
        let place =
            Arc::clone(&self.inner.visitors).acquire_owned().await.expect("visitors are never shut out");
        let inside = name.clone();
        let work = move || {
            let result = namespace::enter(&inside).map(|()| visit());
            drop(place);
            result
        };
        match thread::run(format!("net-visit-{slot}"), work).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(source)) => Err(EnterError::Enter { namespace: name, source }),
            Err(source) => Err(EnterError::Thread { namespace: name, source }),
        }
    }

    /// How the pool is used.
    pub fn stats(&self) -> Stats {
        self.inner.lock().stats()
    }

    /// Ends what is under way, removes the prepared and the resting wires and, unless a sandbox still has a network, the firewall.
    ///
    /// Sandboxes keep their networks; the next open can claim them. From here on every other call is refused. Safe to
    /// repeat.
    pub async fn close(&self) -> Result<(), CloseError> {
        let inner = &self.inner;
        // Until this is dropped at the end nobody else can open the tag.
        let Some(_claim) = inner.claim.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        inner.lock().closing = true;
        inner.changed.notify_waiters();
        inner.stop.cancel();
        inner.tasks.close();
        inner.tasks.wait().await;

        let (unused, in_use) = {
            let mut state = inner.lock();
            let mut unused: Vec<Wire> = std::mem::take(&mut state.ready).into();
            unused.extend(std::iter::from_fn(|| state.resting.take_oldest()).filter_map(|entry| entry.wire));
            (unused, !state.leased.is_empty() || !state.stuck.is_empty())
        };
        let mut removals = JoinSet::new();
        for wire in unused {
            let inner = Arc::clone(inner);
            removals.spawn(async move { inner.remove(wire.slot).await });
        }
        let mut outcome = Ok(());
        while let Some(result) = removals.join_next().await {
            let result = result.unwrap_or(Err(ReleaseError::Abandoned));
            outcome = outcome.and(result.map_err(CloseError::Release));
        }
        if !in_use {
            firewall::unload(&inner.nft, &inner.site.tag).await.map_err(CloseError::Firewall)?;
            let withdrawn =
                Netlink::open().and_then(|mut host| reserve::withdraw(&mut host, &inner.site.tag));
            withdrawn.map_err(CloseError::Route)?;
        }
        outcome
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.inner.stop.cancel();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is changed in steps that cannot panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leased_turn(&self, slot: Slot) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let state = self.lock();
        let leased = state.leased.get(&slot).filter(|_| !state.closing)?;
        Some(Arc::clone(&leased.turn))
    }

    async fn apply(&self, slot: Slot, policy: Policy) -> Result<(), SetPolicyError> {
        let result = self.apply_once(slot, policy).await;
        let in_force = match (&result, policy) {
            (Ok(()), policy) => Some(policy),
            // Half open is not a state to leave anyone in.
            (Err(_), Policy::Open) => {
                self.apply_once(slot, Policy::Closed).await.ok().map(|()| Policy::Closed)
            }
            (Err(_), Policy::Closed) => None,
        };
        if let (Some(leased), Some(policy)) = (self.lock().leased.get_mut(&slot), in_force) {
            leased.policy = Some(policy);
        }
        result
    }

    async fn apply_once(&self, slot: Slot, policy: Policy) -> Result<(), SetPolicyError> {
        let site = Arc::clone(&self.site);
        thread::run(format!("net-policy-{slot}"), move || policy::apply(&site, slot, policy))
            .await
            .map_err(|source| SetPolicyError::Thread { slot, source })?
            .map_err(|source| SetPolicyError::Apply { slot, source })
    }
}
