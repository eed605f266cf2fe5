//! What a guest can reach, and above all what it cannot.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    os::fd::AsFd,
};

use network::{
    GATEWAY, InstanceTag, Lease, Neighbours, Network, NetworkConfig, Policy, Uplink, remove_remains,
};

use crate::{
    guest::{Guest, is_pong, udp_payload},
    host::{Echo, HOST_IP, METADATA_IP, PORT, WORLD_IP, World, config, eventually, run},
    keeper::Keeper,
};

/// The host's end of every veth pair.
const HOST_END: Ipv4Addr = Ipv4Addr::new(169, 254, 201, 1);

async fn open(config: NetworkConfig) -> Network {
    Network::open(config, &[]).await.unwrap().0
}

async fn guest(network: &Network) -> (network::Slot, Guest) {
    let Lease { slot, addresses, tap, .. } = network.acquire().await.unwrap();
    (slot, Guest::new(tap, addresses))
}

/// Sends to everything that must not be reached, and checks that nothing was.
fn assert_walled_in(attacker: &Guest, victim: &Guest, host: &Echo) {
    let targets = [
        HOST_IP,
        HOST_END,
        Ipv4Addr::LOCALHOST,
        METADATA_IP,
        victim.addresses.ip,
        victim.addresses.host,
        attacker.addresses.host,
        GATEWAY,
        Ipv4Addr::new(10, 201, 255, 254),
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
    ];
    for target in targets {
        attacker.send_ping(target);
        attacker.send_udp(target, PORT, format!("to {target}").as_bytes());
        let answers = attacker.settle();
        assert!(!answers.iter().any(|frame| is_pong(frame, target)), "{target} answered a ping");
        assert!(!answers.iter().any(|frame| udp_payload(frame).is_some()), "{target} answered a datagram");
        assert_eq!(
            host.sender_of(format!("to {target}").as_bytes()),
            None,
            "the host heard what was sent to {target}"
        );
    }
    victim.settle();
    assert!(victim.pending().is_empty(), "another guest heard something");
}

pub(crate) async fn closed_reaches_nothing() {
    let world = World::create();
    let host = Echo::start(None);
    let network = open(world.config("c105ed")).await;
    let (a, attacker) = guest(&network).await;
    let (b, victim) = guest(&network).await;

    assert_walled_in(&attacker, &victim, &host);
    for _ in 0..3 {
        attacker.send_ping(WORLD_IP);
        attacker.send_udp(WORLD_IP, PORT, b"out");
        assert!(!attacker.settle().iter().any(|frame| is_pong(frame, WORLD_IP)));
    }
    assert_eq!(world.echo.sender_of(b"out"), None);
    // An open neighbour changes nothing.
    network.set_policy(b, Policy::Open).await.unwrap();
    assert_walled_in(&attacker, &victim, &host);

    let routes = network.enter(a, || run("ip route show")).await.unwrap();
    assert!(!routes.contains("default"), "{routes}");
    network.release(a).wait().await.unwrap();
    network.release(b).wait().await.unwrap();
    network.close().await.unwrap();
}

