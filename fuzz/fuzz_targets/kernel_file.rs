//! Kernel and module files: bzImage headers, ELF tables and sections that point anywhere.

#![no_main]
#![allow(dead_code, reason = "files of another crate, of which this target needs a part")]

#[path = "../../crates/image/src/bzimage.rs"]
mod bzimage;
#[path = "../../crates/image/src/decompress.rs"]
mod decompress;
#[path = "../../crates/image/src/elf.rs"]
mod elf;
#[path = "../../crates/image/src/little_endian.rs"]
mod little_endian;

use fuzz::seeds;
use libfuzzer_sys::fuzz_target;

fn elf() -> Vec<u8> {
    let mut bytes = vec![0; 64 + 3 * 64 + 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18..20].copy_from_slice(&62_u16.to_le_bytes());
    bytes[40..48].copy_from_slice(&64_u64.to_le_bytes());
    bytes[60..62].copy_from_slice(&3_u16.to_le_bytes());
    bytes[62..64].copy_from_slice(&2_u16.to_le_bytes());
    for (section, name, offset, length) in [(1, 1_u32, 266_u64, 10_u64), (2, 0, 256, 10)] {
        let at = 64 + section * 64;
        bytes[at..at + 4].copy_from_slice(&name.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&1_u32.to_le_bytes());
        bytes[at + 24..at + 32].copy_from_slice(&offset.to_le_bytes());
        bytes[at + 32..at + 40].copy_from_slice(&length.to_le_bytes());
    }
    bytes[256..266].copy_from_slice(b"\0.modinfo\0");
    bytes[266..276].copy_from_slice(b"depends=a\0");
    bytes
}

fn bzimage() -> Vec<u8> {
    let block = lz4_flex::block::compress(&elf());
    let payload = [&b"\x02\x21\x4c\x18"[..], &(block.len() as u32).to_le_bytes(), &block].concat();
    let mut bytes = vec![0; 1024 + 16];
    bytes[0x1f1] = 1;
    bytes[0x1fe..0x200].copy_from_slice(&0xaa55_u16.to_le_bytes());
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    bytes[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
    bytes[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend(payload);
    bytes
}

fuzz_target!(
    init: seeds(|| vec![elf(), bzimage(), [&elf()[..], b"Linux version 6.1.0-1 "].concat()]),
    |data: &[u8]| {
        if let Ok(file) = elf::Elf::parse(data) {
            let _ = file.section(".modinfo");
        }
        if let Ok(kernel) = bzimage::extract_vmlinux(data.to_vec()) {
            let _ = bzimage::release(&kernel);
        }
    }
);
