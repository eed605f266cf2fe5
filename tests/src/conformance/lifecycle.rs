//! Booting, saving, restoring, finding again.

use anyhow::{Context, Result, ensure};
use guest_link::client::Opening;
use machine::{AttachError, VmRecord, VmState};

use super::{ANSWER_TIMEOUT, Fixture, Machine, Origin};
use crate::guest::{counter, shell};

/// A kernel boots and its guest answers on the link.
pub async fn a_guest_boots_and_answers(fixture: &Fixture) -> Result<()> {
    let machine = fixture.boot().await?;
    ensure!(machine.vm.state().await? == VmState::Running);
    let link = machine.first_link().await?;
    ensure!(shell(&link, "id -u; uname -s").await? == "0\nLinux");
    // When one connection is gone the next one is served.
    drop(link);
    let second = machine.open_link(Opening::Reattach, ANSWER_TIMEOUT).await?;
    ensure!(shell(&second, "echo again").await? == "again");
    machine.vm.kill().await;
    Ok(())
}

/// Pausing and resuming can be repeated, and the guest goes on where it was.
pub async fn pausing_and_resuming_can_be_repeated(fixture: &Fixture) -> Result<()> {
    let machine = fixture.restore(fixture.booted_state().await?).await?;
    ensure!(machine.vm.state().await? == VmState::Paused, "a loaded machine runs");
    let link = machine.resume().await?;
    machine.vm.resume().await.context("resume what runs")?;
    for _ in 0..3 {
        machine.vm.pause().await?;
        machine.vm.pause().await.context("pause what is paused")?;
        ensure!(machine.vm.state().await? == VmState::Paused);
        machine.vm.resume().await?;
        ensure!(machine.vm.state().await? == VmState::Running);
        ensure!(shell(&link, "cat /run/word").await? == "booted");
    }
    Ok(())
}

/// A booted machine's state can be restored many times at once; each goes on by itself.
pub async fn a_booted_machine_is_saved_and_restored_many_times(fixture: &Fixture) -> Result<()> {
    let state = fixture.booted_state().await?;
    let (one, two) = tokio::try_join!(fixture.restore(state), fixture.restore(state))?;
    let (link_one, link_two) = tokio::try_join!(one.resume(), two.resume())?;
    for link in [&link_one, &link_two] {
        ensure!(shell(link, "cat /run/word /word").await? == "booted\nbooted");
        let before = counter(link).await?;
        ensure!(counter(link).await? >= before);
    }
    shell(&link_one, "echo one > /run/word; echo one > /word; sync").await?;
    ensure!(
        shell(&link_two, "cat /run/word /word").await? == "booted\nbooted",
        "machines of one state share it"
    );
    let third = fixture.restore(state).await?;
    let link = third.resume().await?;
    ensure!(shell(&link, "cat /run/word /word").await? == "booted\nbooted", "a machine wrote to its base");
    Ok(())
}

/// A restored machine can be saved and restored again, and so can that one.
pub async fn a_restored_machine_is_saved_and_restored(fixture: &Fixture) -> Result<()> {
    let mut state = fixture.booted_state().await?.clone();
    let mut machines: Vec<Machine> = Vec::new();
    for (generation, expected) in ["booted", "child", "grandchild"].into_iter().enumerate() {
        let machine = fixture.restore(&state).await?;
        let link = machine.resume().await?;
        ensure!(shell(&link, "cat /run/word /word").await? == format!("{expected}\n{expected}"));
        let counted = counter(&link).await?;
        let next = ["child", "grandchild", "last"][generation];
        // Not synced: the disk alone does not have it, memory and disk together do.
        shell(&link, &format!("echo {next} > /run/word; echo {next} > /word")).await?;
        let (saved_state, saved) = machine.save(&link, Origin::Restored).await?;
        ensure!(!saved.changed.is_empty() && saved.written_bytes > 0, "{saved:?}");
        let total = fixture.shape.memory_bytes();
        ensure!(saved.written_bytes < total, "all {total} bytes were written, not what changed");
        ensure!(saved.changed.iter().all(|range| range.start < range.end && range.end <= total), "{saved:?}");
        // The saved machine goes on.
        machine.vm.resume().await?;
        link.resume();
        ensure!(counter(&link).await? >= counted, "the saved machine lost its memory");
        state = saved_state;
        machines.push(machine);
    }
    Ok(())
}

