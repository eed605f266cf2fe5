//! Wires that wait for the sandbox that had them.

use std::{
    net::{Ipv4Addr, UdpSocket},
    os::fd::{AsRawFd, OwnedFd},
    time::Instant,
};

use network::{
    AcquireError, EnterError, GATEWAY, Lease, Network, NetworkConfig, Policy, Rest, SetPolicyError, Slot,
    Stats,
};

use crate::{
    guest::Guest,
    host::{PORT, TIMEOUT, WORLD_IP, World, config, eventually, inventory, run},
};

/// How many wires rest at most.
const RESTING_MAX: usize = 32;
/// From the kernel's `linux/if_tun.h`.
const TUNSETPERSIST: libc::Ioctl = 0x4004_54cb;

async fn open(config: NetworkConfig) -> Network {
    Network::open(config, &[]).await.unwrap().0
}

/// A network that makes nothing ahead, so that every slot in use is one of the test's own.
async fn open_bare(tag: &str) -> Network {
    open(NetworkConfig { prepared: 0, ..config(tag) }).await
}

/// Backoff a slot and waits until it can be leased again.
async fn rest(network: &Network, slot: Slot) -> Rest {
    let before = network.stats().resting;
    let rest = network.rest(slot);
    eventually("a ready wire", || network.stats().resting == before + 1).await;
    assert_eq!(rest.slot(), slot);
    rest
}

async fn settled(network: &Network) -> Stats {
    eventually("the end of what is under way", || {
        let stats = network.stats();
        stats.making == 0 && stats.removing == 0
    })
    .await;
    let stats = network.stats();
    assert_eq!(
        stats.free + stats.ready + stats.leased + stats.resting + stats.stuck,
        stats.capacity,
        "every slot is somewhere: {stats:?}"
    );
    stats
}

fn exists(namespace: &str) -> bool {
    inventory().contains(&format!("namespace {namespace}"))
}

/// Checks that a lease is as a new one, and that frames pass between its guest and the node.
async fn assert_as_new(network: &Network, lease: Lease) -> Guest {
    let Lease { slot, namespace, addresses, tap } = lease;
    assert_eq!(network.addresses(slot), Some(addresses));
    assert_eq!(network.policy(slot), Some(Policy::Closed));
    let look = move || {
        ["ip -o link show tap0", "ip -o addr show tap0", "ip neigh show dev tap0", "ip -o link show veth0"]
            .map(run)
    };
    let [link, address, neighbour, veth] = network.enter(slot, look).await.unwrap();
    assert!(link.contains(",UP") && link.contains(&addresses.gateway_mac.to_string()), "{link}");
    for expected in [format!("{}/{}", addresses.host, addresses.prefix), format!("{GATEWAY}/32")] {
        assert!(address.contains(&expected), "{address}");
    }
    assert!(
        neighbour.contains(&addresses.ip.to_string())
            && neighbour.contains(&addresses.mac.to_string())
            && neighbour.contains("PERMANENT"),
        "{neighbour}"
    );
    assert!(!veth.contains(",UP"), "{veth}");
    let tag = namespace.split('-').nth(1).unwrap();
    let host_end = run(&format!("ip -o link show p{tag}v{slot}"));
    assert!(!host_end.contains(",UP"), "{host_end}");

    let guest = Guest::new(tap, addresses);
    assert!(guest.pending().is_empty(), "frames of an earlier guest");
    guest.settle();
    say(network, slot, &guest, b"hello").await;
    guest.expect_udp(b"hello");
    guest
}

/// Sends a datagram to a guest from within its namespace.
async fn say(network: &Network, slot: Slot, guest: &Guest, payload: &'static [u8]) {
    let to = guest.addresses.ip;
    let send =
        move || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap().send_to(payload, (to, PORT)).unwrap();
    network.enter(slot, send).await.unwrap();
}

