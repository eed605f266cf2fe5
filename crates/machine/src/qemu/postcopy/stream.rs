//! What QEMU is sent: the beginning of a migration that has postcopy, up to the guest being whole. Numbers are big-endian.
//!
//! ```text
//! magic, version │ open return path │ advise │ `ram`: pages of other blocks │ discard │ package: listen, ping, devices, run
//! ```

use std::io;

use memory::PAGE_BYTES;

/// What every stream begins with, and so every file of saved devices: "QEVM" and the version.
const HEADER: [u8; 8] = *b"QEVM\0\0\0\x03";

const END: u8 = 0;
const SECTION_START: u8 = 1;
const COMMAND: u8 = 8;
const SECTION_FOOTER: u8 = 0x7e;

const OPEN_RETURN_PATH: u16 = 1;
const PING: u16 = 2;
const POSTCOPY_ADVISE: u16 = 3;
const POSTCOPY_LISTEN: u16 = 4;
const POSTCOPY_RUN: u16 = 5;
const POSTCOPY_DISCARD: u16 = 6;
const PACKAGED: u16 = 7;

/// What QEMU calls the section of all its memory, and the version of it that is spoken here.
const SECTION: &[u8] = b"ram";
const SECTION_VERSION: u32 = 4;
/// Any number but those of the devices, which QEMU counts from 0.
const SECTION_NUMBER: u32 = 1 << 20;

/// In the low bits of a page's offset: its bytes follow; it is of the block of the page before it; there are no more pages.
const PAGE: u64 = 0x08;
const CONTINUED: u64 = 0x20;
const NO_MORE: u64 = 0x10;

/// The stream, for saved `devices` and what lies in `blocks` besides the machine's `memory`.
pub(super) fn begin(memory: &str, blocks: &[(String, Vec<u8>)], devices: &[u8]) -> io::Result<Vec<u8>> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let devices = devices.strip_prefix(&HEADER).and_then(|devices| devices.strip_suffix(&[END]));
    let devices = devices.ok_or_else(|| wrong("the saved devices are not what QEMU saves"))?;

    let mut package = command(POSTCOPY_LISTEN, &[]);
    package.extend(command(PING, &1_u32.to_be_bytes()));
    package.extend(devices);
    package.extend(command(POSTCOPY_RUN, &[]));
    let package_length = u32::try_from(package.len()).map_err(|_| wrong("the saved devices are too long"))?;

    let mut stream = HEADER.to_vec();
    stream.extend(command(OPEN_RETURN_PATH, &[]));
    // The size of pages here, and in the guest.
    stream.extend(command(POSTCOPY_ADVISE, &[PAGE_BYTES.to_be_bytes(), PAGE_BYTES.to_be_bytes()].concat()));
    stream.push(SECTION_START);
    stream.extend(SECTION_NUMBER.to_be_bytes());
    stream.push(SECTION.len() as u8);
    stream.extend(SECTION);
    stream.extend(0_u32.to_be_bytes());
    stream.extend(SECTION_VERSION.to_be_bytes());
    for (name, bytes) in blocks {
        append_block(&mut stream, name, bytes).ok_or_else(|| wrong("a block of memory cannot be sent"))?;
    }
    stream.extend(NO_MORE.to_be_bytes());
    stream.push(SECTION_FOOTER);
    stream.extend(SECTION_NUMBER.to_be_bytes());
    // QEMU listens only after something was discarded: a page of the memory, which is empty anyway.
    let (none, first_page) = (0_u64.to_be_bytes(), PAGE_BYTES.to_be_bytes());
    let name = [&[memory.len() as u8], memory.as_bytes(), &[0]].concat();
    stream.extend(command(POSTCOPY_DISCARD, &[&[0], &name[..], &none, &first_page].concat()));
    stream.extend(command(PACKAGED, &package_length.to_be_bytes()));
    stream.extend(package);
    Ok(stream)
}

fn command(command: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![COMMAND];
    bytes.extend(command.to_be_bytes());
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The pages of a block; `None` when it has other than whole pages, or a name that is too long.
fn append_block(stream: &mut Vec<u8>, name: &str, bytes: &[u8]) -> Option<()> {
    let name_length = u8::try_from(name.len()).ok()?;
    let (pages, rest) = bytes.as_chunks::<{ PAGE_BYTES as usize }>();
    if !rest.is_empty() {
        return None;
    }
    for (number, page) in pages.iter().enumerate() {
        let offset = number as u64 * PAGE_BYTES;
        if number == 0 {
            stream.extend((offset | PAGE).to_be_bytes());
            stream.push(name_length);
            stream.extend(name.as_bytes());
        } else {
            stream.extend((offset | PAGE | CONTINUED).to_be_bytes());
        }
        stream.extend(page);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_LENGTH: usize = PAGE_BYTES as usize;

    fn devices(content: &[u8]) -> Vec<u8> {
        [&HEADER, content, &[END]].concat()
    }

    #[test]
    fn the_stream_is_what_qemu_reads() {
        let blocks = [("rom".to_owned(), [[1; PAGE_LENGTH], [2; PAGE_LENGTH]].concat())];
        let expected = [
            b"QEVM\0\0\0\x03".as_slice(),
            b"\x08\0\x01\0\0",
            b"\x08\0\x03\0\x10\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x10\0",
            b"\x01\0\x10\0\0\x03ram\0\0\0\0\0\0\0\x04",
            b"\0\0\0\0\0\0\0\x08\x03rom",
            &[1; PAGE_LENGTH],
            b"\0\0\0\0\0\0\x10\x28",
            &[2; PAGE_LENGTH],
            b"\0\0\0\0\0\0\0\x10\x7e\0\x10\0\0",
            b"\x08\0\x06\0\x16\0\x03ram\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0",
            b"\x08\0\x07\0\x04\0\0\0\x1a",
            b"\x08\0\x04\0\0\x08\0\x02\0\x04\0\0\0\x01devices\x08\0\x05\0\0",
        ];
        assert_eq!(begin("ram", &blocks, &devices(b"devices")).unwrap(), expected.concat());
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        assert!(begin("ram", &[], &devices(b"")).is_ok());
        for wrong in [b"".as_slice(), b"QEVM\0\0\0\x02\0", b"QEVM\0\0\0\x03", b"QEVM\0\0\0\x03devices"] {
            assert!(begin("ram", &[], wrong).is_err(), "{wrong:?}");
        }
        let block = |name: &str, bytes: usize| [(name.to_owned(), vec![0; bytes])];
        assert!(begin("ram", &block(&"n".repeat(256), PAGE_LENGTH), &devices(b"")).is_err());
        assert!(begin("ram", &block("rom", PAGE_LENGTH + 1), &devices(b"")).is_err());
    }
}
