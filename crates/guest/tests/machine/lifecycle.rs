//! One long life: booted, used, torn, silenced, saved, restored twice, stopped.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use guest_link::GuestPath;
use guest_link::client::{ExecLimits, Flush, Link, Opening, ProcessEvent};
use guest_link::message::{
    ENTROPY_BYTES, ExitStatus, FreshIdentity, GATEWAY, HostKey, Identity, Network, NetworkPast, Offsets,
    Parents, ProcessSpec, Terminal, TerminalSize, WriteMode, WriteSpec,
};
use tempfile::TempDir;

use crate::machine::{Machine, Start, copy, parts, within};

const LIMITS: ExecLimits = ExecLimits { stdout_bytes_max: 64 << 20, stderr_bytes_max: 1 << 20 };

pub(crate) fn identity(name: &str, last: u8) -> Identity {
    Identity {
        fresh: Some(FreshIdentity {
            machine_id: [last; 16],
            ssh_host_key: HostKey {
                private: format!("private {name}\n").into(),
                public: format!("public {name}\n").into(),
            },
        }),
        hostname: name.into(),
        entropy: [last; ENTROPY_BYTES],
        unix_time_ns: SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
        network: Some(Network {
            past: NetworkPast::Possible,
            mac: [6, 0, 0, 0, 0, last],
            address: Ipv4Addr::new(10, 0, 0, last),
            dns: vec![Ipv4Addr::new(10, 0, 0, last - 1)],
        }),
    }
}

