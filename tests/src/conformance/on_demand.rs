//! Memory that comes on demand, from a source that can be told to wait or to fail. Engines that do not take it promise nothing here.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use guest_link::client::Opening;
use machine::{AttachError, LazyMemory, MemoryOrigin, Saved, VmRecord, VmState};
use memory::pages::Trace;
use memory::stream::{CHUNK_BYTES, Chunk, ChunkSource, FetchError, Index, PageMap, pack};
use tokio::sync::watch;

use super::{ANSWER_TIMEOUT, Fixture, Machine, Origin, State};
use crate::guest::{counter, shell};
use crate::wait;

/// Reads all of what a guest keeps in its memory.
const CHECK: &str = "sha256sum < /run/much | cmp - /run/sum && cat /run/word";

/// What a source does with those who ask it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Gives,
    Waits,
    Fails,
}

/// The chunks of a saved memory.
pub(super) struct Source {
    index: Index,
    blob: Vec<u8>,
    mood: watch::Sender<Mood>,
    /// How many wait.
    waiting: watch::Sender<usize>,
}

impl Source {
    pub(super) fn of(state: &State) -> Result<Arc<Self>> {
        let mut blob = Vec::new();
        let index =
            tokio::task::block_in_place(|| pack(&File::open(&state.memory)?, &mut blob).context("pack"))?;
        Ok(Arc::new(Self {
            index,
            blob,
            mood: watch::Sender::new(Mood::Gives),
            waiting: watch::Sender::new(0),
        }))
    }

    fn origin(self: &Arc<Self>) -> LazyMemory {
        LazyMemory { source: Arc::clone(self) as Arc<dyn ChunkSource>, trace: Trace::default() }
    }

    /// Completes when somebody waits.
    async fn is_waited_for(&self) {
        // Cannot fail: the sender is here.
        drop(self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await);
    }
}

#[async_trait]
impl ChunkSource for Source {
    fn length(&self) -> u64 {
        self.index.length()
    }

    fn pages(&self, number: u32) -> PageMap {
        self.index.pages(number)
    }

    async fn chunk(&self, number: u32) -> Result<Arc<Chunk>, FetchError> {
        let failed = |why: &str| FetchError::Failed {
            blob: "memory".to_owned(),
            number,
            tries: 1,
            source: Arc::new(std::io::Error::other(why.to_owned())),
        };
        if *self.mood.borrow() == Mood::Waits {
            self.waiting.send_modify(|waiting| *waiting += 1);
        }
        let mut mood = self.mood.subscribe();
        let now = mood.wait_for(|mood| *mood != Mood::Waits).await.map_or(Mood::Fails, |mood| *mood);
        if now == Mood::Fails {
            return Err(failed("as it was told"));
        }
        let range = self.index.blob_range(number).unwrap_or_default();
        let bytes = self.blob.get(range.start as usize..range.end as usize).unwrap_or_default();
        self.index.verified(number, bytes.to_vec()).map(Arc::new).map_err(|error| failed(&error.to_string()))
    }
}

impl Fixture {
    /// Saved state of a machine with more in its memory than it touches by itself.
    async fn filled_state(&self) -> Result<&State> {
        let make = async || {
            let machine = self.restore(self.booted_state().await?).await?;
            let link = machine.resume().await?;
            // More than the chunks that are kept at hand, wherever the guest's kernel puts it.
            let fill = "head -c 4000000 /dev/urandom > /run/piece; for n in 1 2 3 4 5 6; do cat /run/piece; done > /run/much; \
                rm /run/piece; sha256sum < /run/much > /run/sum";
            shell(&link, fill).await?;
            let (state, _) = machine.save(&link, Origin::Restored).await?;
            machine.vm.kill().await;
            Ok(state)
        };
        self.filled.get_or_try_init(make).await
    }

    /// A machine of saved state, paused, whose memory comes on demand.
    pub(super) async fn restore_on_demand(&self, state: &State, source: &Arc<Source>) -> Result<Machine> {
        let (mut plan, disk) = self.plan(state, Vec::new())?;
        plan.memory = MemoryOrigin::LazyMemory(source.origin());
        let place = plan.place.clone();
        let prepared = self.engine.prepare(plan).await.context("prepare")?;
        let vm = prepared.load(File::open(&state.devices)?).await.context("load")?;
        Ok(Machine::new(vm, place, state.memory.clone(), disk))
    }

    /// Says so where there is nothing to try.
    pub(super) fn takes_memory_on_demand(&self) -> bool {
        let taken = self.engine.takes_memory_on_demand();
        if !taken {
            eprintln!("SKIPPED: the engine of this host takes no memory on demand");
        }
        taken
    }
}

