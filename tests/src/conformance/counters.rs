//! What a machine says of its devices.

use anyhow::{Context, Result, ensure};
use guest_link::client::Opening;
use machine::{Counters, Vm};

use super::{ANSWER_TIMEOUT, Fixture, Machine, Origin};
use crate::{guest, wait};

const MIB_WRITTEN: u64 = 4;
const BYTES: u64 = MIB_WRITTEN << 20;

/// A machine counts what its disks carry, running or paused. What was counted is not part of its saved state.
pub async fn a_machine_counts_what_its_disks_carry(fixture: &Fixture) -> Result<()> {
    let machine = fixture.restore(fixture.booted_state().await?).await?;
    let begun = counters(&*machine.vm).await?;
    ensure!(begun.disk_written_bytes < BYTES, "it begins with {begun:?}");
    let link = machine.resume().await?;
    let write = format!("dd if=/dev/zero of=/counted bs=1M count={MIB_WRITTEN} oflag=direct 2>&1");
    guest::shell(&link, &write).await?;
    let written = counters(&*machine.vm).await?;
    let grown = written.minus(begun);
    ensure!(grown.disk_written_bytes >= BYTES && grown.disk_writes > 0, "{begun:?}, then {written:?}");
    guest::shell(&link, "dd if=/counted of=/dev/null bs=1M iflag=direct 2>&1").await?;
    let read = counters(&*machine.vm).await?;
    let grown = read.minus(written);
    ensure!(grown.disk_read_bytes >= BYTES && grown.disk_reads > 0, "{written:?}, then {read:?}");

    let (state, _) = machine.save(&link, Origin::Restored).await?;
    let paused = counters(&*machine.vm).await?;
    ensure!(paused.disk_written_bytes >= read.disk_written_bytes, "{read:?}, paused {paused:?}");
    machine.vm.kill().await;
    // Whatever is known of one that has ended, it is told without delay.
    let ended = tokio::time::timeout(wait::scaled(ANSWER_TIMEOUT), machine.vm.counters()).await;
    drop(ended.context("asking one that has ended takes for ever")?);

    let child = fixture.restore(&state).await?;
    let anew = counters(&*child.vm).await?;
    ensure!(anew.disk_written_bytes < BYTES, "a restored machine goes on from {anew:?}");
    let link = child.resume().await?;
    guest::shell(&link, &write).await?;
    drop(link);
    let (record, Machine { vm, place, memory, disk, _end }) = (child.vm.record(), child);
    ensure!(counters(&*vm).await?.disk_written_bytes >= BYTES);
    drop(vm);
    let vm = fixture.engine.attach(&record, &place, None).await.context("attach")?;
    let found = Machine::new(vm, place, memory, disk);
    let before = counters(&*found.vm).await?;
    ensure!(before.disk_written_bytes < BYTES, "one that was found tells again what was told: {before:?}");
    let link = found.open_link(Opening::Reattach, wait::scaled(ANSWER_TIMEOUT)).await?;
    guest::shell(&link, &write).await?;
    let after = counters(&*found.vm).await?;
    ensure!(after.minus(before).disk_written_bytes >= BYTES, "{before:?}, then {after:?}");
    found.vm.kill().await;
    Ok(())
}

async fn counters(vm: &dyn Vm) -> Result<Counters> {
    vm.counters().await?.context("it does not count")
}