pub(crate) async fn a_wire_is_leased_again_as_it_was() {
    let network = open_bare("2e57").await;
    let lease = network.acquire().await.unwrap();
    let (slot, addresses, namespace) = (lease.slot, lease.addresses, lease.namespace.clone());
    let mut guest = assert_as_new(&network, lease).await;
    for round in 0..3 {
        // Nobody reads this one: it must not reach whoever comes next.
        say(&network, slot, &guest, b"late").await;
        drop(guest);
        let token = rest(&network, slot).await;
        assert_eq!(network.policy(slot), None);
        assert!(matches!(network.enter(slot, || ()).await, Err(EnterError::NotLeased { .. })));
        let refused = network.set_policy(slot, Policy::Open).await;
        assert!(matches!(refused, Err(SetPolicyError::NotLeased { .. })));
        // Not leased, so there is nothing to release.
        network.release(slot).wait().await.unwrap();
        let stats = settled(&network).await;
        assert_eq!((stats.leased, stats.resting, stats.free), (0, 1, stats.capacity - 1));

        let again = network.acquire_again(token).unwrap();
        assert_eq!((again.slot, again.addresses), (slot, addresses), "round {round}");
        assert_eq!(again.namespace, namespace);
        guest = assert_as_new(&network, again).await;
    }
    assert_eq!(network.stats().acquired_again_total, 3);
    network.release(slot).wait().await.unwrap();
    assert!(!exists(&namespace));
    network.close().await.unwrap();
}

pub(crate) async fn an_open_wire_is_closed_while_it_rests() {
    let world = World::create();
    let network = open(world.config("2e570")).await;
    let lease = network.acquire().await.unwrap();
    let slot = lease.slot;
    network.set_policy(slot, Policy::Open).await.unwrap();
    let guest = Guest::new(lease.tap, lease.addresses);
    guest.send_udp(WORLD_IP, PORT, b"open");
    guest.expect_udp(b"open");

    // The earlier tap is still held, as by a process that takes its time to end.
    let token = rest(&network, slot).await;
    let again = network.acquire_again(token).unwrap();
    let next = assert_as_new(&network, again).await;
    next.send_udp(WORLD_IP, PORT, b"closed");
    next.settle();
    assert_eq!(world.echo.sender_of(b"closed"), None);
    drop(guest);
    next.settle();

    // It opens as any other.
    network.set_policy(slot, Policy::Open).await.unwrap();
    next.send_udp(WORLD_IP, PORT, b"open again");
    next.expect_udp(b"open again");
    // A change that is under way ends before the wire is closed.
    drop(tokio::time::timeout(std::time::Duration::ZERO, network.set_policy(slot, Policy::Open)).await);
    let token = rest(&network, slot).await;
    drop(assert_as_new(&network, network.acquire_again(token).unwrap()).await);
    network.release(slot).wait().await.unwrap();
    network.close().await.unwrap();
}

/// Makes a tap stay without a descriptor, as it does for a program that opens it by name.
fn persist(tap: OwnedFd) {
    // SAFETY: the descriptor is open for the whole call, and this request takes a number, not a pointer.
    let result = unsafe { libc::ioctl(tap.as_raw_fd(), TUNSETPERSIST, 1 as libc::c_ulong) };
    assert_eq!(result, 0);
}

pub(crate) async fn a_tap_that_stays_is_renewed() {
    let network = open_bare("2e571").await;
    let lease = network.acquire().await.unwrap();
    let slot = lease.slot;
    let index = |network| async move { Network::enter(network, slot, || run("ip -o link show tap0")).await };
    persist(lease.tap);
    let before = index(&network).await.unwrap();
    let token = rest(&network, slot).await;
    let again = network.acquire_again(token).unwrap();
    let after = index(&network).await.unwrap();
    assert_ne!(before.split(':').next(), after.split(':').next(), "the same tap");
    drop(assert_as_new(&network, again).await);
    // The new one does not stay.
    let gone = move || !run("ip -o link").contains("tap0");
    assert!(network.enter(slot, gone).await.unwrap());
    network.release(slot).wait().await.unwrap();
    network.close().await.unwrap();
}

