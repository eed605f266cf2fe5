//! Leases, releases, restarts and crashes.

use std::{
    collections::{BTreeSet, HashSet},
    os::fd::AsFd,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use network::{
    AcquireError, Adopted, Broken, Damage, InterfaceName, Network, NetworkConfig, OpenError, Policy,
    SetPolicyError, Slot, Uplink,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::{
    guest::Guest,
    host::{PORT, WORLD_IP, World, config, eventually, inventory, run},
    keeper::{self, Keeper},
};

pub(crate) async fn slots_are_recycled_and_run_out() {
    let config = NetworkConfig { pool: "10.99.0.0/29".parse().unwrap(), ..config("5107") };
    let (network, _) = Network::open(config, &[]).await.unwrap();
    let first = network.acquire().await.unwrap();
    let second = network.acquire().await.unwrap();
    assert_ne!(first.slot, second.slot);
    assert!(matches!(network.acquire().await, Err(AcquireError::Exhausted { .. })));
    for round in 0..5 {
        // Not waited for: acquiring waits for the slot that is about to be free.
        let release = network.release(first.slot);
        let again = network.acquire().await.unwrap();
        assert_eq!(again.slot, first.slot, "round {round}");
        release.wait().await.unwrap();
        assert!(matches!(network.acquire().await, Err(AcquireError::Exhausted { .. })));
    }
    network.release(first.slot).wait().await.unwrap();
    network.release(second.slot).wait().await.unwrap();
    network.close().await.unwrap();
}

pub(crate) async fn release_can_be_repeated() {
    let (network, _) = Network::open(config("2e1ea5"), &[]).await.unwrap();
    let lease = network.acquire().await.unwrap();
    assert!(inventory().contains(&format!("namespace {}", lease.namespace)));
    network.set_policy(lease.slot, Policy::Open).await.unwrap();
    let (one, two) = (network.release(lease.slot), network.release(lease.slot));
    assert!(matches!(
        network.set_policy(lease.slot, Policy::Open).await,
        Err(SetPolicyError::NotLeased { .. })
    ));
    one.wait().await.unwrap();
    assert!(!inventory().contains(&format!("namespace {}", lease.namespace)));
    two.wait().await.unwrap();
    network.release(lease.slot).wait().await.unwrap();
    network.release(Slot::new(u32::MAX)).wait().await.unwrap();
    // The descriptor is still open here, but there is nothing behind it any more.
    assert!(rustix::io::write(&lease.tap, &[0; 64]).is_err());
    assert_eq!(network.stats().leased, 0);
    network.close().await.unwrap();
}

pub(crate) async fn sixty_four_at_once() {
    let (network, _) = Network::open(config("640000"), &[]).await.unwrap();
    let network = Arc::new(network);
    let start = Instant::now();
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let network = Arc::clone(&network);
            tokio::spawn(async move { network.acquire().await.unwrap() })
        })
        .collect();
    let mut leases = Vec::new();
    for task in tasks {
        leases.push(task.await.unwrap());
    }
    println!("    64 acquired at once in {:?}", start.elapsed());
    assert_eq!(leases.iter().map(|lease| lease.slot).collect::<HashSet<_>>().len(), 64);
    assert_eq!(leases.iter().map(|lease| lease.addresses.ip).collect::<HashSet<_>>().len(), 64);
    let start = Instant::now();
    let releases: Vec<_> = leases.iter().map(|lease| network.release(lease.slot)).collect();
    for release in releases {
        release.wait().await.unwrap();
    }
    println!("    64 released at once in {:?}", start.elapsed());
    network.close().await.unwrap();
}

pub(crate) async fn callers_who_go_away_lose_nothing() {
    let (network, _) = Network::open(NetworkConfig { prepared: 0, ..config("90a4a7") }, &[]).await.unwrap();
    let network = Arc::new(network);
    let mut leases = Vec::new();
    for _ in 0..8 {
        // Asked once and dropped; a quick machine may have a wire of an earlier round by then.
        let mut acquire = pin!(network.acquire());
        if let Poll::Ready(lease) = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            leases.push(lease.unwrap());
        }
    }
    eventually("the abandoned wires", || network.stats().making == 0).await;
    let stats = network.stats();
    assert_eq!(stats.leased as usize, leases.len());
    assert!(stats.ready > 0);
    assert_eq!(stats.leased + stats.ready + stats.free, stats.capacity);
    for lease in leases {
        network.release(lease.slot).wait().await.unwrap();
    }
    let lease = network.acquire().await.unwrap();
    // The change goes on, and the release waits for it.
    drop(tokio::time::timeout(Duration::ZERO, network.set_policy(lease.slot, Policy::Open)).await);
    network.release(lease.slot).wait().await.unwrap();
    network.close().await.unwrap();
}

