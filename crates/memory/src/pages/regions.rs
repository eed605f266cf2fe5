//! Where a machine process has the memory whose faults we answer, as the process itself says.
//!
//! A process may be in the hands of its guest, so what it says is checked before anybody believes it: these addresses are
//! only ever used in calls on the process's own descriptor, but sizes and offsets decide what is read here.

use serde::{Deserialize, Serialize};

use crate::PAGE_BYTES;
use crate::mapping::Part;

/// Most regions a memory may have. Firecracker makes three at most.
pub const REGIONS_MAX: usize = 8;

/// Longest memory that is served: what a packed file can hold.
const LENGTH_MAX: u64 = crate::stream::LENGTH_MAX;

/// Huge pages, where the host has some set aside.
pub(super) const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Regions of one memory: ascending and complete by offset, apart from each other by address. Written as the list in which
/// Firecracker hands them over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Raw>", into = "Vec<Raw>")]
pub struct Regions {
    parts: Vec<Part>,
    page_bytes: u64,
}

/// Why regions are not those of a memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegionsError {
    /// None, or more than [`REGIONS_MAX`].
    #[error("a memory of {count} regions is not possible")]
    Count {
        /// How many there are.
        count: usize,
    },
    /// Pages are neither 4 KiB nor 2 MiB, or not the same everywhere.
    #[error("pages of {page_bytes} bytes are not possible")]
    PageBytes {
        /// What was said.
        page_bytes: u64,
    },
    /// A region is empty, too long, or not made of whole pages at the address of one.
    #[error("a region of {length} bytes at {address:#x} is not possible")]
    Place {
        /// Where it begins in the process.
        address: u64,
        /// Its bytes.
        length: u64,
    },
    /// A region does not begin where the one before it ends in the file.
    #[error("a region begins at offset {offset:#x} of the memory, not at {expected:#x}")]
    Offset {
        /// What was said.
        offset: u64,
        /// Where it has to begin.
        expected: u64,
    },
    /// Two regions have addresses in common.
    #[error("regions overlap at {address:#x}")]
    Overlap {
        /// Where.
        address: u64,
    },
    /// Together they are not the memory that was saved.
    #[error("regions have {actual} bytes where the memory has {expected}")]
    Length {
        /// Bytes of the memory.
        expected: u64,
        /// Bytes of the regions.
        actual: u64,
    },
}

/// A region as Firecracker describes it; other fields are passed over.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Raw {
    base_host_virt_addr: u64,
    size: u64,
    offset: u64,
    page_size: u64,
}

impl TryFrom<Vec<Raw>> for Regions {
    type Error = RegionsError;

    fn try_from(regions: Vec<Raw>) -> Result<Regions, RegionsError> {
        let count = regions.len();
        let page_bytes = regions.first().ok_or(RegionsError::Count { count })?.page_size;
        if count > REGIONS_MAX {
            return Err(RegionsError::Count { count });
        }
        let mut parts: Vec<Part> = Vec::with_capacity(count);
        for Raw { base_host_virt_addr: address, size: length, offset, page_size } in regions {
            if page_size != page_bytes || ![PAGE_BYTES, HUGE_PAGE_BYTES].contains(&page_size) {
                return Err(RegionsError::PageBytes { page_bytes: page_size });
            }
            let is_whole = |number: u64| number.is_multiple_of(page_bytes);
            let has_end = address.checked_add(length).is_some_and(|end| end <= i64::MAX as u64);
            if length == 0 || length > LENGTH_MAX || !has_end || !is_whole(address) || !is_whole(length) {
                return Err(RegionsError::Place { address, length });
            }
            let expected = parts.last().map_or(0, Part::end);
            if offset != expected {
                return Err(RegionsError::Offset { offset, expected });
            }
            let end = address + length;
            if parts.iter().any(|part| address < part.address + part.length && part.address < end) {
                return Err(RegionsError::Overlap { address });
            }
            parts.push(Part { offset, address, length });
        }
        let regions = Regions { parts, page_bytes };
        match regions.length() {
            actual if actual > LENGTH_MAX => Err(RegionsError::Length { expected: LENGTH_MAX, actual }),
            _ => Ok(regions),
        }
    }
}