async fn shell(link: &Link, line: &str) -> String {
    let output = within(link.exec(ProcessSpec::shell(line), b"", LIMITS)).await.unwrap();
    assert_eq!(
        output.exit.status,
        ExitStatus::Code(0),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

async fn timed<T>(what: &str, future: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let result = future.await;
    eprintln!("{what}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    result
}

fn path(text: &str) -> GuestPath {
    GuestPath::try_from(text).unwrap()
}

async fn upload(link: &Link, at: &str, data: &[u8]) {
    let how = WriteSpec {
        path: path(at),
        how: WriteMode::Replace,
        mode: None,
        owner: None,
        parents: Parents::Create,
    };
    let mut writer = link.write_file(how).unwrap();
    within(writer.write(data)).await.unwrap();
    assert_eq!(within(writer.finish()).await.unwrap(), data.len() as u64);
}

/// What a guest says about who it is.
const WHO: &str = "hostname; cat /etc/hostname /etc/machine-id /etc/ssh/ssh_host_ed25519_key /sys/class/net/eth0/address /etc/resolv.conf; \
    stat -c %a /etc/ssh/ssh_host_ed25519_key /etc/ssh/ssh_host_ed25519_key.pub; ls /etc/ssh; ip -o -4 addr show eth0 | awk '{print $4}'; \
    ip route | head -1 | sed 's, *$,,'; grep 127.0.1.1 /etc/hosts";

fn who(name: &str, last: u8) -> String {
    let id = format!("{last:02x}").repeat(16);
    let server = last - 1;
    format!(
        "{name}\n{name}\n{id}\nprivate {name}\n06:00:00:00:00:{last:02x}\nnameserver 10.0.0.{server}\n600\n644\n\
         ssh_host_ed25519_key\nssh_host_ed25519_key.pub\n10.0.0.{last}/32\ndefault via {GATEWAY} dev eth0 onlink\n127.0.1.1 {name}"
    )
}

const PEER: &str = "import socket,time
s=socket.create_server(('10.0.0.2',9000)); l=socket.create_server(('127.0.0.1',9001))
c=socket.create_connection(('10.0.0.2',9000)); p=s.accept()[0]
d=socket.create_connection(('127.0.0.1',9001)); q=l.accept()[0]
print('connected',flush=True)
try: c.recv(1); print('end')
except OSError as e: print('reset',e.errno,flush=True)
q.send(b'x'); print('loopback',d.recv(1).decode(),flush=True)
time.sleep(1000)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_life() {
    let Some(parts) = parts() else { return };
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    copy(&parts.join("disk"), &at("disk"));
    let mut machine =
        Machine::start(directory.path(), "first", &parts, &at("ram"), &at("disk"), &Start::Boot);
    let (link, _) = machine.open(Opening::Clean, None).await;
    eprintln!("booted: {:.1} s", machine.started.elapsed().as_secs_f64());
    shell(&link, "mkdir -p /etc/ssh && touch /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ed25519_key").await;
    timed("first identity", within(link.identify(identity("first", 2)))).await.unwrap();
    assert_eq!(shell(&link, WHO).await, who("first", 2));

    // PID 1 has the mounts programs expect, adopts orphans, and a terminal works.
    assert_eq!(shell(&link, "cat /proc/1/comm; stat -f -c %T /dev/shm /run /sys/fs/cgroup; echo x | tee /dev/stderr 2>/dev/null").await, "init\ntmpfs\ntmpfs\ncgroup2fs\nx");
    shell(&link, "(setsid sleep 0.1 &)").await;
    within(async {
        // No zombie stays.
        while shell(&link, "grep -l 'State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l").await != "0" {}
    })
    .await;
    let mut spec = ProcessSpec::shell("stty size; tty");
    spec.terminal = Some(Terminal { size: TerminalSize { columns: 80, rows: 25 }, term: "xterm".into() });
    assert_eq!(within(link.exec(spec, b"", LIMITS)).await.unwrap().stdout, b"25 80\r\n/dev/pts/0\r\n");

    measure(&link).await;

    // A host that dies in the middle of transfers, both ways.
    let ticker =
        within(link.start(ProcessSpec::shell("while :; do echo tick; sleep 0.05; done"))).await.unwrap();
    let ticker_id = ticker.id();
    // A machine takes one host at a time.
    drop((ticker, link));
    for round in 0..5 {
        let how = WriteSpec {
            path: path("/root/torn"),
            how: WriteMode::Replace,
            mode: None,
            owner: None,
            parents: Parents::Require,
        };
        let (victim, _) = machine.open(Opening::Reattach, None).await;
        let uploading = tokio::spawn({
            let victim = victim.clone();
            async move {
                let mut writer = victim.write_file(how).unwrap();
                while writer.write(&[7; 100_000]).await.is_ok() {}
            }
        });
        let flood = within(victim.start(ProcessSpec::shell("cat /dev/zero"))).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50 + 37 * round)).await;
        uploading.abort();
        let _ = uploading.await;
        within(victim.signal(flood.id(), 9, guest_link::message::SignalScope::Group)).await.unwrap();
        drop((flood, victim));
        let (link, _) = machine.open(Opening::Reattach, None).await;
        assert_eq!(shell(&link, "echo again; ls -A /root/ | grep -c torn || true").await, "again\n0");
    }
    let (link, _) = machine.open(Opening::Reattach, None).await;
    assert!(within(link.process(ticker_id)).await.unwrap().stdout.end > 0);

    // Silence around a pause: the same session goes on.
    let mut follow = within(link.attach(ticker_id, Offsets::NOW)).await.unwrap();
    for flush in [Flush::Nothing, Flush::FileSystems] {
        timed("quiesce", within(link.quiesce(flush))).await.unwrap();
        machine.qmp("stop", "{}");
        machine.qmp("cont", "{}");
        link.resume();
        assert!(matches!(within(follow.next()).await.unwrap(), ProcessEvent::Output { .. }));
    }
    let ticking = Instant::now();
    let ticks = machine.cpu_ticks();
    tokio::time::sleep(Duration::from_secs(2)).await;
    eprintln!(
        "cpu while one process ticks: {:.1} %",
        (machine.cpu_ticks() - ticks) as f64 / ticking.elapsed().as_secs_f64()
    );
    within(link.signal(ticker_id, 9, guest_link::message::SignalScope::Group)).await.unwrap();
    drop(follow);

    // A snapshot with open connections and a live session.
    let peer = within(link.start(ProcessSpec::argv(["python3", "-c", PEER]))).await.unwrap();
    let peer_id = peer.id();
    let mut peer = peer;
    assert!(
        matches!(within(peer.next()).await.unwrap(), ProcessEvent::Output { data, .. } if data == b"connected\n")
    );
    shell(&link, "true").await;
    within(link.trim()).await.unwrap();
    within(link.quiesce(Flush::FileSystems)).await.unwrap();
    machine.qmp("stop", "{}");
    machine.save(&at("devices"));
    drop((peer, link));
    drop(machine);

    for round in 0..3_u8 {
        for (name, last) in [("second", 6 + round * 16), ("third", 10 + round * 16)] {
            let name = &format!("{name}{round}");
            copy(&at("disk"), &at(name));
            let begun = Instant::now();
            let mut machine = Machine::start(
                directory.path(),
                name,
                &parts,
                &at("ram"),
                &at(name),
                &Start::Restore(&at("devices")),
            );
            let spawned = begun.elapsed();
            let resumed = Instant::now();
            machine.qmp("cont", "{}");
            let (link, confirmed) = machine.open(Opening::Clean, Some(identity(name, last))).await;
            let identified = resumed.elapsed();
            let confirmed = confirmed.unwrap();
            let first = Instant::now();
            assert_eq!(
                within(link.exec(ProcessSpec::argv(["/bin/true"]), b"", LIMITS)).await.unwrap().exit.status,
                ExitStatus::Code(0)
            );
            let first = first.elapsed();
            let shell_time = Instant::now();
            shell(&link, "echo hi").await;
            eprintln!(
                "restored {name}: spawn+load {spawned:.1?}, cont→identity confirmed {identified:.1?}, first exec of /bin/true {first:.1?}, then first sh -c {:.1?}",
                shell_time.elapsed()
            );
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
            assert!(now.abs_diff(confirmed.unix_time_ns) < 20_000_000_000);
            // Two sockets of one connection over the interface's own address.
            assert!(confirmed.connections_reset >= 2 && confirmed.ssh_host_keys, "{confirmed:?}");
            assert_eq!(shell(&link, WHO).await, who(name, last));
            let mut peer = within(link.attach(peer_id, Offsets { stdout: 10, stderr: 0 })).await.unwrap();
            let mut said = Vec::new();
            while !said.ends_with(b"loopback x\n") {
                match within(peer.next()).await.unwrap() {
                    ProcessEvent::Output { data, .. } => said.extend(data),
                    other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&said)),
                }
            }
            assert_eq!(String::from_utf8(said).unwrap(), "reset 103\nloopback x\n");
            let random = shell(&link, "od -An -N16 -tx1 /dev/urandom").await;
            std::fs::write(at(&format!("{name}.random")), random).unwrap();
            let ticks = machine.cpu_ticks();
            tokio::time::sleep(Duration::from_secs(1)).await;
            eprintln!("cpu while idle: {} % of a core", machine.cpu_ticks() - ticks);
            if round == 2 {
                timed("clean shutdown", async {
                    within(link.shutdown(300)).await.unwrap();
                    within(link.closed()).await;
                    machine.ended().await;
                })
                .await;
                let check = std::process::Command::new("e2fsck").arg("-fn").arg(at(name)).output().unwrap();
                assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
            }
            std::fs::remove_file(at(name)).unwrap();
        }
        let random = |name: &str| std::fs::read_to_string(at(&format!("{name}{round}.random"))).unwrap();
        assert_ne!(random("second"), random("third"));
    }
}

