//! Captures the pages a running VM has changed and proves that saved bytes are still the ones written.
//!
//! The RAM of a restored VM is a private mapping of a file that many VMs share. [`mapping`] finds that mapping in
//! the VMM process, [`changed`] asks the kernel which pages the VM has written since, [`capture`] copies exactly
//! those over a clone of the file, and [`sums`] keeps a checksum per chunk so that a damaged file is noticed.
//! [`stream`] packs such a file for a store elsewhere, to be brought back a chunk at a time, and [`pages`] serves a guest from
//! those chunks as it touches its memory.
//! Nothing here pauses a VM, clones a file or knows an engine: the caller does.

pub mod capture;
pub mod changed;
pub mod extents;
pub mod mapping;
pub mod pages;
mod parallel;
mod ranges;
pub mod stream;
pub mod sums;

pub use capture::{CaptureError, Captured, WriteOut, capture, capture_compared, start_writing_out};
pub use changed::ScanError;
pub use mapping::{FindError, GuestMemory, Part, Sharing};
pub use sums::{Checksums, PageSums, SumError, VerifyError, What};

/// The unit in which RAM is tracked, copied and summed. x86-64 and the arm64 hosts we support use 4 KiB.
pub const PAGE_BYTES: u64 = 4096;
