//! Memory of machines in pages of 2 MiB, which the host's kernel has set aside for whoever asks.
//!
//! Such memory is taken when it is touched, and a guest for which nothing is left then ends. So a machine begins only while all of its
//! memory fits, with that of all others of this engine, whether they have touched theirs or not.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use domain::MachineShape;

/// Where the kernel counts its pages of 2 MiB.
const COUNTS: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const PAGE_BYTES: u64 = 2 << 20;
/// Memory that can be served page by page.
const MEMORY_BYTES_MAX: u64 = memory::stream::LENGTH_MAX;

/// In which pages machines have their memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HugePages {
    /// In the usual ones.
    #[default]
    Off,
    /// In pages of 2 MiB.
    TwoMib,
}

/// Why a machine cannot have its memory in huge pages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HugePagesError {
    /// Its memory is not made of them.
    #[error("machines with huge pages have an even number of MiB of memory, at most {}, not {memory_mib}", MEMORY_BYTES_MAX >> 20)]
    Size {
        /// What was asked.
        memory_mib: u32,
    },
    /// Too few are set aside.
    #[error(
        "the machine's memory takes {needed} huge pages of 2 MiB, and {free} are free; `sysctl vm.nr_hugepages` says how many this host has"
    )]
    TooFew {
        /// What it takes.
        needed: u64,
        /// What is neither used nor promised to others.
        free: u64,
    },
}

/// What machines of one engine may take at most, together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Promises {
    pages: Arc<AtomicU64>,
}

/// That a machine may take all of its memory; ends when dropped.
#[derive(Debug)]
pub(crate) struct Promise {
    all: Promises,
    pages: u64,
}

impl Promises {
    /// For a machine that is about to begin.
    pub(crate) fn take(&self, shape: MachineShape) -> Result<Promise, HugePagesError> {
        self.take_of(shape, Counts::read(Path::new(COUNTS)))
    }

    fn take_of(&self, shape: MachineShape, host: Counts) -> Result<Promise, HugePagesError> {
        check(shape)?;
        let needed = shape.memory_bytes() / PAGE_BYTES;
        // What others on this host use counts too, and what ours were promised, touched or not.
        let free = |promised: u64| host.free.min(host.all.saturating_sub(promised));
        let add = |promised: u64| (free(promised) >= needed).then_some(promised + needed);
        match self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Promise { all: self.clone(), pages: needed }),
            Err(promised) => Err(HugePagesError::TooFew { needed, free: free(promised) }),
        }
    }

    /// For a machine that has begun, whether it fits or not.
    pub(crate) fn note(&self, memory_bytes: u64) -> Promise {
        let pages = memory_bytes / PAGE_BYTES;
        self.pages.fetch_add(pages, Ordering::Relaxed);
        Promise { all: self.clone(), pages }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.all.pages.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

/// Fails for memory that huge pages cannot make up.
pub(crate) fn check(shape: MachineShape) -> Result<(), HugePagesError> {
    let bytes = shape.memory_bytes();
    match bytes.is_multiple_of(PAGE_BYTES) && bytes <= MEMORY_BYTES_MAX {
        true => Ok(()),
        false => Err(HugePagesError::Size { memory_mib: shape.memory_mib() }),
    }
}

/// Pages of 2 MiB that the kernel has or would make.
#[derive(Debug, Clone, Copy)]
struct Counts {
    all: u64,
    free: u64,
}

impl Counts {
    fn read(folder: &Path) -> Self {
        // A kernel that does not count them has none.
        let number = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).ok();
            text.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        // What the kernel may still make when somebody asks.
        let more = number("nr_overcommit_hugepages").saturating_sub(number("surplus_hugepages"));
        let free = number("free_hugepages").saturating_sub(number("resv_hugepages"));
        Self { all: number("nr_hugepages") + more, free: free + more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_begin_only_while_all_their_memory_fits() {
        let promises = Promises::default();
        let machine = MachineShape::new(1, 256).unwrap();
        let host = |all, free| Counts { all, free };
        let first = promises.take_of(machine, host(300, 300)).unwrap();
        // It has touched nothing yet.
        let second = promises.take_of(machine, host(300, 300)).unwrap();
        let refused = promises.take_of(machine, host(300, 300)).unwrap_err();
        assert_eq!(refused, HugePagesError::TooFew { needed: 128, free: 44 });
        drop(first);
        let third = promises.take_of(machine, host(300, 172)).unwrap();
        drop((second, third));
        let refused = promises.take_of(machine, host(300, 100)).unwrap_err();
        assert_eq!(refused, HugePagesError::TooFew { needed: 128, free: 100 }, "somebody else has the rest");
        let found = promises.note(machine.memory_bytes());
        assert!(promises.take_of(machine, host(255, 200)).is_err());
        drop(found);
        assert!(promises.take_of(machine, host(255, 200)).is_ok());
        assert_eq!(promises.pages.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn memory_is_made_of_whole_pages() {
        let check = |mib| check(MachineShape::new(1, mib).unwrap());
        assert_eq!(check(257), Err(HugePagesError::Size { memory_mib: 257 }));
        assert!(check(256).is_ok() && check(64 << 10).is_ok() && check((64 << 10) + 2).is_err());
        let said = check(257).unwrap_err().to_string();
        assert!(said.contains("257") && said.contains("65536"), "{said}");
    }

    #[test]
    fn what_the_kernel_counts_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let counts = |wanted: (u64, u64)| {
            let counts = Counts::read(folder.path());
            assert_eq!((counts.all, counts.free), wanted);
        };
        counts((0, 0));
        for (name, value) in [
            ("nr_hugepages", 100),
            ("free_hugepages", 60),
            ("resv_hugepages", 10),
            ("nr_overcommit_hugepages", 30),
            ("surplus_hugepages", 5),
        ] {
            fs::write(folder.path().join(name), format!("{value}\n")).unwrap();
        }
        counts((125, 75));
    }
}
