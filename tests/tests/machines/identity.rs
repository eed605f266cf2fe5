//! Every sandbox is somebody: what two machines of one snapshot must not share, and what a restored guest must have noticed.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use domain::lifecycle::Phase;
use network::{Policy, Slot};
use node::{CreateFrom, CreateRequest, NodeError};
use tests::{Guest, Lab, LabSettings, NAME_SERVER, in_lab, run, wait};

/// How far a guest's clock may be from ours, on a busy host.
const CLOCK_SECONDS_MAX: f64 = 2.0;

async fn expect_right_clock(guest: &Guest) -> Result<()> {
    let before = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    let there: f64 = guest.shell("date +%s.%N").await?.parse()?;
    let after = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    ensure!(
        there > before - CLOCK_SECONDS_MAX && there < after + CLOCK_SECONDS_MAX,
        "its clock says {there}, ours {before} to {after}"
    );
    Ok(())
}

#[test]
fn machines_of_one_snapshot_share_nothing_of_their_identity() -> Result<()> {
    in_lab(async |lab| {
        let parent = lab.create().await?;
        // Host keys are given to guests that run a server for them.
        parent.shell("mkdir -p /etc/ssh; touch /etc/ssh/ssh_host_ed25519_key").await?;
        // A program that has drawn random numbers before is no different afterwards.
        let (snapshot, _) = lab.node().snapshot(&parent).await?;
        let one = lab.create_from(&snapshot.id).await?;
        let two = lab.create_from(&snapshot.id).await?;
        let three = lab.fork(&parent, 1).await?.pop().context("a fork")?;
        let guests = [&parent, &one, &two, &three];
        // The kernel's own boot id is part of its memory and the same for all; nothing may take it for an identity.
        for question in [
            "head -c 32 /dev/urandom | od -An -tx1",
            "python3 -c 'import posix; print(posix.urandom(32).hex())'",
            "cat /proc/sys/kernel/random/uuid",
            "hostname",
            "cat /etc/hostname",
            "cat /etc/machine-id",
            "cat /sys/class/net/eth0/address",
            "ip -4 -o addr show eth0 | awk '{print $4}'",
        ] {
            let mut answers = BTreeSet::new();
            for guest in guests {
                answers.insert(guest.shell(question).await.with_context(|| question.to_owned())?);
            }
            ensure!(answers.len() == guests.len(), "`{question}` is answered alike: {answers:?}");
        }
        let mut keys = BTreeSet::new();
        for guest in [&one, &two, &three] {
            keys.insert(guest.shell("cat /etc/ssh/ssh_host_ed25519_key.pub").await?);
            let mode = guest.shell("stat -c %a /etc/ssh/ssh_host_ed25519_key").await?;
            ensure!(mode == "600", "the host key has mode {mode}");
        }
        ensure!(keys.len() == 3, "{keys:?}");
        for guest in guests {
            // Its name says nothing of its id, which is a secret.
            let name = guest.shell("hostname").await?;
            let letters = name.strip_prefix("sandbox-").with_context(|| name.clone())?;
            ensure!(letters.len() == 6 && !guest.id().as_str().starts_with(letters), "{name}");
            let found = guest.shell("cat /etc/hostname; grep 127.0.1.1 /etc/hosts").await?;
            ensure!(found == format!("{name}\n127.0.1.1 {name}"), "{found}");
            let key = guest.shell("cat /etc/ssh/ssh_host_ed25519_key.pub 2>/dev/null || true").await?;
            ensure!(!key.contains(guest.id().as_str()), "{key}");
            // It is the address the host gave this sandbox, and it knows the way out.
            let slot = guest.state().record.slot.context("it has no network")?;
            let given =
                lab.node().network().addresses(network::Slot::new(slot)).context("an unknown slot")?;
            let found = guest.shell("ip -4 -o addr show eth0 | awk '{print $4}' | cut -d/ -f1").await?;
            ensure!(found == given.ip.to_string(), "it uses {found}, not {}", given.ip);
            let gateway = guest.shell("ip -4 route show default | awk '{print $3}'").await?;
            ensure!(gateway == network::GATEWAY.to_string(), "its gateway is {gateway}");
        }
        lab.node().delete_snapshot(&snapshot.id)?;
        Ok(())
    })
}

#[test]
fn a_sandbox_that_sleeps_stays_who_it_is() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let question = "hostname; cat /etc/machine-id";
        let before = guest.shell(question).await?;
        let random = guest.shell("head -c 32 /dev/urandom | od -An -tx1").await?;
        guest.hibernate().await?;
        guest.wake().await?;
        ensure!(guest.shell(question).await? == before);
        ensure!(guest.shell("head -c 32 /dev/urandom | od -An -tx1").await? != random);
        Ok(())
    })
}

