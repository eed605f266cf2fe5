//! Memory in pages of 2 MiB, for the engine that has it. All else that engines promise, they promise for such machines too.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use guest_link::client::Opening;
use machine::{ControlError, HugePagesError, MemoryOrigin, SaveTarget, StartError, VmRecord};

use super::on_demand::Source;
use super::{ANSWER_TIMEOUT, File, Fixture, Machine, Origin};
use crate::guest::{counter, shell, start_counter};
use crate::huge_pages::{Aside, used_by};
use crate::{engine, wait};

/// Reads all of what a guest keeps in its memory.
const CHECK: &str = "sha256sum < /run/much | cmp - /run/sum && cat /run/word";
/// Not made of huge pages.
const ODD_MIB: u32 = 1025;
/// More than a guest has touched before.
const TOUCH: &str = "head -c 100000000 /dev/zero > /run/more";

/// A machine with huge pages is saved, restored and forked like any other, and found again.
pub async fn a_machine_with_huge_pages_is_saved_and_restored(fixture: &Fixture) -> Result<()> {
    let Some(engine) = engine::with_huge_pages()? else {
        eprintln!("SKIPPED: the engine of this host has no huge pages");
        return Ok(());
    };
    ensure!(engine.fingerprint().fits(fixture.engine.fingerprint()).is_err(), "their states seem to fit");
    let total = fixture.shape.memory_bytes();
    // Two machines at a time.
    let aside = Aside::set(2 * total)?;
    let sized = |memory_mib| {
        Ok::<_, anyhow::Error>(Fixture { engine: Arc::clone(&engine), ..fixture.sized(memory_mib)? })
    };
    let huge = sized(fixture.shape.memory_mib())?;
    let refused = sized(ODD_MIB)?.boot().await.map(drop);
    ensure!(
        is_refused(refused, |error| matches!(error, HugePagesError::Size { .. })),
        "an odd size is taken"
    );

    let machine = huge.boot().await?;
    let link = machine.first_link().await?;
    let fill = "head -c 12000000 /dev/urandom > /run/much; sha256sum < /run/much > /run/sum; echo booted > /run/word";
    shell(&link, fill).await?;
    start_counter(&link).await?;
    let pid = machine.vm.record().process.pid;
    ensure!(used_by(pid)? > 12_000_000, "its memory is not in huge pages");
    let (state, _) = machine.save(&link, Origin::Booted).await?;
    machine.vm.kill().await;
    drop((link, machine));

    let parent = huge.restore(&state).await?;
    let link = parent.resume().await?;
    ensure!(shell(&link, CHECK).await? == "booted");
    ensure!(parent.vm.trace().is_some_and(|trace| !trace.pages().is_empty()), "nothing came on demand");
    let used = used_by(parent.vm.record().process.pid)?;
    ensure!(used > 12_000_000 && used <= total, "{used} bytes are in huge pages");
    shell(&link, "echo changed > /run/word").await?;
    let counted = counter(&link).await?;
    let (saved, changed) = parent.save(&link, Origin::Restored).await?;
    let written = changed.written_bytes;
    ensure!(written < total / 2, "{written} bytes were written, not what changed");
    eprintln!("{used} bytes in huge pages after a restore, {written} written by a save");

    // The parent goes on beside its child.
    parent.vm.resume().await?;
    link.resume();
    shell(&link, "echo parent > /run/word").await?;
    let child = huge.restore(&saved).await?;
    let of_child = child.resume().await?;
    ensure!(shell(&of_child, CHECK).await? == "changed");
    ensure!(counter(&of_child).await? >= counted, "the counter began anew");
    ensure!(shell(&link, CHECK).await? == "parent");
    if aside.before() == 0 {
        let refused = huge.restore(&saved).await.map(drop);
        ensure!(is_refused(refused, |error| matches!(error, HugePagesError::TooFew { .. })), "a third began");
    }

    drop(of_child);
    let record: VmRecord = serde_json::from_str(&serde_json::to_string(&child.vm.record())?)?;
    let Machine { vm, place, memory, disk, _end } = child;
    drop(vm);
    // A node without huge pages has no use for what it would save.
    let origin = || Ok::<_, std::io::Error>(MemoryOrigin::File(File::open(&saved.memory)?));
    let found = fixture.engine.attach(&record, &place, Some(origin()?)).await.context("attach")?;
    let devices = File::create(place.directory.join("refused"))?;
    let refused = found.save(SaveTarget { memory: None, devices }).await;
    ensure!(matches!(refused, Err(ControlError::Refused { .. })), "it was saved: {refused:?}");
    drop(found);
    let found = engine.attach(&record, &place, Some(origin()?)).await.context("attach")?;
    let child = Machine::new(found, place, memory, disk);
    let of_child = child.open_link(Opening::Reattach, wait::scaled(ANSWER_TIMEOUT)).await?;
    ensure!(shell(&of_child, CHECK).await? == "changed");
    parent.vm.kill().await;
    drop((link, parent));
    let (saved, _) = child.save(&of_child, Origin::Restored).await.context("save a machine found again")?;
    child.vm.kill().await;
    drop((of_child, child));

    // As from an archive, without its zeros. Then somebody else takes what is left.
    let last = huge.restore_on_demand(&saved, &Source::of(&saved)?).await?;
    let link = last.resume().await?;
    ensure!(shell(&link, CHECK).await? == "changed");
    aside.take_back()?;
    let (_, exit) = tokio::join!(
        tokio::time::timeout(wait::scaled(ANSWER_TIMEOUT), shell(&link, TOUCH)),
        tokio::time::timeout(wait::scaled(ANSWER_TIMEOUT), last.vm.exited()),
    );
    let reason = exit.context("the machine goes on")?.reason;
    ensure!(reason.contains("no free huge page"), "it ended with {reason:?}");
    Ok(())
}

fn is_refused(outcome: Result<()>, as_expected: impl Fn(&HugePagesError) -> bool) -> bool {
    let error = outcome.err();
    let refused = error.as_ref().and_then(|error| error.downcast_ref());
    matches!(refused, Some(StartError::HugePages(error)) if as_expected(error))
}
