//! Machines outlive the process that started them; whoever comes next finds them, and nothing else.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use domain::SandboxId;
use domain::lifecycle::Phase;
use guest_link::message::ProcessSpec;
use node::{AttachMode, Node, NodeError, OpenError};
use rustix::process::Signal;
use serde_json::Value;
use tests::lab::ClosedLab;
use tests::leftovers::os::signal_process;
use tests::{Guest, Lab, LabSettings, cache, census, engine, program, run, wait};

/// How often the random node is killed; more for a long night.
const KILLS: &str = "PANDASTACK_TEST_KILLS";
const KILLS_DEFAULT: u32 = 15;
/// No more kills after this long.
const KILLING_TIMEOUT: Duration = Duration::from_secs(150);

/// The command line over a lab's data directory.
struct CommandLine {
    program: &'static Path,
    data_dir: PathBuf,
    addresses: String,
}

impl CommandLine {
    fn of(lab: &mut ClosedLab) -> Result<Self> {
        let addresses = lab.config().addresses.to_string();
        let program = tokio::task::block_in_place(program::path)?;
        Ok(Self { program, data_dir: lab.data_dir().to_owned(), addresses })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(["--output", "json", "local", "--addresses", &self.addresses]);
        command.arg("--data-dir").arg(&self.data_dir).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<Output> {
        self.command(arguments).output().context("run pandastack")
    }

    /// What it writes; a failure is an error.
    fn say(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?} ended with {}: {said}", output.status);
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        serde_json::from_str(&self.say(arguments)?).context("read what pandastack says")
    }
}

#[test]
fn the_command_line_finds_its_machines_again() -> Result<()> {
    run(async || {
        let mut lab = Lab::prepare(LabSettings::new("cli")).await?;
        let template = lab.template().to_string();
        let line = CommandLine::of(&mut lab)?;
        tokio::task::block_in_place(|| {
            let created = line.json(&["create", "--snapshot", &template])?;
            let id = created["id"].as_str().context("create tells an id")?.to_owned();
            let boot = line.say(&["exec", &id, "--", "cat", "/proc/sys/kernel/random/boot_id"])?;
            line.say(&["exec", &id, "--", "sh", "-c", "sleep 7777 > /dev/null 2>&1 & echo $! > /run/pid"])?;
            let failed = line.run(&["exec", &id, "--", "sh", "-c", "echo out; echo err >&2; exit 9"])?;
            ensure!(failed.status.code() == Some(9), "{failed:?}");
            ensure!(failed.stdout == b"out\n" && failed.stderr.ends_with(b"err\n"), "{failed:?}");

            // Killed in the middle of a command.
            let mut long =
                line.command(&["exec", &id, "--", "sh", "-c", "touch /run/begun; sleep 60"]).spawn()?;
            let begun = Instant::now();
            let prefix = census::tag(lab.data_dir()).context("a tag")?;
            while begun.elapsed() < Duration::from_secs(2) && !census::machines(&prefix)?.is_empty() {
                std::thread::sleep(Duration::from_millis(100));
            }
            long.kill()?;
            long.wait()?;
            ensure!(line.say(&["exec", &id, "--", "cat", "/proc/sys/kernel/random/boot_id"])? == boot);
            line.say(&["exec", &id, "--", "sh", "-c", "test -e /run/begun && kill -0 $(cat /run/pid)"])
                .context("a process of the guest is gone")?;

            line.say(&["hibernate", &id])?;
            let listed = line.json(&["list"])?;
            ensure!(listed[0]["phase"] == "hibernated", "{listed}");
            line.say(&["wake", &id])?;
            line.say(&["exec", &id, "--", "sh", "-c", "kill -0 $(cat /run/pid)"])?;
            let child = line.json(&["fork", &id])?["children"][0].as_str().context("a child")?.to_owned();
            line.say(&["exec", &child, "--", "sh", "-c", "kill -0 $(cat /run/pid)"])?;
            let unknown = line.run(&["wake", "aaaaaaaaaaaaaaaaaaaaaaaaaa"])?;
            ensure!(unknown.status.code() == Some(1), "{unknown:?}");
            line.say(&["delete", &id, &child])?;
            ensure!(line.json(&["list"])? == serde_json::json!([]));
            ensure!(census::machines(&prefix)?.is_empty() && census::namespaces(&prefix)?.is_empty());
            ensure!(census::groups(&prefix)?.is_empty(), "groups are left: {:?}", census::groups(&prefix)?);
            ensure!(census::entries(&lab.data_dir().join("pool/sandboxes"))?.is_empty());
            ensure!(census::entries(&lab.data_dir().join("pool/waiting"))?.is_empty());
            Ok(())
        })?;
        lab.remove()
    })
}

