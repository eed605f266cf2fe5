//! How much an image may bring, and what becomes of things that no guest needs.

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What is done with device nodes and named pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpecialFiles {
    /// An error. The default: images do not have them, since every system makes its own `/dev`, so one in a layer is either an
    /// accident or an attempt to reach a disk of the host.
    #[default]
    Refuse,
    /// Left out and counted. For root file systems packed by hand, which often bring a few in `/dev`.
    Skip,
}

/// What is done with names that start with a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AbsoluteNames {
    /// An error. The default.
    #[default]
    Refuse,
    /// Taken as below the tree's root, for programs that write layers so.
    BelowRoot,
}

/// Limits of what an image may bring. Beyond one, unpacking ends with an error that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all archives together when not compressed, and lengths of all files together.
    pub bytes_max: u64,
    /// Entries of all archives together.
    pub entries_max: u64,
    /// Length of one file, holes included.
    pub file_bytes_max: u64,
    /// Bytes of one name.
    pub path_bytes_max: usize,
    /// Directories within each other. Also how many are held open at once.
    pub depth_max: usize,
    /// How many times larger than its compressed form an archive may be, once more than 64 MiB came out.
    pub ratio_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: 64 * GIB,
            entries_max: 2_000_000,
            file_bytes_max: 16 * GIB,
            path_bytes_max: 4096,
            depth_max: 200,
            ratio_max: 400,
        }
    }
}

impl Limits {
    /// The usual limits, for a disk of `disk_mib`.
    pub fn for_disk(disk_mib: u64) -> Self {
        let usual = Self::default();
        let bytes_max = disk_mib.saturating_mul(MIB);
        Self { bytes_max, file_bytes_max: usual.file_bytes_max.min(bytes_max), ..usual }
    }
}

/// What is allowed while unpacking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// How much.
    pub limits: Limits,
    /// Devices and pipes.
    pub special_files: SpecialFiles,
    /// Names that start with a slash.
    pub absolute_names: AbsoluteNames,
}
