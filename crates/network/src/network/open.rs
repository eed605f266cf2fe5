//! Opening: takes the tag, adopts what still runs, removes what nobody claims, loads the firewall.

use std::{
    collections::BTreeSet,
    io,
    net::Ipv4Addr,
    os::{linux::net::SocketAddrExt, unix::net},
    path::Path,
    sync::{Arc, Mutex},
};

use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Inner, Network, NetworkConfig, VISITORS_MAX, WORKERS_MAX,
    state::{Leased, State},
};
use crate::{
    address::{AddressPool, Slot},
    firewall::{self, FirewallError},
    netlink::{Netlink, NetlinkError},
    recovery::{self, OpenReport, Survey, SurveyError},
    reserve,
    sysctl::HostChange,
    tag::InstanceTag,
    thread::{self, ThreadError},
    uplink::{self, InterfaceName, Uplink, UplinkError},
    wire::{Site, WireError},
};

/// A name that only one process of this host can have, followed by the tag.
pub(crate) const CLAIM_PREFIX: &str = "pandastack-network-";

/// Why the network could not be opened. Nothing that a claimed slot uses was touched.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has the network of this tag open.
    #[error("the network of instance `{tag}` is already open in another process")]
    AlreadyOpen {
        /// The tag.
        tag: InstanceTag,
    },
    /// The claim on the tag could not be made.
    #[error("could not claim the tag `{tag}`")]
    Claim {
        /// The tag.
        tag: InstanceTag,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A claimed slot is not in the configured pool.
    #[error("slot {slot} is in use, but {pool} does not have it: was the pool changed?")]
    ClaimedOutsidePool {
        /// The slot.
        slot: Slot,
        /// The pool.
        pool: AddressPool,
    },
    /// The pool overlaps the host's own addresses.
    #[error("the pool {pool} cannot be used: host interface `{interface}` has {ip}")]
    PoolInUse {
        /// The pool.
        pool: AddressPool,
        /// The host's address.
        ip: Ipv4Addr,
        /// Whose it is.
        interface: String,
    },
    /// The host's namespaces could not be prepared or listed.
    #[error("could not use the directory of network namespaces")]
    Namespaces(#[source] io::Error),
    /// The host's interfaces could not be listed.
    #[error("could not look at the host's interfaces")]
    Interfaces(#[source] NetlinkError),
    /// A claimed slot could not be inspected.
    #[error("could not inspect the network of a running sandbox")]
    Inspect(#[source] WireError),
    /// The uplink cannot be used.
    #[error("the uplink cannot be used")]
    Uplink(#[source] UplinkError),
    /// The firewall could not be loaded.
    #[error("could not load the firewall")]
    Firewall(#[source] FirewallError),
    /// The route that refuses unused addresses could not be made.
    #[error("could not refuse the unused addresses of {pool}")]
    Refuse {
        /// The pool.
        pool: AddressPool,
        /// Why not.
        #[source]
        source: NetlinkError,
    },
    /// The work could not be done.
    #[error("could not work on the host's network")]
    Thread(#[source] ThreadError),
}

impl Network {
    /// Opens the network of an instance.
    ///
    /// `claimed` are the slots of sandboxes that still run: they are kept as they are, and must be released one day
    /// like leased ones, also those reported as broken. Everything else under this tag is removed from the host.
    pub async fn open(config: NetworkConfig, claimed: &[Slot]) -> Result<(Self, OpenReport), OpenError> {
        let NetworkConfig { tag, pool, uplink, prepared, nft } = config;
        let claimed: BTreeSet<Slot> = claimed.iter().copied().collect();
        if let Some(&slot) = claimed.iter().find(|&&slot| !pool.has(slot)) {
            return Err(OpenError::ClaimedOutsidePool { slot, pool });
        }
        let claim = claim_tag(&tag)?;
        let site = Arc::new(Site { tag, pool });
        let look = {
            let (site, claimed) = (Arc::clone(&site), claimed.clone());
            move || look_at_host(&site, &claimed, &uplink)
        };
        let (survey, uplink) =
            thread::run("net-open".to_owned(), look).await.map_err(OpenError::Thread)??;
        firewall::load(&nft, &site.tag, &site.pool, uplink.as_ref()).await.map_err(OpenError::Firewall)?;
        let change = match prepare_host(&site, uplink.as_ref()) {
            Ok(change) => change,
            Err(error) => {
                // Sandboxes that run keep their walls.
                if claimed.is_empty() {
                    undo(&nft, &site.tag).await;
                }
                return Err(error);
            }
        };

        let mut state = State::new(site.pool.capacity());
        for slot in claimed {
            state.slots.claim(slot);
            let found = survey.adopted.iter().find(|adopted| adopted.slot == slot);
            state.leased.insert(slot, Leased::new(found.map(|adopted| adopted.policy)));
        }
        let inner = Arc::new(Inner {
            prepared: prepared.min(site.pool.capacity()),
            site,
            nft,
            state: Mutex::new(state),
            changed: Notify::new(),
            wanted: Notify::new(),
            makers: Semaphore::new(WORKERS_MAX),
            removers: Semaphore::new(WORKERS_MAX),
            visitors: Arc::new(Semaphore::new(VISITORS_MAX)),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
            stop: CancellationToken::new(),
            claim: Mutex::new(Some(claim)),
        });
        let (removed, stuck) = inner.remove_leftovers(survey.leftovers).await;
        inner.tasks.spawn(Arc::clone(&inner).keep_supplied());
        let report = OpenReport {
            adopted: survey.adopted,
            broken: survey.broken,
            removed,
            stuck,
            uplink,
            host_changes: change.into_iter().collect(),
        };
        Ok((Self { inner }, report))
    }
}

impl Inner {
    /// Removes what nobody claims. Slots that were cleared go to the end of the queue.
    async fn remove_leftovers(self: &Arc<Self>, leftovers: BTreeSet<Slot>) -> (Vec<Slot>, Vec<Slot>) {
        let mut removals = JoinSet::new();
        for slot in leftovers {
            let inner = Arc::clone(self);
            removals.spawn(async move { (slot, inner.remove(slot).await) });
        }
        let (mut removed, mut stuck) = (Vec::new(), Vec::new());
        while let Some(Ok((slot, result))) = removals.join_next().await {
            let mut state = self.lock();
            let in_pool = state.slots.claim(slot);
            match result {
                Ok(()) => {
                    state.slots.give_back(slot);
                    removed.push(slot);
                }
                Err(error) => {
                    if in_pool {
                        state.stuck.insert(slot);
                    }
                    tracing::warn!(error = &error as &dyn std::error::Error, %slot, "leftovers stay");
                    stuck.push(slot);
                }
            }
        }
        removed.sort_unstable();
        (removed, stuck)
    }
}

/// What is changed on the host besides its firewall.
fn prepare_host(site: &Site, uplink: Option<&InterfaceName>) -> Result<Option<HostChange>, OpenError> {
    let refused = Netlink::open().and_then(|mut host| reserve::refuse(&mut host, &site.tag, &site.pool));
    refused.map_err(|source| OpenError::Refuse { pool: site.pool, source })?;
    uplink.map_or(Ok(None), |name| uplink::allow_forwarding(name).map_err(OpenError::Uplink))
}

/// Takes back what was made for an instance without sandboxes.
async fn undo(nft: &Path, tag: &InstanceTag) {
    if let Err(error) = firewall::unload(nft, tag).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "the firewall table stays");
    }
    if let Err(error) = Netlink::open().and_then(|mut host| reserve::withdraw(&mut host, tag)) {
        tracing::warn!(error = &error as &dyn std::error::Error, "the route that refuses addresses stays");
    }
}

/// Takes the tag for this process. The kernel lets go of it when the process ends, however it ends.
fn claim_tag(tag: &InstanceTag) -> Result<net::UnixDatagram, OpenError> {
    let address = net::SocketAddr::from_abstract_name(format!("{CLAIM_PREFIX}{tag}"));
    address.and_then(|address| net::UnixDatagram::bind_addr(&address)).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => OpenError::AlreadyOpen { tag: tag.clone() },
        _ => OpenError::Claim { tag: tag.clone(), source },
    })
}

/// The part of opening that blocks.
fn look_at_host(
    site: &Site,
    claimed: &BTreeSet<Slot>,
    uplink: &Uplink,
) -> Result<(Survey, Option<InterfaceName>), OpenError> {
    let survey = recovery::survey(site, claimed).map_err(|error| match error {
        SurveyError::Directory(source) | SurveyError::List(source) => OpenError::Namespaces(source),
        SurveyError::Netlink(source) => OpenError::Interfaces(source),
        SurveyError::Inspect(source) => OpenError::Inspect(source),
        SurveyError::PoolInUse { ip, interface } => OpenError::PoolInUse { pool: site.pool, ip, interface },
    })?;
    let mut host = Netlink::open().map_err(OpenError::Interfaces)?;
    let uplink = uplink::resolve(uplink, &mut host).map_err(OpenError::Uplink)?;
    Ok((survey, uplink))
}