async fn measure(link: &Link) {
    let data = vec![0x5a; 32 << 20];
    for (what, rate) in [("up", 0), ("down", 1)] {
        let start = Instant::now();
        if rate == 0 {
            upload(link, "/dev/shm/bulk", &data).await;
        } else {
            let reader = within(link.read_file(path("/dev/shm/bulk"), 0, None)).await.unwrap();
            assert!(within(reader.read_to_end(64 << 20)).await.unwrap().unwrap() == data);
        }
        eprintln!("{what}: {:.1} MB/s", data.len() as f64 / 1e6 / start.elapsed().as_secs_f64());
    }
    shell(link, "rm /dev/shm/bulk").await;
    let mut times = Vec::new();
    let mut pings = Vec::new();
    for _ in 0..30 {
        let start = Instant::now();
        within(link.exec(ProcessSpec::argv(["/bin/true"]), b"", LIMITS)).await.unwrap();
        times.push(start.elapsed());
        let start = Instant::now();
        within(link.ping()).await.unwrap();
        pings.push(start.elapsed());
    }
    times.sort();
    pings.sort();
    eprintln!(
        "warm exec of /bin/true p50 {:.1?} best {:.1?}; ping p50 {:.1?} best {:.1?}",
        times[15], times[0], pings[15], pings[0]
    );
}