pub(crate) async fn old_tokens_do_nothing() {
    let network = open_bare("2e572").await;
    let slot = network.acquire().await.unwrap().slot;
    let first = rest(&network, slot).await;
    drop(network.acquire_again(first).unwrap());
    assert!(network.acquire_again(first).is_none());
    // While the slot is leased, and while it rests under another token.
    network.forget(first);
    assert_eq!(settled(&network).await.leased, 1);
    let second = rest(&network, slot).await;
    assert_ne!(first, second);
    assert!(network.acquire_again(first).is_none());
    network.forget(first);
    assert_eq!(settled(&network).await.resting, 1);
    // A slot that rests, one that nobody has and one beyond the pool: nothing rests under these.
    for slot in [slot, Slot::new(77), Slot::new(u32::MAX)] {
        let nothing = network.rest(slot);
        assert!(network.acquire_again(nothing).is_none());
        network.forget(nothing);
    }
    assert_eq!(settled(&network).await.resting, 1);
    let again = network.acquire_again(second).unwrap();
    assert_eq!(again.slot, slot);
    drop(assert_as_new(&network, again).await);
    network.release(slot).wait().await.unwrap();
    network.close().await.unwrap();
}

pub(crate) async fn forgotten_or_asked_for_too_early_it_is_removed() {
    let network = open_bare("2e573").await;
    let lease = network.acquire().await.unwrap();
    let token = rest(&network, lease.slot).await;
    assert!(exists(&lease.namespace));
    network.forget(token);
    assert!(network.acquire_again(token).is_none());
    network.forget(token);
    let stats = settled(&network).await;
    assert_eq!(stats.free, stats.capacity);
    assert!(!exists(&lease.namespace));

    // Forgotten or asked for at once, which is nearly always before it is ready.
    let (start, mut early) = (Instant::now(), 0);
    while early < 5 {
        assert!(start.elapsed() < TIMEOUT, "no wire was asked for early");
        let lease = network.acquire().await.unwrap();
        drop(lease.tap);
        let token = network.rest(lease.slot);
        if early % 2 == 0 {
            network.forget(token);
        } else if network.acquire_again(token).is_some() {
            network.release(lease.slot).wait().await.unwrap();
            continue;
        }
        early += 1;
        // Joins the removal.
        network.release(lease.slot).wait().await.unwrap();
        let stats = settled(&network).await;
        assert_eq!(stats.free, stats.capacity);
        assert!(!exists(&lease.namespace));
    }

    // One that cannot be made ready goes as well.
    let lease = network.acquire().await.unwrap();
    run(&format!("ip link delete p2e573v{}", lease.slot));
    let token = network.rest(lease.slot);
    eventually("its removal", || network.stats().free == network.stats().capacity).await;
    assert!(network.acquire_again(token).is_none());
    assert!(!exists(&lease.namespace));
    assert_eq!(network.stats().make_failures_total, 1);
    network.close().await.unwrap();

    // So does one that was found broken.
    let slot = Slot::new(5);
    let (network, report) = Network::open(config("2e573"), &[slot]).await.unwrap();
    assert_eq!(report.broken.len(), 1);
    let token = network.rest(slot);
    assert!(network.acquire_again(token).is_none());
    let stats = settled(&network).await;
    assert_eq!((stats.leased, stats.resting, stats.stuck), (0, 0, 0));
    network.close().await.unwrap();
}

pub(crate) async fn only_so_many_rest() {
    let network = open_bare("2e574").await;
    let mut leases = Vec::new();
    for _ in 0..RESTING_MAX + 2 {
        leases.push(network.acquire().await.unwrap());
    }
    let mut tokens = Vec::new();
    for lease in &leases[..RESTING_MAX] {
        tokens.push(rest(&network, lease.slot).await);
    }
    tokens.extend(leases[RESTING_MAX..].iter().map(|lease| network.rest(lease.slot)));
    let stats = settled(&network).await;
    assert_eq!((stats.resting as usize, stats.leased), (RESTING_MAX, 0));
    // The two that rested longest had to go.
    for (number, (lease, token)) in leases.iter().zip(&tokens).enumerate() {
        assert_eq!(exists(&lease.namespace), number >= 2, "{number}");
        assert_eq!(network.acquire_again(*token).is_some(), number >= 2, "{number}");
    }
    // All at once: those that were not ready in time count too.
    let tokens: Vec<_> = leases.iter().map(|lease| network.rest(lease.slot)).collect();
    assert_eq!(settled(&network).await.resting as usize, RESTING_MAX);
    tokens.into_iter().for_each(|token| network.forget(token));
    let stats = settled(&network).await;
    assert_eq!(stats.free, stats.capacity);
    network.close().await.unwrap();
}

