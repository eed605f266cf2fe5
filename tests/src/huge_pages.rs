//! Huge pages that the host sets aside for a test.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::fs::FlockOperation;

const PAGE_BYTES: u64 = 2 << 20;

/// Pages of 2 MiB besides those that there were; dropped, there are as many as before. One test of this host at a time has any.
pub struct Aside {
    count: File,
    before: u64,
}

impl Aside {
    /// Enough for this many bytes.
    pub fn set(bytes: u64) -> Result<Self> {
        tokio::task::block_in_place(|| {
            let path = folder().join("nr_hugepages");
            let count = File::options().read(true).write(true).open(&path).context("open nr_hugepages")?;
            rustix::fs::flock(&count, FlockOperation::LockExclusive)?;
            let aside = Self { before: read("nr_hugepages")?, count };
            let wanted = bytes.div_ceil(PAGE_BYTES);
            aside.write(aside.before + wanted)?;
            if read("free_hugepages")? < wanted {
                // What the host remembers of files lies everywhere.
                rustix::fs::sync();
                fs::write("/proc/sys/vm/drop_caches", "1").context("drop what is remembered of files")?;
                fs::write("/proc/sys/vm/compact_memory", "1").context("move memory together")?;
                aside.write(aside.before + wanted)?;
            }
            let free = read("free_hugepages")?;
            ensure!(free >= wanted, "this host sets {free} huge pages aside, not {wanted}");
            Ok(aside)
        })
    }

    /// How many there were before.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Takes back all that nobody uses.
    pub fn take_back(&self) -> Result<()> {
        self.write(0)
    }

    fn write(&self, count: u64) -> Result<()> {
        self.count.write_all_at(count.to_string().as_bytes(), 0).context("set huge pages aside")
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Err(error) = self.write(self.before) {
            eprintln!("huge pages stay set aside: {error:#}");
        }
    }
}

/// Bytes of huge pages that a process has.
pub fn used_by(pid: u32) -> Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Private_Hugetlb:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")).context("read smaps_rollup")?;
    Ok(kib.trim().parse::<u64>()? << 10)
}

fn folder() -> PathBuf {
    Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").to_owned()
}

fn read(name: &str) -> Result<u64> {
    Ok(fs::read_to_string(folder().join(name))?.trim().parse()?)
}
