//! Guests that mean harm: whatever they send, the node goes on and so do their neighbours.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use domain::lifecycle::Phase;
use guest_link::client::Link;
use guest_link::message::{Parents, ProcessSpec, WriteMode, WriteSpec};
use node::NodeError;
use tests::{Guest, Lab, cache, in_lab, wait};

/// How long the node may take for anything it is asked about an attacker: its own deadlines and some more.
const BOUND: Duration = Duration::from_secs(60);
/// How much this process may grow while a guest floods it.
const GROWTH_MIB_MAX: u64 = 64;
/// How often a link may break and be opened anew while we watch: a guest must not keep the node busy, nor fill its log.
const CHANGES_MAX: usize = 40;

/// Resident memory of this process.
fn resident_mib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no resident size")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? / 1024)
}

/// Puts the attacker into a guest. It is this host's program, and the guest is this host's Debian.
async fn upload(link: &Link) -> Result<()> {
    let program = std::fs::read(cache::build_directory()?.join("attacker"))?;
    let path = tests::guest::path("/attacker")?;
    let how = WriteMode::Replace;
    let spec = WriteSpec { path, how, mode: Some(0o755), owner: None, parents: Parents::Require };
    let mut writer = link.write_file(spec)?;
    writer.write(&program).await?;
    writer.finish().await?;
    Ok(())
}

/// What a caller hears of an attacked link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// The link breaks, and the node says so or opens it anew.
    Broken,
    /// It may as well go on.
    Anything,
}

async fn attack(lab: &'static Lab, how: &str, expect: Expect) -> Result<()> {
    let neighbour = lab.create().await?;
    let guest = lab.create().await?;
    let link = guest.link().await?;
    upload(&link).await?;
    let before = resident_mib()?;
    let mut state = guest.watch();
    let changes = tokio::spawn(async move {
        let mut count = 0;
        let counting = async {
            while state.changed().await.is_ok() {
                count += 1;
            }
        };
        // As long as the neighbour is watched below, and some more.
        drop(tokio::time::timeout(Duration::from_secs(5), counting).await);
        count
    });
    // Waits a moment, so that this command itself is answered.
    let line = format!("sleep 0.5; exec /attacker {how}");
    link.start_detached(ProcessSpec::shell(line)).await?;
    if expect == Expect::Broken {
        tokio::time::timeout(BOUND, link.closed()).await.context("nobody noticed")?;
    }
    for _ in 0..20 {
        let answered = tokio::time::timeout(BOUND, neighbour.shell("echo fine")).await;
        ensure!(answered.context("a neighbour does not answer")?? == "fine");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let grown = resident_mib()?.saturating_sub(before);
    ensure!(grown < GROWTH_MIB_MAX, "this process grew by {grown} MiB");
    let changes = changes.await?;
    ensure!(changes <= CHANGES_MAX, "its link was lost and opened {changes} times in a few seconds");
    expect_bounded(&guest).await?;
    let removed = tokio::time::timeout(BOUND, guest.remove()).await;
    removed.context("it cannot be deleted")??;
    ensure!(neighbour.shell("echo fine").await? == "fine");
    neighbour.remove().await
}

/// Everything that waits for the attacker's guest ends, well or badly.
async fn expect_bounded(guest: &Guest) -> Result<()> {
    let outcome = tokio::time::timeout(BOUND, guest.hibernate()).await;
    match outcome.context("hibernating an attacker hangs")? {
        Ok(_) => {
            ensure!(guest.phase() == Phase::Hibernated, "{:?}", guest.phase());
            let woken =
                tokio::time::timeout(BOUND, guest.wake()).await.context("waking an attacker hangs")?;
            ensure!(woken.is_ok() || guest.phase() == Phase::Died, "{woken:?} leaves it {:?}", guest.phase());
        }
        Err(NodeError::GuestSilent { .. } | NodeError::Guest { .. } | NodeError::Died { .. }) => {}
        Err(error) => bail!("hibernating an attacker: {error:?}"),
    }
    ensure!(matches!(guest.phase(), Phase::Running | Phase::Died), "{:?}", guest.phase());
    Ok(())
}

#[test]
fn garbage_on_the_link_harms_nobody_else() -> Result<()> {
    in_lab(async |lab| attack(lab, "garbage", Expect::Broken).await)
}

#[test]
fn frames_that_announce_too_much_harm_nobody_else() -> Result<()> {
    in_lab(async |lab| attack(lab, "giants", Expect::Broken).await)
}

#[test]
fn a_flood_of_zeros_on_the_link_harms_nobody_else() -> Result<()> {
    in_lab(async |lab| attack(lab, "zeros", Expect::Anything).await)
}

#[test]
fn a_guest_that_echoes_harms_nobody_else() -> Result<()> {
    in_lab(async |lab| attack(lab, "echo", Expect::Anything).await)
}

#[test]
fn a_guest_that_swallows_requests_harms_nobody_else() -> Result<()> {
    in_lab(async |lab| attack(lab, "steal", Expect::Anything).await)
}

#[test]
fn a_guest_whose_kernel_crashes_is_told() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        guest.shell("echo kept > /kept; sync").await?;
        let line = "sleep 0.2; echo c > /proc/sysrq-trigger";
        guest.link().await?.start_detached(ProcessSpec::shell(line)).await?;
        wait::until("its end is told", BOUND, || guest.phase() == Phase::Died).await?;
        guest.start_cold().await.context("start after a crash of its kernel")?;
        ensure!(guest.shell("cat /kept").await? == "kept");
        Ok(())
    })
}

#[test]
fn a_guest_that_eats_its_memory_keeps_its_agent() -> Result<()> {
    in_lab(async |lab| {
        let neighbour = lab.create().await?;
        let guest = lab.create().await?;
        let eat = "l=[]\nwhile True: l.append(bytearray(1000000))";
        let output = guest.exec(ProcessSpec::argv(["/usr/bin/python3", "-c", eat])).await?;
        ensure!(output.exit.status.shell_code() != 0, "{:?}", output.exit);
        guest.shell("true").await.context("the agent was killed instead")?;
        neighbour.shell("true").await?;
        Ok(())
    })
}
