//! Bad files, processes that hang or end: a typed error, and nothing left.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use machine::{ControlError, StartError};
use rustix::process::Signal;

use super::Fixture;
use crate::leftovers::os::{kill_process, signal_process};
use crate::wait;

/// Longest that a command to a hung process may take to fail.
const HUNG_TIMEOUT: Duration = Duration::from_secs(15);

/// The end of a process is told, whoever ended it, and every further command says so.
pub async fn an_end_is_told(fixture: &Fixture) -> Result<()> {
    let machine = fixture.restore(fixture.booted_state().await?).await?;
    let waiting = tokio::time::timeout(Duration::from_millis(50), machine.vm.exited()).await;
    ensure!(waiting.is_err(), "a running machine is told to have ended");
    let process = machine.vm.record().process;
    kill_process(process)?;
    let exit = tokio::time::timeout(Duration::from_secs(60), machine.vm.exited()).await;
    let reason = exit.context("its end was not noticed")?.reason;
    ensure!(reason.contains("signal"), "{reason}");
    // Once more: at once.
    tokio::time::timeout(Duration::from_secs(60), machine.vm.exited())
        .await
        .context("its end was forgotten")?;
    for outcome in [machine.vm.pause().await, machine.vm.resume().await, machine.vm.state().await.map(drop)] {
        ensure!(outcome.is_err(), "a machine that ended obeyed");
    }
    machine.vm.kill().await;
    machine.vm.kill().await;

    let other = fixture.restore(fixture.booted_state().await?).await?;
    other.vm.kill().await;
    ensure!(fixture.processes(&other.place)? == 0, "a killed machine is still there");
    Ok(())
}

/// A machine process that was prepared and is not needed goes without a trace.
pub async fn a_discarded_machine_leaves_nothing(fixture: &Fixture) -> Result<()> {
    let (prepared, place, _) = fixture.prepare(fixture.booted_state().await?).await?;
    ensure!(prepared.is_alive());
    let process = prepared.record().process;
    prepared.discard().await;
    ensure!(fixture.processes(&place)? == 0);
    ensure!(!machine::ProcessIdentity::of(process.pid).is_ok_and(|now| now == process), "it was not reaped");

    let (prepared, _, _) = fixture.prepare(fixture.booted_state().await?).await?;
    kill_process(prepared.record().process)?;
    wait::until("its end shows", Duration::from_secs(60), || !prepared.is_alive()).await?;
    prepared.discard().await;
    Ok(())
}

/// Devices that are garbage, cut short or empty: an error, and the process is gone.
pub async fn damaged_devices_are_told(fixture: &Fixture) -> Result<()> {
    let state = fixture.booted_state().await?;
    let whole = fs::read(&state.devices)?;
    let mut flipped = whole.clone();
    for byte in flipped.iter_mut().take(64) {
        *byte ^= 0x5a;
    }
    let cases: [(&str, Vec<u8>); 4] = [
        ("garbage", vec![0xa5; 20_000]),
        ("cut short", whole[..whole.len() / 2].to_vec()),
        ("empty", Vec::new()),
        ("flipped", flipped),
    ];
    for (name, bytes) in cases {
        let (prepared, place, _) = fixture.prepare(state).await?;
        let path = place.directory.join("bad-devices");
        fs::write(&path, bytes)?;
        let started = Instant::now();
        let loaded = prepared.load(File::open(&path)?).await;
        let error = loaded.err().with_context(|| format!("{name} devices were loaded"))?;
        let typed = matches!(error, StartError::Ended { .. } | StartError::Control(_));
        ensure!(typed, "{name}: {error:?}");
        ensure!(started.elapsed() < HUNG_TIMEOUT, "{name}: it took {:?} to tell", started.elapsed());
        ensure!(fixture.processes(&place)? == 0, "{name}: the process is still there");
    }
    // The state itself is unharmed.
    let machine = fixture.restore(state).await?;
    ensure!(crate::guest::shell(&machine.resume().await?, "cat /word").await? == "booted");
    Ok(())
}

/// A process that does not answer any more is told within the deadline, and can be killed.
pub async fn a_hung_machine_is_told(fixture: &Fixture) -> Result<()> {
    let machine = fixture.restore(fixture.booted_state().await?).await?;
    signal_process(machine.vm.record().process, Signal::STOP)?;
    let started = Instant::now();
    let resumed = tokio::time::timeout(HUNG_TIMEOUT, machine.vm.resume()).await.context("no deadline")?;
    ensure!(matches!(resumed, Err(ControlError::Unresponsive { .. })), "{resumed:?}");
    ensure!(started.elapsed() > Duration::from_secs(1), "it was given no time");
    let record = machine.vm.record();
    let attached =
        tokio::time::timeout(HUNG_TIMEOUT, fixture.engine.attach(&record, &machine.place, None)).await;
    ensure!(attached.context("no deadline")?.is_err(), "a hung machine was taken charge of");
    tokio::time::timeout(HUNG_TIMEOUT, machine.vm.kill()).await.context("a hung machine cannot be killed")?;
    ensure!(fixture.processes(&machine.place)? == 0);
    Ok(())
}

/// Files that do not fit: an error before anything runs, or a process that ends and says why.
pub async fn what_is_not_there_is_told(fixture: &Fixture) -> Result<()> {
    let state = fixture.booted_state().await?;
    let (mut plan, _) = fixture.plan(state, Vec::new())?;
    let short = plan.place.directory.join("short-memory");
    fs::write(&short, vec![0; 4096])?;
    fs::set_permissions(&short, std::os::unix::fs::PermissionsExt::from_mode(0o444))?;
    plan.memory = machine::MemoryOrigin::File(File::open(&short)?);
    let place = plan.place.clone();
    let prepared = fixture.engine.prepare(plan).await;
    ensure!(prepared.is_err(), "memory of the wrong size was taken");
    ensure!(fixture.processes(&place)? == 0);

    let (mut plan, _) = fixture.plan(state, Vec::new())?;
    fs::remove_dir_all(&plan.place.directory)?;
    plan.place.uid += 1;
    let place = plan.place.clone();
    let prepared = fixture.engine.prepare(plan).await;
    let error = prepared.err().context("a machine without a directory was started")?;
    ensure!(matches!(error, StartError::Host { .. }), "{error:?}");
    ensure!(fixture.processes(&place)? == 0);
    Ok(())
}
