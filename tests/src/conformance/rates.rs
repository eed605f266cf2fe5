//! How fast a machine uses its disks.

use std::fs::File;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use guest_link::client::{Link, Opening};
use machine::Rates;

use super::{ANSWER_TIMEOUT, Fixture, Machine, Origin};
use crate::{engine, guest, wait};

const MIB_PER_SECOND: u64 = 1;
const MIB_WRITTEN: u64 = 5;
/// What an idle disk may carry at once is a second's worth, and engines count by whole requests: of the time that the rest takes
/// half is asked for, which is many times what it takes without a limit.
const SECONDS_MIN: u64 = (MIB_WRITTEN - MIB_PER_SECOND) / MIB_PER_SECOND / 2;

/// A machine has the rates of the node that starts it, or takes charge of it, whatever those were that it was saved with.
pub async fn a_disk_keeps_its_rate(fixture: &Fixture) -> Result<()> {
    let rates = Rates { disk_bytes: NonZeroU64::new(MIB_PER_SECOND << 20), ..Rates::default() };
    let limited = engine::with_rates(rates)?;
    let (prepared, place, disk) =
        fixture.prepare_on(&limited, fixture.booted_state().await?, Vec::new()).await?;
    let state = fixture.booted_state().await?;
    let vm = prepared.load(File::open(&state.devices)?).await.context("load")?;
    let machine = Machine::new(vm, place, state.memory.clone(), disk);
    let link = machine.resume().await?;
    let took = write(&link).await?;
    ensure!(took >= Duration::from_secs(SECONDS_MIN), "{MIB_WRITTEN} MiB took {took:?}");

    let (state, _) = machine.save(&link, Origin::Restored).await?;
    machine.vm.resume().await?;
    link.resume();
    let again = write(&link).await?;
    ensure!(again >= Duration::from_secs(SECONDS_MIN), "after a save {MIB_WRITTEN} MiB took {again:?}");
    machine.vm.kill().await;

    let machine = fixture.restore(&state).await?;
    let link = machine.resume().await?;
    let free = write(&link).await?;
    drop(link);
    let (record, Machine { vm, place, memory, disk, _end }) = (machine.vm.record(), machine);
    drop(vm);
    let vm = limited.attach(&record, &place, None).await.context("attach")?;
    let attached = Machine::new(vm, place, memory, disk);
    let link = attached.open_link(Opening::Reattach, wait::scaled(ANSWER_TIMEOUT)).await?;
    let caught = write(&link).await?;
    eprintln!(
        "{MIB_WRITTEN} MiB: {took:?}, {again:?} after a save, {free:?} without a limit, {caught:?} with one again"
    );
    ensure!(
        caught >= Duration::from_secs(SECONDS_MIN),
        "with a limit again {MIB_WRITTEN} MiB took {caught:?}"
    );
    attached.vm.kill().await;
    Ok(())
}

async fn write(link: &Link) -> Result<Duration> {
    let begun = Instant::now();
    guest::shell(link, &format!("dd if=/dev/zero of=/rate bs=1M count={MIB_WRITTEN} oflag=direct 2>&1"))
        .await?;
    Ok(begun.elapsed())
}