pub(crate) async fn open_reaches_the_world_and_nothing_else() {
    let world = World::create();
    let host = Echo::start(None);
    let (network, report) =
        Network::open(NetworkConfig { uplink: Uplink::DefaultRoute, ..world.config("0be4") }, &[])
            .await
            .unwrap();
    assert_eq!(report.uplink.unwrap().as_str(), "up0");
    assert_eq!(report.host_changes.len(), 1);
    assert_eq!(report.host_changes[0].setting, "net/ipv4/conf/up0/forwarding");
    assert_eq!(fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap().trim(), "0");
    let (a, attacker) = guest(&network).await;
    let (b, victim) = guest(&network).await;

    for slot in [a, b] {
        network.set_policy(slot, Policy::Open).await.unwrap();
    }
    // Both are open, reach the world and are seen there under the host's address only.
    for (guest, payload) in [(&attacker, b"one"), (&victim, b"two")] {
        guest.send_ping(WORLD_IP);
        guest.expect_pong(WORLD_IP);
        guest.send_udp(WORLD_IP, PORT, payload);
        guest.expect_udp(payload);
        assert_eq!(world.echo.sender_of(payload).unwrap().ip(), IpAddr::V4(HOST_IP));
    }
    assert_walled_in(&attacker, &victim, &host);
    assert_eq!(world.echo.sender_of(format!("to {METADATA_IP}").as_bytes()), None);

    // Forged senders: a neighbour, the two addresses next to it, the host, a stranger.
    let near = [victim.addresses.ip, attacker.addresses.host, GATEWAY];
    let strangers = near.into_iter().chain([HOST_IP, Ipv4Addr::new(203, 0, 113, 9)]);
    for stranger in strangers.clone() {
        attacker.send_udp_as(stranger, WORLD_IP, PORT, format!("as {stranger}").as_bytes());
    }
    attacker.send_udp(WORLD_IP, PORT, b"after");
    attacker.expect_udp(b"after");
    for stranger in strangers {
        assert_eq!(world.echo.sender_of(format!("as {stranger}").as_bytes()), None, "{stranger}");
    }

    // The world cannot begin a conversation, nor can the host.
    run(&format!("ip -n world route replace {}/30 via {HOST_IP}", Ipv4Addr::new(10, 201, 0, 0)));
    let knock = |name: &'static str, to: Ipv4Addr| {
        let file = fs::File::open(name).unwrap();
        std::thread::spawn(move || {
            rustix::thread::move_into_link_name_space(file.as_fd(), None).unwrap();
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            // The host's own firewall may refuse this on the spot.
            drop(socket.send_to(b"knock", (to, PORT)));
        })
        .join()
        .unwrap();
    };
    knock("/run/netns/world", attacker.addresses.ip);
    knock("/proc/self/ns/net", attacker.addresses.ip);
    attacker.send_udp(WORLD_IP, PORT, b"later");
    attacker.expect_udp(b"later");
    attacker.settle();
    assert!(!attacker.pending().iter().any(|frame| udp_payload(frame) == Some(b"knock")));

    // And closed again.
    network.set_policy(a, Policy::Closed).await.unwrap();
    assert_eq!(network.policy(a), Some(Policy::Closed));
    attacker.send_udp(WORLD_IP, PORT, b"closed");
    attacker.settle();
    assert_eq!(world.echo.sender_of(b"closed"), None);
    assert_walled_in(&attacker, &victim, &host);
    victim.send_ping(WORLD_IP);
    victim.expect_pong(WORLD_IP);
    network.set_policy(a, Policy::Open).await.unwrap();
    attacker.send_udp(WORLD_IP, PORT, b"again");
    attacker.expect_udp(b"again");

    for slot in [a, b] {
        network.release(slot).wait().await.unwrap();
    }
    network.close().await.unwrap();
}

pub(crate) async fn without_uplink_nothing_leaves() {
    let world = World::create();
    let host = Echo::start(None);
    run("sysctl -qw net.ipv4.ip_forward=1");
    let network = open(config("ad0be")).await;
    let (a, attacker) = guest(&network).await;
    let (b, victim) = guest(&network).await;
    for slot in [a, b] {
        network.set_policy(slot, Policy::Open).await.unwrap();
    }
    assert_walled_in(&attacker, &victim, &host);
    for _ in 0..3 {
        attacker.send_udp(WORLD_IP, PORT, b"out");
        attacker.settle();
    }
    assert_eq!(world.echo.sender_of(b"out"), None);
    run("sysctl -qw net.ipv4.ip_forward=0");
    network.release(a).wait().await.unwrap();
    network.release(b).wait().await.unwrap();
    network.close().await.unwrap();
}

/// Two instances of one host, and what is left of a third: none is in the way of another, and all walls stand.
pub(crate) async fn instances_do_not_disturb_each_other() {
    let world = World::create();
    let host = Echo::start(None);
    // The first one's server was killed: its table, its namespaces and the machine of an open guest are still there.
    let (leased, vmm) = Keeper::start("dead01").kill();
    let first = open(world.config("f1257")).await;
    let elsewhere = NetworkConfig { pool: "10.202.0.0/16".parse().unwrap(), ..world.config("5ec0de") };
    let second = open(elsewhere).await;
    // The same range as the others, but not the same slots.
    let mut slots = Vec::new();
    while slots.len() < leased.len() {
        slots.push(first.acquire().await.unwrap().slot);
    }
    let (a, one) = guest(&first).await;
    let (b, other) = guest(&second).await;
    first.set_policy(a, Policy::Open).await.unwrap();
    second.set_policy(b, Policy::Open).await.unwrap();
    for (guest, payload) in [(&one, b"first"), (&other, b"other")] {
        guest.send_ping(WORLD_IP);
        guest.expect_pong(WORLD_IP);
        guest.send_udp(WORLD_IP, PORT, payload);
        guest.expect_udp(payload);
        assert_eq!(world.echo.sender_of(payload).unwrap().ip(), IpAddr::V4(HOST_IP));
    }
    assert_walled_in(&one, &other, &host);
    assert_walled_in(&other, &one, &host);

    // An address of the range that no guest has: the world would answer there, and hears of it from no side.
    let unused = Ipv4Addr::new(10, 201, 200, 2);
    run(&format!("ip -n world addr add {unused}/32 dev up1"));
    other.send_udp(unused, PORT, b"from a guest of another range");
    other.settle();
    one.send_udp(unused, PORT, b"from a guest of the range");
    one.settle();
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    assert!(socket.send_to(b"from the host", (unused, PORT)).is_err());
    one.send_udp(WORLD_IP, PORT, b"after all");
    one.expect_udp(b"after all");
    for payload in ["from a guest of another range", "from a guest of the range", "from the host"] {
        assert_eq!(world.echo.sender_of(payload.as_bytes()), None, "{payload}");
    }

    // Each is told apart, and so is what it has.
    let found = Neighbours::look().await.unwrap();
    let known: Vec<_> = found
        .instances()
        .iter()
        .map(|instance| {
            (instance.tag.as_str(), instance.pool.unwrap().to_string(), instance.is_open, instance.has_guests)
        })
        .collect();
    assert_eq!(
        known,
        [
            ("5ec0de", "10.202.0.0/16".to_owned(), true, true),
            ("dead01", "10.201.0.0/16".to_owned(), false, true),
            ("f1257", "10.201.0.0/16".to_owned(), true, true),
        ]
    );
    assert!(found.instances().iter().all(|instance| !instance.cuts_off_others));
    let free = found.free_pool(None, "10.201.0.0/16".parse().unwrap()).unwrap();
    assert_eq!(free.to_string(), "10.203.0.0/16");
    // Tables of earlier versions drop what goes to their range on every interface: such a one is told apart.
    run("nft add rule inet pandastack_dead01 forward ip daddr 10.201.0.0/16 drop");
    let found = Neighbours::look().await.unwrap();
    let harmful: Vec<_> = found.instances().iter().filter(|instance| instance.cuts_off_others).collect();
    assert!(matches!(&harmful[..], [dead] if dead.tag.as_str() == "dead01"), "{harmful:?}");
    first.close().await.unwrap();
    second.close().await.unwrap();
    drop(vmm);
    for tag in ["dead01", "f1257", "5ec0de"] {
        remove_remains(&InstanceTag::parse(tag).unwrap()).await.unwrap();
    }
    assert!(Neighbours::look().await.unwrap().instances().is_empty());
}