#[test]
fn clocks_are_right_after_every_way_back() -> Result<()> {
    in_lab(async |lab| {
        // The template itself was saved long ago.
        let guest = lab.create().await?;
        expect_right_clock(&guest).await?;
        // A clock that is far off is set right when the guest is restored.
        guest.shell("date -s '2001-02-03 04:05:06' > /dev/null").await?;
        let (snapshot, _) = lab.node().snapshot(&guest).await?;
        let child = lab.create_from(&snapshot.id).await?;
        expect_right_clock(&child).await.context("after create from a snapshot")?;
        guest.hibernate().await?;
        guest.wake().await?;
        expect_right_clock(&guest).await.context("after waking")?;
        let fork = lab.fork(&guest, 1).await?.pop().context("a fork")?;
        expect_right_clock(&fork).await.context("after a fork")?;
        lab.node().delete_snapshot(&snapshot.id)?;
        Ok(())
    })
}

/// A connection between two sockets of the guest over its own outside address, each end told what became of it.
const CONNECTION: &str = "import _socket as s,time\n\
    a=open('/run/address').read().strip()\n\
    l=s.socket(s.AF_INET,s.SOCK_STREAM); l.bind((a,0)); l.listen(1)\n\
    c=s.socket(s.AF_INET,s.SOCK_STREAM); c.connect(l.getsockname())\n\
    fd,_=l._accept(); p=s.socket(fileno=fd)\n\
    k=s.socket(s.AF_INET,s.SOCK_STREAM); k.bind(('127.0.0.1',0)); k.listen(1)\n\
    d=s.socket(s.AF_INET,s.SOCK_STREAM); d.connect(k.getsockname())\n\
    fd2,_=k._accept(); q=s.socket(fileno=fd2)\n\
    open('/run/connected','w').write('yes')\n\
    try:\n\
    \x20r=c.recv(1); o='closed' if not r else 'data'\n\
    except OSError as e: o='error %d' % e.errno\n\
    open('/run/outcome.new','w').write(o)\n\
    try:\n\
    \x20q.send(b'x'); d.settimeout(5); o='loopback '+d.recv(1).decode()\n\
    except OSError as e: o='loopback error %d' % e.errno\n\
    open('/run/loopback','w').write(o)\n\
    __import__('posix').rename('/run/outcome.new','/run/outcome')\n\
    time.sleep(1000)\n";

/// Its address; the connections are there when this returns.
async fn connect(guest: &Guest) -> Result<String> {
    guest.shell("ip -4 -o addr show eth0 | awk '{print $4}' | cut -d/ -f1 > /run/address").await?;
    let spec = guest_link::message::ProcessSpec::argv(["/usr/bin/python3", "-c", CONNECTION]);
    guest.link().await?.start_detached(spec).await?;
    guest.shell("for i in $(seq 200); do [ -s /run/connected ] && exit 0; sleep 0.1; done; exit 1").await?;
    ensure!(guest.shell("test -e /run/outcome; echo $?").await? == "1", "it broke by itself");
    guest.shell("cat /run/address").await
}

async fn expect_reset(guest: &Guest) -> Result<()> {
    let wait = "for i in $(seq 100); do [ -s /run/outcome ] && break; sleep 0.1; done; cat /run/outcome; echo; cat /run/loopback";
    let outcome = guest.shell(wait).await.context("its connection hangs")?;
    let (outside, inside) = outcome.split_once('\n').context("two outcomes")?;
    ensure!(outside.starts_with("error") || outside == "closed", "{outside}");
    ensure!(inside == "loopback x", "a connection within the guest was cut: {inside}");
    Ok(())
}

#[test]
fn a_sandbox_that_wakes_soon_finds_its_network_again() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let address = connect(&guest).await?;
        let slot = guest.state().record.slot;
        let network = lab.node().network();
        let resting = |count| {
            wait::until("its network rests", Duration::from_secs(60), move || {
                network.stats().resting == count
            })
        };
        guest.hibernate().await?;
        resting(1).await?;
        guest.wake().await?;
        ensure!(guest.state().record.slot == slot, "it has another network");
        let found = guest.shell("ip -4 -o addr show eth0 | awk '{print $4}' | cut -d/ -f1").await?;
        ensure!(found == address, "it uses {found}, not {address}");
        // The other ends of its connections have not slept.
        expect_reset(&guest).await?;
        // The way to it is there: it refuses what nobody listens for.
        let way = (address.parse::<std::net::Ipv4Addr>()?, 9).into();
        let knock = move || std::net::TcpStream::connect_timeout(&way, Duration::from_secs(20));
        let slot = network::Slot::new(slot.context("it has no network")?);
        let knocked = network.enter(slot, knock).await?.map(drop).map_err(|error| error.kind());
        ensure!(knocked == Err(std::io::ErrorKind::ConnectionRefused), "{knocked:?}");
        // One that does not come back leaves nothing.
        guest.hibernate().await?;
        resting(1).await?;
        guest.delete().await?;
        resting(0).await
    })
}