/// More memory than lies below the addresses of devices, so that a guest has it in two pieces.
const LARGE_MIB: u32 = 4096;
/// What lies below them at most.
const BELOW_BYTES: u64 = 3 << 30;

/// All of a large machine's memory is saved, wherever its guest has it.
pub async fn a_large_machine_is_saved_and_restored(fixture: &Fixture) -> Result<()> {
    let large = fixture.sized(LARGE_MIB)?;
    let machine = large.restore(large.booted_state().await?).await?;
    let link = machine.resume().await?;
    shell(&link, "head -c 20000000 /dev/urandom > /run/much; sha256sum < /run/much > /run/sum").await?;
    let (state, saved) = machine.save(&link, Origin::Restored).await?;
    machine.vm.kill().await;
    // A kernel takes what lies above first.
    let above: u64 =
        saved.changed.iter().map(|range| range.end.saturating_sub(range.start.max(BELOW_BYTES))).sum();
    ensure!(above >= 20_000_000, "only {above} bytes changed above: {saved:?}");
    let child = large.restore(&state).await?;
    let link = child.resume().await?;
    shell(&link, "sha256sum < /run/much | cmp - /run/sum && cat /run/word").await?;
    counter(&link).await?;
    child.vm.kill().await;
    Ok(())
}

/// Hosts that follow each other.
const HOSTS: usize = 200;

/// A record leads to the machine again, and never to another process.
pub async fn a_machine_is_found_again(fixture: &Fixture) -> Result<()> {
    let machine = fixture.restore(fixture.booted_state().await?).await?;
    let link = machine.resume().await?;
    shell(&link, "echo mine > /run/mine").await?;
    drop(link);
    let record = machine.vm.record();
    let text = serde_json::to_string(&record)?;
    let read: VmRecord = serde_json::from_str(&text)?;
    ensure!(read == record);
    // As after the end of a node process: nobody else is connected.
    let Machine { vm, place, memory, disk, _end } = machine;
    drop(vm);
    let found = fixture.engine.attach(&read, &place, None).await.context("attach")?;
    ensure!(found.state().await? == VmState::Running);
    let again = Machine::new(found, place.clone(), memory, disk);
    let mut link = again.open_link(Opening::Reattach, ANSWER_TIMEOUT).await?;
    // One host after the other, each before the guest can have heard that the last one went.
    for round in 0..HOSTS {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, link.ping()).await;
        answer.with_context(|| format!("host {round} is not served"))??;
        drop(link);
        link = again.open_link(Opening::Reattach, ANSWER_TIMEOUT).await?;
    }
    ensure!(shell(&link, "cat /run/mine").await? == "mine");
    let (state, _) = again.save(&link, Origin::Restored).await.context("save a machine found again")?;
    let child = fixture.restore(&state).await?;
    ensure!(shell(&child.resume().await?, "cat /run/mine").await? == "mine");

    let mut reused = record.clone();
    reused.process.started_ticks += 1;
    let refused = fixture.engine.attach(&reused, &place, None).await;
    ensure!(matches!(refused, Err(AttachError::Gone)), "a process with the same number was taken for it");
    ensure!(again.vm.state().await.is_ok(), "a refused attachment disturbed the machine");
    again.vm.kill().await;
    let refused = fixture.engine.attach(&record, &place, None).await;
    ensure!(matches!(refused, Err(AttachError::Gone)), "a machine that ended was found");
    Ok(())
}