/// The control: take the firewall away and the very packets of the other cases arrive.
pub(crate) async fn without_the_table_these_tests_would_notice() {
    let world = World::create();
    let host = Echo::start(None);
    let network = open(world.config("c04401")).await;
    let (a, attacker) = guest(&network).await;
    let (b, victim) = guest(&network).await;
    for slot in [a, b] {
        network.set_policy(slot, Policy::Open).await.unwrap();
    }
    run("nft delete table inet pandastack_c04401");
    attacker.send_udp(victim.addresses.ip, PORT, b"to a guest");
    victim.expect_udp(b"to a guest");
    attacker.send_udp(HOST_IP, PORT, b"to the host");
    eventually("the datagram to the host", || host.sender_of(b"to the host").is_some()).await;
    network.release(a).wait().await.unwrap();
    network.release(b).wait().await.unwrap();
    network.close().await.unwrap();
}

pub(crate) async fn the_node_reaches_a_closed_guest() {
    let network = open(config("40de")).await;
    let (slot, guest) = guest(&network).await;
    let to = guest.addresses.ip;
    let socket =
        network.enter(slot, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap()).await.unwrap();
    // The socket was made inside; it is used from here.
    socket.send_to(b"hello", (to, 1)).unwrap();
    guest.expect_udp(b"hello");
    guest.send_udp(guest.addresses.host, PORT, b"hello back");
    let mut buffer = [0; 64];
    socket.set_read_timeout(Some(crate::host::TIMEOUT)).unwrap();
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from.ip()), (&b"hello back"[..], IpAddr::V4(to)));
    drop(socket);
    // Without the usual report, which would look like a failure.
    let panicked = network.enter(slot, || std::panic::resume_unwind(Box::new("wanted"))).await;
    assert!(matches!(panicked, Err(network::EnterError::Thread { .. })));
    network.release(slot).wait().await.unwrap();
    assert!(matches!(network.enter(slot, || ()).await, Err(network::EnterError::NotLeased { .. })));
    network.close().await.unwrap();
}

pub(crate) async fn a_new_namespace_inherits_no_router_settings() {
    run("sysctl -qw net.ipv4.ip_forward=1");
    run("sysctl -qw net.ipv4.conf.default.rp_filter=0");
    let network = open(config("5e77")).await;
    let (slot, _guest) = guest(&network).await;
    let settings = network
        .enter(slot, || {
            [
                "ip_forward",
                "conf/tap0/forwarding",
                "conf/veth0/forwarding",
                "conf/tap0/rp_filter",
                "conf/tap0/accept_redirects",
            ]
            .map(|key| fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).unwrap().trim().to_owned())
        })
        .await
        .unwrap();
    assert_eq!(settings, ["0", "0", "0", "1", "0"]);
    let links = network.enter(slot, || run("ip -6 addr")).await.unwrap();
    assert_eq!(links, "");
    run("sysctl -qw net.ipv4.ip_forward=0");
    network.release(slot).wait().await.unwrap();
    network.close().await.unwrap();
}
