//! The "machine" the tests run on: a network namespace of the test program's own, and a world beyond its uplink.

use std::{
    collections::BTreeSet,
    fs, io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsFd,
    process::Command,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use network::{InstanceTag, InterfaceName, NetworkConfig, Uplink};
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

/// How long a test waits for something that must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// Port of the services guests must or must not reach.
pub(crate) const PORT: u16 = 7777;
/// The host's address on its uplink.
pub(crate) const HOST_IP: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// A machine beyond the uplink.
pub(crate) const WORLD_IP: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// Where clouds keep their secrets; the world answers here too.
pub(crate) const METADATA_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

static MOUNTS_BEFORE: OnceLock<BTreeSet<String>> = OnceLock::new();

/// Moves the process, which must have one thread, into networks and mounts of its own.
pub(crate) fn leave_the_machine() {
    // SAFETY: the process has a single thread and shares no file descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
    MOUNTS_BEFORE.set(namespace_mounts()).unwrap();
    run("ip link set lo up");
}

/// Runs a command line that must succeed and returns what it prints.
pub(crate) fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every namespace, interface, firewall table and refusing route that is there.
pub(crate) fn inventory() -> BTreeSet<String> {
    let namespaces = fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .map(|entry| format!("namespace {}", entry.unwrap().file_name().into_string().unwrap()));
    let links = run("ip -o link")
        .lines()
        .map(|line| {
            let name = line.split(": ").nth(1).unwrap();
            format!("link {}", name.split('@').next().unwrap())
        })
        .collect::<Vec<_>>();
    let tables = run("nft list tables").lines().map(str::to_owned).collect::<Vec<_>>();
    // Routes that refuse a range.
    let routes =
        run("ip route show type unreachable").lines().map(|line| format!("route {line}")).collect::<Vec<_>>();
    namespaces.chain(links).chain(tables).chain(routes).filter(|thing| thing != "link lo").collect()
}

/// The mounts of named namespaces; those of the machine we left still show, under our own `/run`.
fn namespace_mounts() -> BTreeSet<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(" /run/netns/")).map(str::to_owned).collect()
}

/// Fails if anything is left on the host.
pub(crate) fn assert_clean() {
    assert_eq!(inventory(), BTreeSet::new());
    // Those of the machine we left may go at any time: other programs run there.
    let left: Vec<_> = namespace_mounts().difference(MOUNTS_BEFORE.get().unwrap()).cloned().collect();
    assert_eq!(left, Vec::<String>::new());
}

/// Removes whatever a failed case left, for the sake of the next.
pub(crate) fn sweep() {
    for thing in inventory() {
        let (kind, name) = thing.split_once(' ').unwrap();
        let line = match kind {
            "namespace" => format!("ip netns delete {name}"),
            "link" => format!("ip link delete {name}"),
            "route" => format!("ip route delete {name}"),
            _ => format!("nft delete table {}", name),
        };
        let mut words = line.split_whitespace();
        drop(Command::new(words.next().unwrap()).args(words).output());
    }
}

/// Settings for a test; without an uplink unless it is given one.
pub(crate) fn config(tag: &str) -> NetworkConfig {
    NetworkConfig::new(InstanceTag::parse(tag).unwrap())
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Datagrams, with who sent them.
type Received = Vec<(SocketAddr, Vec<u8>)>;

/// A UDP service that remembers what it got and echoes it.
pub(crate) struct Echo {
    received: Arc<Mutex<Received>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Listens on every address of the host, or of the named namespace.
    pub(crate) fn start(namespace: Option<&'static str>) -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (heard, stopped) = (Arc::clone(&received), Arc::clone(&stop));
        let (ready, wait) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            if let Some(name) = namespace {
                let file = fs::File::open(format!("/run/netns/{name}")).unwrap();
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            }
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            ready.send(()).unwrap();
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                match socket.recv_from(&mut buffer) {
                    Ok((length, from)) => {
                        heard.lock().unwrap().push((from, buffer[..length].to_vec()));
                        drop(socket.send_to(&buffer[..length], from));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        wait.recv().unwrap();
        Self { received, stop, thread: Some(thread) }
    }

    /// Who sent `payload`, if anyone has.
    pub(crate) fn sender_of(&self, payload: &[u8]) -> Option<SocketAddr> {
        self.received.lock().unwrap().iter().find(|(_, bytes)| bytes == payload).map(|(from, _)| *from)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A machine beyond the uplink `up0`, which is also the host's default route.
pub(crate) struct World {
    pub(crate) echo: Echo,
}

impl World {
    pub(crate) fn create() -> Self {
        fs::create_dir_all("/run/netns").unwrap();
        run("ip netns add world");
        run("ip link add up0 type veth peer name up1 netns world");
        run(&format!("ip addr add {HOST_IP}/24 dev up0"));
        run("ip link set up0 up");
        run(&format!("ip -n world addr add {WORLD_IP}/24 dev up1"));
        run(&format!("ip -n world addr add {METADATA_IP}/32 dev up1"));
        run("ip -n world link set up1 up");
        run("ip -n world link set lo up");
        run(&format!("ip route add default via {WORLD_IP}"));
        // The world knows the way back to guests, so that only our own walls keep their addresses from being seen.
        run(&format!("ip -n world route add 10.201.0.0/16 via {HOST_IP}"));
        Self { echo: Echo::start(Some("world")) }
    }

    /// Settings whose uplink is this world.
    pub(crate) fn config(&self, tag: &str) -> NetworkConfig {
        Self::config_of_uplink(tag)
    }

    /// The same, in a process that did not make the world.
    pub(crate) fn config_of_uplink(tag: &str) -> NetworkConfig {
        NetworkConfig { uplink: Uplink::Interface(InterfaceName::parse("up0").unwrap()), ..config(tag) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["link", "delete", "up0"]).status());
        drop(Command::new("ip").args(["netns", "delete", "world"]).status());
    }
}
