//! A second process that opens a network and waits to be killed.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use network::{Network, Policy, Slot};

use crate::host::World;

/// First argument that turns the test program into the keeper.
pub(crate) const COMMAND: &str = "keep-a-network";

/// Second argument that makes it lease, rest and release without end.
const CHURN: &str = "churn";

/// Starts a process that opens the network and then leases, rests and releases without end.
pub(crate) fn churn(tag: &str) -> Child {
    let program = std::env::current_exe().unwrap();
    Command::new(program).args([COMMAND, tag, CHURN]).stdin(Stdio::null()).spawn().unwrap()
}

/// A keeper, and the process that stands for a VMM by holding the tap of its first lease.
pub(crate) struct Keeper {
    child: Child,
    pub(crate) leased: Vec<Slot>,
    pub(crate) vmm: Vmm,
}

/// A process that holds a tap as its standard input.
pub(crate) struct Vmm {
    pub(crate) pid: i32,
}

impl Drop for Vmm {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.pid).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

impl Keeper {
    /// Starts a process that opens the network, leases two slots and opens the first; a third one rests.
    pub(crate) fn start(tag: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([COMMAND, tag])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let numbers: Vec<i32> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let leased = numbers[1..].iter().map(|&number| Slot::new(number.cast_unsigned())).collect();
        Self { child, leased, vmm: Vmm { pid: numbers[0] } }
    }

    /// Kills the keeper without warning; its VMM lives on.
    pub(crate) fn kill(mut self) -> (Vec<Slot>, Vmm) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.leased, self.vmm)
    }
}

/// Never returns. What it starts is meant to outlive it.
#[expect(clippy::zombie_processes)]
pub(crate) fn run(arguments: &[String]) -> ! {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let config = World::config_of_uplink(&arguments[0]);
        let prepared = config.prepared;
        let (network, _) = Network::open(config, &[]).await.unwrap();
        while arguments.get(1).is_some_and(|argument| argument == CHURN) {
            let lease = network.acquire().await.unwrap();
            network.set_policy(lease.slot, Policy::Open).await.unwrap();
            network.rest(lease.slot);
            let lease = network.acquire().await.unwrap();
            network.release(lease.slot);
        }
        let first = network.acquire().await.unwrap();
        let second = network.acquire().await.unwrap();
        network.set_policy(first.slot, Policy::Open).await.unwrap();
        let (slot, tap) = (first.slot, first.tap);
        let vmm =
            Command::new("sleep").arg("600").stdin(Stdio::from(tap)).stdout(Stdio::null()).spawn().unwrap();
        let third = network.acquire().await.unwrap();
        network.rest(third.slot);
        crate::host::eventually("the prepared wires and the resting one", || {
            let stats = network.stats();
            stats.ready == prepared && stats.resting == 1
        })
        .await;
        println!("{} {slot} {}", vmm.id(), second.slot);
        // Until the parent kills this process, or is gone itself.
        drop(std::io::stdin().read_line(&mut String::new()));
    });
    std::process::exit(0)
}