pub(crate) async fn only_one_process_per_tag() {
    let (network, _) = Network::open(config("0123"), &[]).await.unwrap();
    assert!(matches!(Network::open(config("0123"), &[]).await, Err(OpenError::AlreadyOpen { .. })));
    let (other, _) = Network::open(config("01234"), &[]).await.unwrap();
    let (mine, theirs) = (network.acquire().await.unwrap(), other.acquire().await.unwrap());
    assert_ne!(mine.namespace, theirs.namespace);
    network.release(mine.slot).wait().await.unwrap();
    network.close().await.unwrap();
    assert!(inventory().contains(&format!("namespace {}", theirs.namespace)));
    other.release(theirs.slot).wait().await.unwrap();
    other.close().await.unwrap();
    other.close().await.unwrap();
    assert!(matches!(other.acquire().await, Err(AcquireError::Closed)));
    assert!(other.set_policy(theirs.slot, Policy::Open).await.is_err());
    let (network, _) = Network::open(config("0123"), &[]).await.unwrap();
    network.close().await.unwrap();
}

pub(crate) async fn bad_configuration_is_refused() {
    let missing = Uplink::Interface(InterfaceName::parse("nowhere0").unwrap());
    let refused = Network::open(NetworkConfig { uplink: missing, ..config("bad0") }, &[]).await;
    assert!(matches!(refused, Err(OpenError::Uplink(_))));
    let refused = Network::open(NetworkConfig { uplink: Uplink::DefaultRoute, ..config("bad0") }, &[]).await;
    assert!(matches!(refused, Err(OpenError::Uplink(network::UplinkError::NoDefaultRoute))));
    let refused = Network::open(NetworkConfig { nft: "/bin/false".into(), ..config("bad0") }, &[]).await;
    assert!(matches!(refused, Err(OpenError::Firewall(network::FirewallError::Refused { .. }))));
    let refused = Network::open(config("bad0"), &[Slot::new(16_384)]).await;
    assert!(matches!(refused, Err(OpenError::ClaimedOutsidePool { .. })));
    run("ip link add clash type veth peer name clash1");
    run("ip addr add 10.201.77.1/24 dev clash");
    let refused = Network::open(config("bad0"), &[]).await;
    assert!(matches!(refused, Err(OpenError::PoolInUse { interface, .. }) if interface == "clash"));
    run("ip link delete clash");
}

pub(crate) async fn a_killed_process_leaves_nothing() {
    let world = World::create();
    let before = inventory();
    let keeper = Keeper::start("dead");
    let leased = keeper.leased.clone();
    assert!(inventory().is_superset(&BTreeSet::from(["table inet pandastack_dead".to_owned()])));
    let refused = Network::open(world.config("dead"), &[]).await;
    assert!(matches!(refused, Err(OpenError::AlreadyOpen { .. })));
    let (_, vmm) = keeper.kill();

    // Someone else's things, with names that nearly match.
    run("ip netns add ps-dead0-1");
    run("ip netns add ps-dead-x");
    run("ip link add pdead0v1 type veth peer name pdead0w1");
    let theirs: BTreeSet<_> =
        ["namespace ps-dead0-1", "namespace ps-dead-x", "link pdead0v1", "link pdead0w1"]
            .map(str::to_owned)
            .into();

    let (network, report) =
        Network::open(NetworkConfig { prepared: 0, ..world.config("dead") }, &[]).await.unwrap();
    assert_eq!(report.removed.len(), 7, "two leased, one resting and four prepared");
    assert!(leased.iter().all(|slot| report.removed.contains(slot)));
    assert!(report.adopted.is_empty() && report.broken.is_empty() && report.stuck.is_empty());
    // Although the VMM still holds the tap of one of them.
    drop(vmm);
    let left: BTreeSet<_> = inventory().difference(&before).cloned().collect();
    let ours: Vec<_> = left.difference(&theirs).collect();
    assert!(
        matches!(&ours[..], [route, table] if route.starts_with("route unreachable 10.201.0.0/16 ")
        && *table == "table inet pandastack_dead"),
        "{ours:?}"
    );
    network.close().await.unwrap();
    assert_eq!(inventory().difference(&before).cloned().collect::<BTreeSet<_>>(), theirs);
    run("ip netns delete ps-dead0-1");
    run("ip netns delete ps-dead-x");
    run("ip link delete pdead0v1");
}

