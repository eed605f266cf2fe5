//! Memory that a guest frees.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use guest_link::client::Link;
use memory::stream::CHUNK_BYTES;

use super::on_demand::Source;
use super::{Fixture, Machine, Origin};
use crate::guest::{counter, shell};
use crate::wait;

/// What a guest fills and frees.
const BYTES: u64 = 64 << 20;
/// How much of it has to be seen: a little is used for something else by then, or is in pieces too small to be given back.
const MOST: u64 = BYTES / 4 * 3;
/// A guest tells what it freed two seconds later, a batch at a time.
const TIMEOUT: Duration = Duration::from_secs(30);

const KEEP: &str = "head -c 4000000 /dev/urandom > /run/kept; sha256sum < /run/kept > /run/kept.sum";
const CHECK: &str = "sha256sum < /run/kept | cmp - /run/kept.sum && cat /run/word /word";

/// What a guest frees is the host's again, and not in what is saved; all the rest is, and what was freed can be used again.
pub async fn a_balloon_gives_back_what_is_freed(fixture: &Fixture) -> Result<()> {
    if !fixture.engine.reclaims_free_pages() {
        eprintln!("SKIPPED: the engine of this host gives no memory back");
        return Ok(());
    }
    let state = fixture.booted_state().await?;
    let full = fixture.restore(state).await?;
    let link = full.resume().await?;
    fill(&link).await?;
    let (full_state, _) = full.save(&link, Origin::Restored).await?;
    let kept = filled_bytes(&full_state.memory)?;
    ensure!(kept >= MOST, "{kept} bytes of what was filled were saved");
    full.vm.kill().await;

    let machine = fixture.restore(state).await?;
    let (link, mappings) = (machine.resume().await?, machine.mappings()?);
    shell(&link, KEEP).await?;
    let took = machine.fill_and_free(&link).await?;
    let counted = counter(&link).await?;
    eprintln!("given back after {took:?}; {mappings} mappings before, {} after", machine.mappings()?);
    let given_back = machine.vm.counters().await?.and_then(|counters| counters.given_back_bytes);
    ensure!(given_back >= Some(MOST), "it counted {given_back:?} bytes");
    let (saved, _) = machine.save(&link, Origin::Restored).await?;
    let left = filled_bytes(&saved.memory)?;
    eprintln!("{left} bytes of what was freed were saved, {kept} of what was not");
    ensure!(left < BYTES - MOST, "{left} bytes of what was freed were saved");

    // The one that was saved goes on, and others go on from there.
    machine.vm.resume().await?;
    link.resume();
    goes_on(&link, counted).await?;
    for _ in 0..2 {
        let child = fixture.restore(&saved).await?;
        let link = child.resume().await?;
        goes_on(&link, counted).await?;
        fill(&link).await?;
        goes_on(&link, counted).await?;
        child.vm.kill().await;
    }
    if fixture.takes_memory_on_demand() {
        let served = fixture.restore_on_demand(&saved, &Source::of(&saved)?).await?;
        let link = served.resume().await?;
        served.fill_and_free(&link).await?;
        goes_on(&link, counted).await?;
        let (saved, _) = served.save(&link, Origin::Restored).await?;
        let left = filled_bytes(&saved.memory)?;
        ensure!(left < BYTES - MOST, "{left} bytes of what was freed were saved with memory on demand");
        let child = fixture.restore(&saved).await?;
        goes_on(&child.resume().await?, counted).await?;
    }
    Ok(())
}

impl Machine {
    /// Has the guest fill memory and free it, and waits until the process holds it no more.
    async fn fill_and_free(&self, link: &Link) -> Result<Duration> {
        let before = self.held_bytes()?;
        fill(link).await?;
        let filled = self.held_bytes()?;
        ensure!(filled >= before + MOST, "{before} bytes, {filled} when it was filled");
        shell(link, "rm /run/filled").await?;
        let freed = Instant::now();
        let held_less = async || Ok(self.held_bytes()? + MOST <= filled);
        wait::until_async("what was freed is given back", TIMEOUT, held_less).await?;
        Ok(freed.elapsed())
    }

    /// What the process holds of its own.
    fn held_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(self.process_directory().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kib.context("read what the process holds")? << 10)
    }

    fn mappings(&self) -> Result<usize> {
        Ok(fs::read_to_string(self.process_directory().join("maps"))?.lines().count())
    }
}

async fn fill(link: &Link) -> Result<()> {
    shell(link, &format!("yes filled | head -c {BYTES} > /run/filled")).await.map(drop)
}

/// The guest is the one that it was, in memory and on its disk.
async fn goes_on(link: &Link, counted: u64) -> Result<()> {
    ensure!(shell(link, CHECK).await? == "booted\nbooted");
    ensure!(counter(link).await? >= counted, "the guest began anew");
    Ok(())
}

/// How much of a saved memory is what a guest filled it with.
fn filled_bytes(memory: &Path) -> Result<u64> {
    let file = File::open(memory)?;
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    let mut pages = 0;
    for start in (0..file.metadata()?.len()).step_by(CHUNK_BYTES as usize) {
        file.read_exact_at(&mut buffer, start)?;
        let is_filled = |page: &&[u8]| page[..32].windows(14).any(|bytes| bytes == b"filled\nfilled\n");
        pages += buffer.chunks(4096).filter(is_filled).count();
    }
    Ok(pages as u64 * 4096)
}