/// A machine whose memory comes on demand is the one that was saved: the same bytes, and it can be saved and restored again.
pub async fn memory_on_demand_is_what_was_saved(fixture: &Fixture) -> Result<()> {
    if !fixture.takes_memory_on_demand() {
        return Ok(());
    }
    let state = fixture.filled_state().await?;
    let source = Source::of(state)?;
    // Before either has run there is nothing in which they may differ but what saving itself does.
    let machine = fixture.restore_on_demand(state, &source).await?;
    ensure!(machine.vm.state().await? == VmState::Paused, "a loaded machine runs");
    let whole = fixture.restore(state).await?;
    let (saved, changed) = machine.save_paused(Origin::Restored).await?;
    let (expected, expected_changed) = whole.save_paused(Origin::Restored).await?;
    same_memory(&saved.memory, &expected.memory, &[changed, expected_changed])?;
    whole.vm.kill().await;

    let link = machine.resume().await?;
    let counted = counter(&link).await?;
    ensure!(shell(&link, CHECK).await? == "booted");
    ensure!(machine.vm.trace().is_some_and(|trace| !trace.pages().is_empty()), "nothing came on demand");

    let second = fixture.restore_on_demand(&saved, &Source::of(&saved)?).await?;
    let link = second.resume().await?;
    shell(&link, "echo changed > /run/word").await?;
    let (saved, changed) = second.save(&link, Origin::Restored).await?;
    let total = fixture.shape.memory_bytes();
    ensure!(
        changed.written_bytes < total / 2,
        "{} bytes were written, not what changed",
        changed.written_bytes
    );
    let child = fixture.restore(&saved).await?;
    let link = child.resume().await?;
    ensure!(shell(&link, CHECK).await? == "changed");
    ensure!(counter(&link).await? >= counted.min(1), "the counter is gone");
    Ok(())
}

fn same_memory(one: &Path, other: &Path, changed: &[Saved]) -> Result<()> {
    let (one, other) = (File::open(one)?, File::open(other)?);
    let length = one.metadata()?.len();
    ensure!(length == other.metadata()?.len(), "they have different lengths");
    let may_differ =
        |offset: u64| changed.iter().flat_map(|saved| &saved.changed).any(|range| range.contains(&offset));
    let (mut left, mut right) = (vec![0; CHUNK_BYTES as usize], vec![0; CHUNK_BYTES as usize]);
    for start in (0..length).step_by(CHUNK_BYTES as usize) {
        one.read_exact_at(&mut left, start)?;
        other.read_exact_at(&mut right, start)?;
        for (number, (left, right)) in left.chunks(4096).zip(right.chunks(4096)).enumerate() {
            let offset = start + number as u64 * 4096;
            ensure!(left == right || may_differ(offset), "the page at {offset:#x} differs");
        }
    }
    Ok(())
}

/// A guest that waits for memory when its node goes gets it from the next one.
pub async fn a_guest_that_waits_for_memory_is_found_again(fixture: &Fixture) -> Result<()> {
    if !fixture.takes_memory_on_demand() {
        return Ok(());
    }
    let state = fixture.filled_state().await?;
    let source = Source::of(state)?;
    let machine = fixture.restore_on_demand(state, &source).await?;
    let link = machine.resume().await?;
    let counted = counter(&link).await?;
    source.mood.send_replace(Mood::Waits);
    tokio::select! {
        checked = shell(&link, CHECK) => bail!("all memory was there: {checked:?}"),
        () = source.is_waited_for() => {}
    }
    drop(link);
    let record: VmRecord = serde_json::from_str(&serde_json::to_string(&machine.vm.record())?)?;
    let Machine { vm, place, memory, disk, _end } = machine;
    drop(vm);
    let refused = fixture.engine.attach(&record, &place, None).await;
    ensure!(matches!(refused, Err(AttachError::Control(_))), "it was found without its memory");

    let source = Source::of(state)?;
    let found = fixture
        .engine
        .attach(&record, &place, Some(MemoryOrigin::LazyMemory(source.origin())))
        .await
        .context("attach")?;
    ensure!(found.state().await? == VmState::Running);
    ensure!(found.record() == record, "it has another record now");
    let machine = Machine::new(found, place, memory, disk);
    let link = machine.open_link(Opening::Reattach, wait::scaled(ANSWER_TIMEOUT)).await?;
    ensure!(shell(&link, CHECK).await? == "booted");
    ensure!(counter(&link).await? >= counted, "the guest began anew");
    let (saved, _) = machine.save(&link, Origin::Restored).await.context("save a machine found again")?;
    let child = fixture.restore(&saved).await?;
    ensure!(shell(&child.resume().await?, CHECK).await? == "booted");
    Ok(())
}

/// A machine whose memory does not come ends, and says why; one that needs it to begin does not begin.
pub async fn memory_that_does_not_come_ends_a_machine(fixture: &Fixture) -> Result<()> {
    if !fixture.takes_memory_on_demand() {
        return Ok(());
    }
    let state = fixture.filled_state().await?;
    let source = Source::of(state)?;
    let machine = fixture.restore_on_demand(state, &source).await?;
    let link = machine.resume().await?;
    source.mood.send_replace(Mood::Fails);
    let (_, exit) = tokio::join!(
        tokio::time::timeout(wait::scaled(ANSWER_TIMEOUT), shell(&link, CHECK)),
        tokio::time::timeout(wait::scaled(ANSWER_TIMEOUT), machine.vm.exited()),
    );
    let reason = exit.context("the machine goes on")?.reason;
    ensure!(reason.contains("its memory could not be fetched"), "it ended with {reason:?}");
    ensure!(fixture.processes(&machine.place)? == 0, "its process is still there");

    let source = Source::of(state)?;
    source.mood.send_replace(Mood::Fails);
    let begun = async {
        let machine = fixture.restore_on_demand(state, &source).await?;
        machine.vm.resume().await?;
        let exit = tokio::time::timeout(wait::scaled(ANSWER_TIMEOUT), machine.vm.exited()).await?;
        bail!(exit.reason)
    };
    let error: anyhow::Error = match begun.await {
        Ok(()) => bail!("it began"),
        Err(error) => error,
    };
    ensure!(format!("{error:#}").contains("memory could not be fetched"), "it ended with {error:#}");
    Ok(())
}