#[test]
fn a_data_directory_has_one_owner() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("owner")).await?;
        let config = lab.config().clone();
        let second = Node::open(config, |_| Ok(engine::engine()?)).await.map(drop);
        ensure!(matches!(second, Err(OpenError::Lock(_))), "{second:?}");
        let mut lab = lab.close().await;
        let line = CommandLine::of(&mut lab)?;
        let lab = lab.open().await?;
        let output = tokio::task::block_in_place(|| line.run(&["list"]))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{said}");
        ensure!(said.contains("in use by process"), "{said}");
        let told: Value = serde_json::from_str(&said).context("an error is one object")?;
        ensure!(told["hint"].as_str().is_some_and(|hint| hint.contains("--data-dir")), "{said}");
        lab.remove().await
    })
}

#[test]
fn a_closed_node_leaves_its_machines_running_and_finds_them() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings { kept_ready: 1, ..LabSettings::new("reopen") }).await?;
        let running = lab.create().await?.keep();
        let guest = Guest::new(running);
        guest.start_counter().await?;
        let paused = lab.create().await?;
        paused.shell("echo here > /run/here").await?;
        paused.pause().await?;
        let asleep = lab.create().await?;
        asleep.shell("echo here > /run/here").await?;
        asleep.hibernate().await?;
        let counted = guest.counter().await?;
        let machine = guest.machine()?;
        // These two map the memory of snapshots that nobody else sees any more.
        let forked = lab.fork(&guest, 1).await?.pop().context("a child")?;
        let (snapshot, _) = lab.node().snapshot(guest.sandbox()).await?;
        let made = lab.create_from(&snapshot.id).await?;
        lab.node().delete_snapshot(&snapshot.id)?;
        let ids = [guest, paused, asleep, forked, made].map(|guest| guest.keep().id().clone());
        let lab = lab.close().await;
        let tag = census::tag(lab.data_dir()).context("a tag")?;
        ensure!(census::machines(&tag)?.len() == 4, "a closed node left {:?}", census::machines(&tag)?);

        let lab = lab.open().await?;
        let found = ids.clone().map(|id| lab.node().sandbox(&id).map(Guest::new));
        let [Ok(guest), Ok(paused), Ok(asleep), Ok(forked), Ok(made)] = found else {
            bail!("a sandbox is gone")
        };
        ensure!(guest.machine()? == machine, "it is another machine");
        for guest in [&guest, &forked, &made] {
            ensure!(guest.counter().await? >= counted);
        }
        ensure!(paused.phase() == Phase::Paused && asleep.phase() == Phase::Hibernated);
        paused.resume().await?;
        asleep.wake().await?;
        for guest in [&paused, &asleep] {
            ensure!(guest.shell("cat /run/here").await? == "here");
        }
        // A machine found again can be saved like any other.
        let child = lab.fork(&guest, 1).await?.pop().context("a child")?;
        ensure!(child.counter().await? >= counted);
        for guest in [guest, paused, asleep, forked, made, child] {
            guest.remove().await?;
        }
        ensure!(lab.census()?.snapshots.len() == 1, "deleted snapshots are left: {:?}", lab.census()?);
        lab.remove().await
    })
}