impl From<Regions> for Vec<Raw> {
    fn from(regions: Regions) -> Vec<Raw> {
        let raw = |part: &Part| Raw {
            base_host_virt_addr: part.address,
            size: part.length,
            offset: part.offset,
            page_size: regions.page_bytes,
        };
        regions.parts.iter().map(raw).collect()
    }
}

impl Regions {
    /// A memory in one piece, in small pages.
    pub fn whole(address: u64, length: u64) -> Result<Regions, RegionsError> {
        let page_size = PAGE_BYTES;
        vec![Raw { base_host_virt_addr: address, size: length, offset: 0, page_size }].try_into()
    }

    /// The regions, ascending by offset.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes of all regions.
    pub fn length(&self) -> u64 {
        self.parts.last().map_or(0, Part::end)
    }

    /// The unit in which memory is put in place: 4 KiB or 2 MiB.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Fails unless this is a memory of `expected` bytes.
    pub fn check_length(&self, expected: u64) -> Result<(), RegionsError> {
        match self.length() {
            actual if actual == expected => Ok(()),
            actual => Err(RegionsError::Length { expected, actual }),
        }
    }

    /// The offset of the page in which an address lies.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        let part =
            self.parts.iter().find(|part| (part.address..part.address + part.length).contains(&address))?;
        let offset = part.offset + (address - part.address);
        Some(offset - offset % self.page_bytes)
    }

    /// The region that holds an offset.
    pub(super) fn part_of(&self, offset: u64) -> Option<&Part> {
        self.parts.get(self.parts.partition_point(|part| part.end() <= offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers near what is allowed, and any others.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0_u64..6).prop_map(|pages| pages * PAGE_BYTES),
            (0_u64..6).prop_map(|pages| pages * HUGE_PAGE_BYTES),
            any::<u64>(),
        ]
    }

    proptest! {
        #[test]
        fn what_is_taken_is_a_memory(
            regions in proptest::collection::vec((number(), number(), number(), number()), 0..10),
            is_contiguous in any::<bool>(),
        ) {
            let mut regions = regions;
            if is_contiguous {
                // Most lists fail at the first offset otherwise.
                let mut offset = 0_u64;
                for region in &mut regions {
                    (region.2, region.3) = (offset, PAGE_BYTES);
                    offset = offset.wrapping_add(region.1);
                }
            }
            let Ok(taken) = parse(&regions) else { return Ok(()) };
            let parts = taken.parts();
            prop_assert!((1..=REGIONS_MAX).contains(&parts.len()) && taken.length() <= LENGTH_MAX);
            prop_assert_eq!(parts.iter().map(|part| part.length).sum::<u64>(), taken.length());
            for (number, part) in parts.iter().enumerate() {
                let (last, page) = (part.address + part.length - 1, taken.page_bytes());
                prop_assert_eq!((part.address % page, part.length % page), (0, 0));
                prop_assert_eq!(taken.offset_of(last), Some(part.end() - page), "no other region has it");
                prop_assert_eq!(taken.part_of(part.end() - 1), Some(part));
                prop_assert_eq!(part.offset, number.checked_sub(1).map_or(0, |before| parts[before].end()));
            }
        }
    }

    fn parse(regions: &[(u64, u64, u64, u64)]) -> Result<Regions, RegionsError> {
        let raw = |(base_host_virt_addr, size, offset, page_size): &(u64, u64, u64, u64)| Raw {
            base_host_virt_addr: *base_host_virt_addr,
            size: *size,
            offset: *offset,
            page_size: *page_size,
        };
        Regions::try_from(Vec::from_iter(regions.iter().map(raw)))
    }

    const PAGE: u64 = PAGE_BYTES;

    #[test]
    fn a_memory_in_two_regions_is_known_by_offset_and_address() {
        let regions = parse(&[(0x9000, 2 * PAGE, 0, PAGE), (0x1000, PAGE, 2 * PAGE, PAGE)]).unwrap();
        assert_eq!((regions.length(), regions.page_bytes()), (3 * PAGE, PAGE));
        assert_eq!(regions.offset_of(0xafff), Some(PAGE));
        assert_eq!(regions.offset_of(0x1000), Some(2 * PAGE));
        assert_eq!(regions.offset_of(0x2000), None);
        assert_eq!(regions.part_of(2 * PAGE).map(|part| part.address), Some(0x1000));
        assert_eq!(regions.part_of(3 * PAGE), None);
        assert!(regions.check_length(3 * PAGE).is_ok() && regions.check_length(PAGE).is_err());
        let written = serde_json::to_string(&regions).unwrap();
        assert_eq!(serde_json::from_str::<Regions>(&written).unwrap(), regions);
    }

    #[test]
    fn what_firecracker_writes_is_read() {
        let text = r#"[{"base_host_virt_addr":139767870128128,"size":2097152,"offset":0,"page_size":2097152,"page_size_kib":2097152}]"#;
        let regions: Regions = serde_json::from_str(text).unwrap();
        assert_eq!(regions.page_bytes(), HUGE_PAGE_BYTES);
    }

    #[test]
    fn what_cannot_be_a_memory_is_refused() {
        let refused = |regions: &[(u64, u64, u64, u64)]| parse(regions).unwrap_err();
        assert!(matches!(refused(&[]), RegionsError::Count { count: 0 }));
        let many: Vec<_> = (0..9).map(|at| ((2 * at + 1) * PAGE, PAGE, at * PAGE, PAGE)).collect();
        assert!(matches!(refused(&many), RegionsError::Count { count: 9 }));
        for page_bytes in [0, 1, 2048, 8192, 1 << 30, u64::MAX] {
            assert!(matches!(refused(&[(0, 1 << 30, 0, page_bytes)]), RegionsError::PageBytes { .. }));
        }
        let mixed = [(0x1000, PAGE, 0, PAGE), (HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGE, HUGE_PAGE_BYTES)];
        assert!(matches!(refused(&mixed), RegionsError::PageBytes { .. }));
        let places = [
            (0x1001, PAGE),
            (0x1000, 0),
            (0x1000, PAGE + 1),
            (u64::MAX - PAGE + 1, PAGE),
            (0, u64::MAX),
            (0, 65 << 30),
        ];
        for (address, length) in places {
            assert!(matches!(refused(&[(address, length, 0, PAGE)]), RegionsError::Place { .. }));
        }
        assert!(matches!(refused(&[(0x1000, PAGE, PAGE, PAGE)]), RegionsError::Offset { .. }));
        let gap = [(0x1000, PAGE, 0, PAGE), (0x5000, PAGE, 2 * PAGE, PAGE)];
        assert!(matches!(refused(&gap), RegionsError::Offset { .. }));
        let overlap = [(0x2000, 2 * PAGE, 0, PAGE), (0x1000, 2 * PAGE, 2 * PAGE, PAGE)];
        assert!(matches!(refused(&overlap), RegionsError::Overlap { .. }));
        let long = [(0, 64 << 30, 0, PAGE), (1 << 40, PAGE, 64 << 30, PAGE)];
        assert!(matches!(refused(&long), RegionsError::Length { .. }));
        for text in [
            "",
            "{}",
            "[]",
            "[1]",
            r#"[{"size":4096}]"#,
            r#"[{"base_host_virt_addr":-1,"size":4096,"offset":0,"page_size":4096}]"#,
        ] {
            assert!(serde_json::from_str::<Regions>(text).is_err(), "{text}");
        }
    }
}