#[test]
fn connections_to_a_world_that_is_gone_are_reset() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        connect(&guest).await?;
        let child = lab.fork(&guest, 1).await?.pop().context("a child")?;
        expect_reset(&child).await.context("the child")?;
        // The parent was not restored: it keeps what it has.
        ensure!(
            guest.shell("test -e /run/outcome; echo $?").await? == "1",
            "the parent's connection was cut"
        );
        Ok(())
    })
}

#[test]
fn a_guest_that_does_not_confirm_is_not_kept() -> Result<()> {
    run(async || {
        let settings = LabSettings { guest_patience: Duration::from_millis(1), ..LabSettings::new("silent") };
        let lab = Lab::open(settings).await?;
        let clean = lab.settled_census().await?;
        let request = || CreateRequest::new(CreateFrom::Snapshot(lab.template().clone()));
        for _ in 0..3 {
            let created = lab.node().create(request()).await.map(|(sandbox, _)| sandbox);
            ensure!(matches!(created, Err(NodeError::GuestSilent { .. })), "{created:?}");
        }
        ensure!(lab.node().sandboxes().is_empty());
        lab.expect_census(&clean).await?;
        lab.remove().await
    })
}

#[test]
fn an_id_is_given_once() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let request = CreateRequest {
            id: Some(guest.id().clone()),
            ..CreateRequest::new(CreateFrom::Snapshot(lab.template().clone()))
        };
        ensure!(lab.node().create(request).await.is_err(), "one id was given twice");
        guest.shell("true").await?;
        Ok(())
    })
}

/// Who is next to a guest, on the host's side of its wire, hears it under the address it was given, and is heard.
async fn expect_network(lab: &Lab, guest: &Guest) -> Result<()> {
    let slot = Slot::new(guest.state().record.slot.context("it has no network")?);
    let given = lab.node().network().addresses(slot).context("an unknown slot")?;
    let open = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
    let socket = lab.node().network().enter(slot, open).await??;
    socket.set_read_timeout(Some(wait::scaled(Duration::from_secs(20))))?;
    let port = socket.local_addr()?.port();
    for to in [given.host, network::GATEWAY] {
        let here = socket.try_clone()?;
        let hear = tokio::task::spawn_blocking(move || {
            let (_, from) = here.recv_from(&mut [0; 16])?;
            here.send_to(b"heard", from)?;
            Ok::<_, std::io::Error>(from)
        });
        let said = guest
            .shell(&format!(
                "python3 -c \"import socket; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(20); \
                 s.sendto(b'here',('{to}',{port})); print(s.recv(16).decode())\""
            ))
            .await?;
        let from = hear.await??;
        ensure!(from.ip() == IpAddr::V4(given.ip), "what it sent to {to} came from {from}");
        ensure!(said == "heard", "{said}");
    }
    Ok(())
}

#[test]
fn a_guest_speaks_from_the_address_it_was_given() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        expect_network(lab, &guest).await?;
        let child = lab.fork(&guest, 1).await?.pop().context("a fork")?;
        expect_network(lab, &child).await?;
        guest.hibernate().await?;
        guest.wake().await?;
        expect_network(lab, &guest).await?;
        tests::leftovers::os::kill_process(guest.machine()?)?;
        wait::until("its end is noticed", Duration::from_secs(30), || guest.phase() == Phase::Died).await?;
        guest.start_cold().await?;
        expect_network(lab, &guest).await?;
        for guest in [guest, child] {
            guest.remove().await?;
        }
        Ok(())
    })
}

#[test]
fn guests_with_an_open_network_know_whom_to_ask_for_names() -> Result<()> {
    in_lab(async |lab| {
        let servers = "grep ^nameserver /etc/resolv.conf || echo none";
        let closed = lab.create().await?;
        ensure!(closed.shell(servers).await? == "none");
        let request = CreateRequest {
            network: Policy::Open,
            ..CreateRequest::new(CreateFrom::Snapshot(lab.template().clone()))
        };
        let (sandbox, _) = lab.node().create(request).await?;
        let open = Guest::new(sandbox);
        ensure!(open.shell(servers).await? == format!("nameserver {NAME_SERVER}"));
        // What somebody wrote there is theirs, in copies too.
        open.shell("echo nameserver 192.0.2.99 > /etc/resolv.conf").await?;
        let child = lab.fork(&open, 1).await?.pop().context("a fork")?;
        open.hibernate().await?;
        open.wake().await?;
        for guest in [&open, &child] {
            ensure!(guest.shell(servers).await? == "nameserver 192.0.2.99");
        }
        for guest in [open, child, closed] {
            guest.remove().await?;
        }
        Ok(())
    })
}