#[test]
fn a_machine_that_ended_meanwhile_is_told() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("meanwhile")).await?;
        let guest = lab.create().await?;
        guest.shell("echo kept > /kept; sync").await?;
        let (machine, id) = (guest.machine()?, guest.keep().id().clone());
        let lab = lab.close().await;
        tests::leftovers::os::kill_process(machine)?;
        let lab = lab.open().await?;
        let guest = Guest::new(lab.node().sandbox(&id)?);
        ensure!(guest.phase() == Phase::Died);
        ensure!(guest.state().record.died.is_some());
        let tag = census::tag(lab.data_dir()).context("a tag")?;
        wait::until("its network is given back", Duration::from_secs(60), || {
            census::namespaces(&tag).is_ok_and(|found| found.is_empty())
        })
        .await?;
        guest.start_cold().await?;
        ensure!(guest.shell("cat /kept").await? == "kept");
        guest.remove().await?;
        lab.remove().await
    })
}

/// What the killed process has promised about a sandbox.
#[derive(Debug, Clone, Default)]
struct Promise {
    marked: bool,
    deleted: bool,
    /// The last thing begun and not answered.
    begun: Option<String>,
}

type Promises = BTreeMap<String, Promise>;

struct Killed {
    child: Child,
}

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs the random node, kills it after a while, and notes what it promised.
fn run_and_kill(lab: &mut ClosedLab, seed: u64, life: Duration, promises: &mut Promises) -> Result<()> {
    let program = cache::build_directory()?.join("node-process");
    let range = lab.config().addresses.to_string();
    let range = range.split('/').next().unwrap_or_default().to_owned();
    let mut child = Command::new(program)
        .arg(lab.data_dir())
        .args([&range, "random", &seed.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("start the random node")?;
    let output = child.stdout.take().context("it has no output")?;
    let mut killed = Killed { child };
    let reader = std::thread::spawn(move || -> Vec<String> {
        BufReader::new(output).lines().map_while(Result::ok).collect()
    });
    // Not a wait for anything: the moment of the kill is what is random.
    std::thread::sleep(life);
    killed.child.kill()?;
    killed.child.wait()?;
    let lines = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
    for line in lines {
        // The last line may be cut.
        let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(error) = value["error"].as_str() {
            bail!("the random node failed: {error}");
        }
        let Some(id) = value["id"].as_str() else { continue };
        let promise = promises.entry(id.to_owned()).or_default();
        promise.begun = value["begin"].as_str().map(str::to_owned);
        match value["done"].as_str() {
            Some("mark") => promise.marked = true,
            Some("delete") => promise.deleted = true,
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn a_killed_node_loses_and_leaks_nothing() -> Result<()> {
    let kills = std::env::var(KILLS).ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS_DEFAULT);
    run(async || {
        let mut lab = Lab::prepare(LabSettings::new("killed")).await?;
        let mut promises = Promises::new();
        let mut boots: BTreeMap<String, String> = BTreeMap::new();
        let begun = Instant::now();
        let mut done = 0;
        for round in 0..kills {
            if begun.elapsed() > KILLING_TIMEOUT {
                break;
            }
            let seed = u64::from(std::process::id()) * 1_000_003 + u64::from(round);
            // From the middle of opening to some way into the work.
            let life = Duration::from_millis(150 + seed.wrapping_mul(0x9e37_79b9) % 4000);
            tokio::task::block_in_place(|| run_and_kill(&mut lab, seed, life, &mut promises))?;
            lab = check_after_kill(lab, &mut promises, &mut boots)
                .await
                .with_context(|| format!("round {round}, seed {seed}, {} ms", life.as_millis()))?;
            done += 1;
        }
        ensure!(done >= kills.min(8), "only {done} kills in {:?}", begun.elapsed());
        let mut lab = lab.open().await?;
        for sandbox in lab.node().sandboxes() {
            sandbox.delete().await?;
        }
        let census = lab.settled_census().await?;
        ensure!(census.machines == 0 && census.namespaces == 0 && census.sandboxes.is_empty(), "{census:?}");
        ensure!(census.waiting.is_empty() && census.mounts == 1 && census.loop_devices <= 1, "{census:?}");
        for id in lab.kept_snapshots() {
            lab.node().delete_snapshot(&id)?;
        }
        // Forks' snapshots have no users left after a restart.
        lab = lab.close().await.open().await?;
        let left = census::snapshots(&lab.pool().join("snapshots"))?;
        ensure!(left.len() == 1, "{left:?}");
        lab.remove().await
    })
}

/// Opens the data directory after a kill and compares what is there with what was promised.
async fn check_after_kill(
    lab: ClosedLab,
    promises: &mut Promises,
    boots: &mut BTreeMap<String, String>,
) -> Result<ClosedLab> {
    let lab = lab.open().await?;
    let found: BTreeMap<String, node::Sandbox> =
        lab.node().sandboxes().into_iter().map(|sandbox| (sandbox.id().to_string(), sandbox)).collect();
    for (id, promise) in promises.iter() {
        match found.get(id) {
            None if promise.deleted || promise.begun.as_deref() == Some("delete") => {}
            None => bail!("sandbox {id} is gone: {promise:?}"),
            Some(_) if promise.deleted => bail!("sandbox {id} was deleted and is there"),
            Some(_) => {}
        }
    }
    promises.retain(|id, _| found.contains_key(id));
    for (id, sandbox) in &found {
        let phase = sandbox.state().record.phase;
        let settled = matches!(phase, Phase::Running | Phase::Paused | Phase::Hibernated);
        ensure!(
            settled,
            "sandbox {id} is {phase:?}: {:?}, {:?}",
            promises.get(id),
            sandbox.state().record.died
        );
    }
    expect_no_leaks(&lab, &found).await?;
    for volume in lab.node().volumes().list()? {
        let has_it = |sandbox: &&node::Sandbox| {
            sandbox.state().record.volumes.iter().any(|attached| attached.volume == volume.id)
        };
        let holders = found.values().filter(has_it);
        let holders: Vec<_> = holders.map(|sandbox| (sandbox.id().clone(), AttachMode::ReadWrite)).collect();
        ensure!(volume.attached_to == holders && holders.len() <= 1, "{volume:?} and {holders:?}");
    }
    for (id, sandbox) in &found {
        sandbox.wake().await.with_context(|| format!("wake {id}"))?;
        let link = sandbox.link().await?;
        let boot = tests::guest::shell(&link, "cat /proc/sys/kernel/random/boot_id").await?;
        // A fork has its parent's; what counts is that no sandbox is ever booted anew.
        let known = boots.entry(id.clone()).or_insert_with(|| boot.clone());
        ensure!(*known == boot, "sandbox {id} was booted anew");
        if promises.get(id).is_some_and(|promise| promise.marked) {
            let mine = tests::guest::shell(&link, "cat /mine /run/mine").await?;
            ensure!(mine == format!("{id}\n{id}"), "sandbox {id} holds {mine:?}");
            if !sandbox.state().record.volumes.is_empty() {
                let mine = tests::guest::shell(&link, "cat /mnt/mine").await?;
                ensure!(mine == *id, "the volume of sandbox {id} holds {mine:?}");
            }
        }
        promises.entry(id.clone()).or_default().begun = None;
    }
    Ok(lab.close().await)
}

/// Everything of this data directory on the host belongs to a sandbox the node knows.
async fn expect_no_leaks(lab: &Lab, found: &BTreeMap<String, node::Sandbox>) -> Result<()> {
    let with_machine = |sandbox: &&node::Sandbox| sandbox.state().record.phase.has_vm();
    let machines = found.values().filter(with_machine).count();
    let expect = async || {
        let census = lab.settled_census().await?;
        let sandboxes: Vec<_> = census.sandboxes.iter().cloned().collect();
        let known: Vec<_> = found.keys().cloned().collect();
        Ok(census.machines == machines
            && census.namespaces == machines
            && census.mounts == 1
            && census.waiting.is_empty()
            && sandboxes == known)
    };
    let outcome = wait::until_async("nothing is leaked", Duration::from_secs(60), expect).await;
    outcome
        .with_context(|| format!("{machines} machines of {:?}, found {:?}", found.keys(), lab.census()))?;
    for sandbox in found.values() {
        expect_no_extra_files(&lab.sandbox_directory(sandbox.id()), sandbox)?;
    }
    // Snapshots of forks are there only while somebody maps them.
    let used: Vec<SandboxId> = found.values().map(|sandbox| sandbox.id().clone()).collect();
    let visible = lab.node().snapshots().len();
    let files = census::snapshots(&lab.pool().join("snapshots"))?.len();
    ensure!(
        files <= visible + used.len(),
        "{files} snapshots on disk, {visible} known, {} users",
        used.len()
    );
    Ok(())
}

fn expect_no_extra_files(directory: &Path, sandbox: &node::Sandbox) -> Result<()> {
    let files = census::entries(directory)?;
    let memories =
        files.iter().filter(|name| name.starts_with("memory.") && name.matches('.').count() == 1).count();
    ensure!(memories <= 1, "sandbox {} has {files:?}", sandbox.id());
    ensure!(!files.iter().any(|name| name.contains(".tmp") || name.contains(".new")), "{files:?}");
    Ok(())
}

#[test]
fn a_guest_of_an_ended_machine_does_not_disturb_others() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("others")).await?;
        let guests = [lab.create().await?, lab.create().await?, lab.create().await?];
        let spec = ProcessSpec::shell("i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done");
        let busy = guests[0].exec(spec);
        let kill = async {
            tests::leftovers::os::kill_process(guests[1].machine()?)?;
            wait::until("it is known to have died", Duration::from_secs(60), || {
                guests[1].phase() == Phase::Died
            })
            .await
        };
        let (output, killed) = tokio::join!(busy, kill);
        killed?;
        ensure!(output?.stdout.split(|&byte| byte == b'\n').count() == 41);
        guests[2].shell("true").await?;
        for guest in guests {
            guest.remove().await?;
        }
        lab.remove().await
    })
}

