//! The first program of a kernel that is tried, and the archive it lies in: a few machine instructions that say one line.

/// Where the program is loaded; its headers are part of it.
const BASE: u64 = 0x40_0000;
const HEADERS: usize = 64 + 56;

/// Every kernel opens it as the first program's output before anything else exists.
const CONSOLE: Entry<'static> = Entry { name: "dev/console", mode: 0o020_600, device: (5, 1), content: &[] };

/// A file system in memory (cpio, as kernels take it) whose `/init` says `line` and ends the machine.
pub(super) fn archive(line: &str) -> Vec<u8> {
    let init = program(&format!("\n{line}\n"), &RESTART);
    let entries = [
        Entry { name: "dev", mode: 0o040_755, device: (0, 0), content: &[] },
        CONSOLE,
        Entry { name: "init", mode: 0o100_755, device: (0, 0), content: &init },
        Entry { name: "TRAILER!!!", mode: 0, device: (0, 0), content: &[] },
    ];
    let mut archive = Vec::new();
    for (number, entry) in (1..).zip(&entries) {
        entry.write(number, &mut archive);
    }
    archive
}

struct Entry<'a> {
    name: &'a str,
    mode: u32,
    device: (u32, u32),
    content: &'a [u8],
}

impl Entry<'_> {
    fn write(&self, number: u32, archive: &mut Vec<u8>) {
        let (size, name_size) = (self.content.len() as u32, self.name.len() as u32 + 1);
        let (major, minor) = self.device;
        archive.extend(b"070701");
        // Number, mode, owner, group, links, time, size, device it is on, device it is, length of its name, sum.
        for field in [number, self.mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0] {
            archive.extend(format!("{field:08X}").as_bytes());
        }
        archive.extend(self.name.as_bytes());
        archive.push(0);
        pad(archive);
        archive.extend(self.content);
        pad(archive);
    }
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// `reboot(LINUX_REBOOT_CMD_RESTART)`: a machine without a way to restart ends.
#[rustfmt::skip]
const RESTART: [u8; 22] = [
    0xbf, 0xad, 0xde, 0xe1, 0xfe, // mov edi, LINUX_REBOOT_MAGIC1
    0xbe, 0x69, 0x19, 0x12, 0x28, // mov esi, LINUX_REBOOT_MAGIC2
    0xba, 0x67, 0x45, 0x23, 0x01, // mov edx, LINUX_REBOOT_CMD_RESTART
    0xb8, 0xa9, 0, 0, 0, 0x0f, 0x05, // mov eax, reboot; syscall
];

/// A program for x86-64 without anything around it: `write(1, text)`, what ends it, and a loop in case that returns.
fn program(text: &str, end: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut code = Vec::new();
    code.extend([0xbf, 1, 0, 0, 0]); // mov edi, 1
    code.extend([0x48, 0x8d, 0x35]); // lea rsi, [rip + distance of the text]
    let distance_at = code.len();
    code.extend([0; 4]);
    code.push(0xba); // mov edx, length
    code.extend(length);
    code.extend([0xb8, 1, 0, 0, 0, 0x0f, 0x05]); // mov eax, write; syscall
    code.extend(end);
    code.extend([0xeb, 0xfe]); // jmp to itself
    let distance = u32::try_from(code.len() - distance_at - 4).unwrap_or(u32::MAX);
    code[distance_at..distance_at + 4].copy_from_slice(&distance.to_le_bytes());
    code.extend(text.as_bytes());

    let size = (HEADERS + code.len()) as u64;
    let mut file = Vec::with_capacity(HEADERS + code.len());
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]); // an executable for x86-64
    file.extend((BASE + HEADERS as u64).to_le_bytes()); // where it begins
    file.extend(64u64.to_le_bytes()); // where its program header is
    file.extend(0u64.to_le_bytes()); // no sections
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]); // loaded, readable and executable
    for word in [0, BASE, BASE, size, size, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_program_says_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("init");
        // Here it ends itself and not the machine: xor edi, edi; mov eax, exit; syscall.
        let file = program("\nright\n", &[0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]);
        std::fs::write(&path, file).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let said = std::process::Command::new(&path).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        assert_eq!(said.stdout, b"\nright\n");
    }

    #[test]
    fn the_archive_is_one_that_others_read() {
        let text = archive("right");
        assert!(text.len().is_multiple_of(4) && text.starts_with(b"070701"));
        let names: Vec<_> = ["dev\0", "dev/console\0", "init\0", "TRAILER!!!\0"]
            .iter()
            .map(|name| text.windows(name.len()).position(|window| window == name.as_bytes()).unwrap())
            .collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}
