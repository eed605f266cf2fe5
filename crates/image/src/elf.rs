//! Just enough of ELF: is this an x86-64 file, has it an interpreter, where is a section. Reads untrusted bytes.

use crate::little_endian::{range_at, u16_at, u32_at, u64_at};

const HEADER_LENGTH: usize = 64;
const CLASS_64: u8 = 2;
const DATA_LITTLE_ENDIAN: u8 = 1;
const MACHINE_X86_64: u16 = 62;
const PROGRAM_HEADER_LENGTH: u64 = 56;
const SECTION_HEADER_LENGTH: u64 = 64;
const SEGMENT_INTERPRETER: u32 = 3;
const SECTION_WITHOUT_BYTES: u32 = 8;

/// Why bytes are not an ELF file this platform can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// The first bytes are not those of an ELF file.
    #[error("not an ELF file")]
    NotElf,
    /// It is an ELF file for another machine.
    #[error("not a 64-bit little-endian x86-64 ELF file")]
    ForeignMachine,
    /// A header points outside the file.
    #[error("the ELF {table} lies outside the file")]
    OutOfBounds {
        /// Which table or section.
        table: &'static str,
    },
}

/// A parsed file header; borrows the bytes.
#[derive(Debug)]
pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
}

impl<'a> Elf<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ElfError> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        if bytes.len() < HEADER_LENGTH {
            return Err(ElfError::OutOfBounds { table: "header" });
        }
        if bytes[4] != CLASS_64 || bytes[5] != DATA_LITTLE_ENDIAN || u16_at(bytes, 18) != Some(MACHINE_X86_64)
        {
            return Err(ElfError::ForeignMachine);
        }
        Ok(Self { bytes })
    }

    /// Whether the program asks for a dynamic linker.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "states a property of the embedded program in its test")
    )]
    pub(crate) fn has_interpreter(&self) -> Result<bool, ElfError> {
        let outside = || ElfError::OutOfBounds { table: "program headers" };
        let count = u64::from(u16_at(self.bytes, 56).ok_or_else(outside)?);
        let offset = u64_at(self.bytes, 32).ok_or_else(outside)?;
        let table = range_at(self.bytes, offset, count * PROGRAM_HEADER_LENGTH).ok_or_else(outside)?;
        Ok(table
            .chunks_exact(PROGRAM_HEADER_LENGTH as usize)
            .any(|header| u32_at(header, 0) == Some(SEGMENT_INTERPRETER)))
    }

    /// The bytes of the section called `name`, if there is one.
    pub(crate) fn section(&self, name: &str) -> Result<Option<&'a [u8]>, ElfError> {
        let outside = || ElfError::OutOfBounds { table: "section headers" };
        let offset = u64_at(self.bytes, 40).ok_or_else(outside)?;
        let count = u64::from(u16_at(self.bytes, 60).ok_or_else(outside)?);
        let names_index = usize::from(u16_at(self.bytes, 62).ok_or_else(outside)?);
        let table = range_at(self.bytes, offset, count * SECTION_HEADER_LENGTH).ok_or_else(outside)?;
        let mut headers = table.chunks_exact(SECTION_HEADER_LENGTH as usize);
        let Some(names_header) = headers.clone().nth(names_index) else { return Ok(None) };
        let names = self.section_bytes(names_header)?;
        let found = headers.find(|header| {
            u32_at(header, 0)
                .and_then(|start| names.get(start as usize..))
                .and_then(|rest| rest.split(|byte| *byte == 0).next())
                .is_some_and(|candidate| candidate == name.as_bytes())
        });
        found.map(|header| self.section_bytes(header)).transpose()
    }

    fn section_bytes(&self, header: &[u8]) -> Result<&'a [u8], ElfError> {
        let outside = || ElfError::OutOfBounds { table: "section" };
        if u32_at(header, 4) == Some(SECTION_WITHOUT_BYTES) {
            return Ok(&[]);
        }
        let offset = u64_at(header, 24).ok_or_else(outside)?;
        let length = u64_at(header, 32).ok_or_else(outside)?;
        range_at(self.bytes, offset, length).ok_or_else(outside)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if bytes.len() > 20 {
                bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
                bytes[18..20].copy_from_slice(&MACHINE_X86_64.to_le_bytes());
            }
            if let Ok(elf) = Elf::parse(&bytes) {
                let _ = elf.has_interpreter();
                let _ = elf.section(".modinfo");
            }
        }

        #[test]
        fn a_mutated_program_never_panics(changes in proptest::collection::vec((0usize..4096, any::<u8>()), 1..20)) {
            let mut bytes = crate::guest_binary::guest_binary().to_vec();
            for (offset, value) in changes {
                if let Some(byte) = bytes.get_mut(offset) {
                    *byte = value;
                }
            }
            if let Ok(elf) = Elf::parse(&bytes) {
                let _ = elf.has_interpreter();
                let _ = elf.section(".text");
            }
        }
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(Elf::parse(b"#!/bin/sh\n").unwrap_err(), ElfError::NotElf);
        assert_eq!(Elf::parse(b"\x7fELF\x02\x01").unwrap_err(), ElfError::OutOfBounds { table: "header" });
        let mut foreign = vec![0; 64];
        foreign[..6].copy_from_slice(b"\x7fELF\x01\x01");
        assert_eq!(Elf::parse(&foreign).unwrap_err(), ElfError::ForeignMachine);
    }

    #[test]
    fn sections_are_found_by_name() {
        let elf = Elf::parse(crate::guest_binary::guest_binary()).unwrap();
        assert!(!elf.section(".text").unwrap().unwrap().is_empty());
        assert!(elf.section(".nonexistent").unwrap().is_none());
    }
}