pub(crate) async fn killed_at_any_moment() {
    let world = World::create();
    let before = inventory();
    let mut removed = 0;
    for round in 0..20 {
        let mut child = keeper::churn("aa44");
        // Not a wait for something: the moment is what is being tried.
        tokio::time::sleep(Duration::from_millis(5 + 7 * round)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let (network, report) =
            Network::open(NetworkConfig { prepared: 0, ..world.config("aa44") }, &[]).await.unwrap();
        removed += report.removed.len();
        assert!(report.stuck.is_empty());
        network.close().await.unwrap();
        assert_eq!(inventory(), before, "round {round}");
    }
    println!("    {removed} leftovers removed after 20 kills");
}

pub(crate) async fn running_sandboxes_are_adopted() {
    let world = World::create();
    let (leased, vmm) = Keeper::start("ad09").kill();
    let (running, ended, never) = (leased[0], leased[1], Slot::new(999));

    let (network, report) = Network::open(world.config("ad09"), &[running, ended, never]).await.unwrap();
    assert_eq!(report.adopted, [Adopted { slot: running, policy: Policy::Open }]);
    assert_eq!(
        report.broken,
        [
            Broken { slot: ended, damage: Damage::TapMissing },
            Broken { slot: never, damage: Damage::NamespaceMissing },
        ]
    );
    assert_eq!(report.removed.len(), 5, "one resting and four prepared");
    assert_eq!((network.policy(running), network.policy(ended)), (Some(Policy::Open), None));

    // The sandbox's tap still leads to the world, and can be closed.
    let process = pidfd_open(Pid::from_raw(vmm.pid).unwrap(), PidfdFlags::empty()).unwrap();
    let tap = pidfd_getfd(process.as_fd(), 0, PidfdGetfdFlags::empty()).unwrap();
    let guest = Guest::new(tap, network.addresses(running).unwrap());
    guest.send_udp(WORLD_IP, PORT, b"still here");
    guest.expect_udp(b"still here");
    network.set_policy(running, Policy::Closed).await.unwrap();
    guest.send_udp(WORLD_IP, PORT, b"not here");
    guest.settle();
    assert_eq!(world.echo.sender_of(b"not here"), None);

    let lease = network.acquire().await.unwrap();
    assert!(![running, ended, never].contains(&lease.slot));
    // Closed with sandboxes running: their networks and the table stay.
    network.release(lease.slot).wait().await.unwrap();
    network.close().await.unwrap();
    assert!(inventory().contains("table inet pandastack_ad09"));
    let (network, report) = Network::open(world.config("ad09"), &[running]).await.unwrap();
    assert_eq!(report.adopted, [Adopted { slot: running, policy: Policy::Closed }]);
    assert_eq!(report.removed, [ended], "nobody claims it any more");
    drop((guest, vmm));
    network.release(running).wait().await.unwrap();
    network.close().await.unwrap();
}

pub(crate) async fn half_applied_policies_are_closed() {
    let world = World::create();
    let (leased, vmm) = Keeper::start("4a1f").kill();
    run(&format!("ip link set p4a1fv{} down", leased[0]));
    let (network, report) = Network::open(world.config("4a1f"), &leased[..1]).await.unwrap();
    assert_eq!(report.adopted, [Adopted { slot: leased[0], policy: Policy::Closed }]);
    let links = network.enter(leased[0], || run("ip -o link show veth0")).await.unwrap();
    assert!(!links.contains("UP"), "{links}");
    // A veth that someone removed is noticed when it is needed.
    run(&format!("ip link delete p4a1fv{}", leased[0]));
    let refused = network.set_policy(leased[0], Policy::Open).await;
    assert!(matches!(refused, Err(SetPolicyError::Apply { .. })));
    network.close().await.unwrap();
    let (network, report) = Network::open(world.config("4a1f"), &leased[..1]).await.unwrap();
    assert_eq!(report.broken, [Broken { slot: leased[0], damage: Damage::VethMissing }]);
    drop(vmm);
    network.release(leased[0]).wait().await.unwrap();
    network.close().await.unwrap();
}

/// Prints how long things take; machines differ, so nothing is asserted.
pub(crate) async fn times() {
    let world = World::create();
    let (network, _) = Network::open(world.config("71e5"), &[]).await.unwrap();
    let mut samples: [Vec<Duration>; 6] = Default::default();
    for _ in 0..30 {
        eventually("ready wires", || network.stats().ready >= 4).await;
        let [acquire, open, close, release, ..] = &mut samples;
        let lease = timed(acquire, network.acquire()).await.unwrap();
        timed(open, network.set_policy(lease.slot, Policy::Open)).await.unwrap();
        timed(close, network.set_policy(lease.slot, Policy::Closed)).await.unwrap();
        timed(release, network.release(lease.slot).wait()).await.unwrap();
    }
    network.close().await.unwrap();
    let (network, _) =
        Network::open(NetworkConfig { prepared: 0, ..world.config("71e5") }, &[]).await.unwrap();
    for _ in 0..30 {
        let lease = timed(&mut samples[4], network.acquire()).await.unwrap();
        timed(&mut samples[5], network.set_policy(lease.slot, Policy::Open)).await.unwrap();
        network.release(lease.slot).wait().await.unwrap();
    }
    network.close().await.unwrap();
    let names =
        ["acquire, prepared", "open", "close", "release", "acquire, cold", "open, nothing else under way"];
    for (name, mut times) in names.into_iter().zip(samples) {
        times.sort_unstable();
        println!("    {name}: p50 {:?}, max {:?}", times[times.len() / 2], times[times.len() - 1]);
    }
}

async fn timed<T>(samples: &mut Vec<Duration>, work: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let result = work.await;
    samples.push(start.elapsed());
    result
}