pub(crate) async fn who_needs_a_slot_goes_first() {
    let pool = "10.99.0.0/28".parse().unwrap();
    let network = open(NetworkConfig { pool, ..config("2e575") }).await;
    let mut slots = Vec::new();
    for _ in 0..4 {
        slots.push(network.acquire().await.unwrap().slot);
    }
    assert!(matches!(network.acquire().await, Err(AcquireError::Exhausted { .. })));
    let oldest = rest(&network, slots[2]).await;
    let middle = rest(&network, slots[0]).await;
    // Not waited for: one that is not ready yet makes room as well.
    let newest = network.rest(slots[1]);
    for expected in [slots[2], slots[0], slots[1]] {
        assert_eq!(network.acquire().await.unwrap().slot, expected);
    }
    for token in [oldest, middle, newest] {
        assert!(network.acquire_again(token).is_none());
    }
    assert!(matches!(network.acquire().await, Err(AcquireError::Exhausted { .. })));
    // One that is about to leave is waited for, whether it comes to rest or goes.
    network.leave_soon(slots[3]);
    let (waited, rested) = tokio::join!(biased; network.acquire(), async { network.rest(slots[3]) });
    assert_eq!(waited.unwrap().slot, slots[3]);
    assert!(network.acquire_again(rested).is_none());
    network.leave_soon(slots[3]);
    let (waited, gone) =
        tokio::join!(biased; network.acquire(), async { network.release(slots[3]).wait().await });
    assert_eq!(waited.unwrap().slot, slots[3]);
    gone.unwrap();
    assert!(matches!(network.acquire().await, Err(AcquireError::Exhausted { .. })));
    // Several at once.
    for &slot in &slots[..3] {
        rest(&network, slot).await;
    }
    let (a, b, c) = tokio::join!(network.acquire(), network.acquire(), network.acquire());
    let mut got = [a, b, c].map(|lease| lease.unwrap().slot);
    got.sort_unstable();
    assert_eq!(got.to_vec(), {
        let mut wanted = slots[..3].to_vec();
        wanted.sort_unstable();
        wanted
    });
    for slot in slots {
        network.release(slot).wait().await.unwrap();
    }
    network.close().await.unwrap();
}

pub(crate) async fn closing_removes_what_rests() {
    let network = open(config("2e576")).await;
    let (first, second, third) = (
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    );
    let ready = rest(&network, first.slot).await;
    // One that is not ready yet.
    let early = network.rest(second.slot);
    network.close().await.unwrap();
    assert!(!exists(&first.namespace) && !exists(&second.namespace));
    assert!(network.acquire_again(ready).is_none() && network.acquire_again(early).is_none());
    network.forget(ready);
    // Too late: the sandbox's network stays as it is, for the next process.
    let late = network.rest(third.slot);
    assert!(network.acquire_again(late).is_none());
    assert!(exists(&third.namespace));

    let (next, report) = Network::open(config("2e576"), &[]).await.unwrap();
    assert_eq!(report.removed, [third.slot]);
    // Tokens of an earlier network are good for nothing, also where the slot rests again.
    let slot = next.acquire().await.unwrap().slot;
    rest(&next, slot).await;
    for token in [ready, early, late] {
        assert!(next.acquire_again(token).is_none());
        next.forget(token);
    }
    assert_eq!(next.stats().resting, 1);
    next.close().await.unwrap();
}

/// Prints how long things take; machines differ, so nothing is asserted.
pub(crate) async fn times() {
    let network = open_bare("2e577").await;
    let mut slot = network.acquire().await.unwrap().slot;
    let (mut renew, mut again) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        let start = Instant::now();
        let token = rest(&network, slot).await;
        renew.push(start.elapsed());
        let start = Instant::now();
        let lease = network.acquire_again(token).unwrap();
        again.push(start.elapsed());
        slot = lease.slot;
    }
    for (name, mut times) in [("rest until ready", renew), ("acquire again", again)] {
        times.sort_unstable();
        println!("    {name}: p50 {:?}, max {:?}", times[times.len() / 2], times[times.len() - 1]);
    }
    network.release(slot).wait().await.unwrap();
    network.close().await.unwrap();
}