#[test]
fn a_hung_machine_hangs_nobody() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("hung")).await?;
        let (guest, other) = (lab.create().await?, lab.create().await?);
        guest.shell("echo kept > /run/kept").await?;
        let machine = guest.machine()?;
        signal_process(machine, Signal::STOP)?;
        let bound = Duration::from_secs(45);
        let hibernated = tokio::time::timeout(bound, guest.hibernate()).await.context("it hangs")?;
        let told = matches!(hibernated, Err(NodeError::GuestSilent { .. } | NodeError::Control(_)));
        ensure!(told, "{hibernated:?}");
        ensure!(other.shell("echo fine").await? == "fine");
        // It was only slow: nothing is lost when it goes on.
        signal_process(machine, Signal::CONT)?;
        wait::until_async("it answers again", bound, async || {
            Ok(guest.shell("cat /run/kept").await.is_ok_and(|kept| kept == "kept"))
        })
        .await?;
        guest.hibernate().await.context("hibernate when it answers again")?;
        guest.wake().await?;
        ensure!(guest.shell("cat /run/kept").await? == "kept");
        // One that never goes on can be deleted.
        signal_process(guest.machine()?, Signal::STOP)?;
        tokio::time::timeout(bound, guest.remove()).await.context("it cannot be deleted")??;
        other.remove().await?;
        lab.remove().await
    })
}
