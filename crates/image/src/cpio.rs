//! Writes the archive format kernels take an initramfs in (`newc`). Deterministic: no times, no inode numbers of the
//! host, entries in the order of their paths.

use std::collections::BTreeMap;

const MODE_DIRECTORY: u32 = 0o040_000;
const MODE_FILE: u32 = 0o100_000;
const MODE_CHARACTER_DEVICE: u32 = 0o020_000;
const NAME_LENGTH_MAX: usize = 4096;

/// Why an archive could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpioError {
    /// The path is empty, absolute, too long or has a `.`, `..` or NUL in it.
    #[error("`{path}` cannot be a path in an archive")]
    BadPath {
        /// The refused path.
        path: String,
    },
    /// The format counts bytes in 32 bits.
    #[error("`{path}` is too large for the archive format")]
    TooLarge {
        /// The refused entry.
        path: String,
    },
}

#[derive(Debug)]
enum Node {
    Directory,
    File(Vec<u8>),
    CharacterDevice { major: u32, minor: u32 },
}

/// An archive being put together. Parent directories are added by themselves.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    /// A parent's path sorts before its children's: the order in which the kernel must meet them.
    entries: BTreeMap<String, (u32, Node)>,
}

impl Archive {
    pub(crate) fn directory(&mut self, path: &str, permissions: u32) -> Result<(), CpioError> {
        self.insert(path, MODE_DIRECTORY | permissions, Node::Directory)
    }

    pub(crate) fn file(&mut self, path: &str, permissions: u32, content: Vec<u8>) -> Result<(), CpioError> {
        if u32::try_from(content.len()).is_err() {
            return Err(CpioError::TooLarge { path: path.to_owned() });
        }
        self.insert(path, MODE_FILE | permissions, Node::File(content))
    }

    pub(crate) fn character_device(
        &mut self,
        path: &str,
        permissions: u32,
        (major, minor): (u32, u32),
    ) -> Result<(), CpioError> {
        self.insert(path, MODE_CHARACTER_DEVICE | permissions, Node::CharacterDevice { major, minor })
    }

    /// The archive's bytes.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut output = Vec::new();
        for (index, (path, (mode, node))) in self.entries.iter().enumerate() {
            // Distinct inode numbers, so nothing is taken for a hard link; 32 bits hold far more than fits in memory.
            let inode = index as u32 + 1;
            match node {
                Node::Directory => header(&mut output, path, [inode, *mode, 2, 0, 0, 0]),
                Node::File(content) => {
                    header(&mut output, path, [inode, *mode, 1, content.len() as u32, 0, 0]);
                    output.extend_from_slice(content);
                    pad(&mut output);
                }
                Node::CharacterDevice { major, minor } => {
                    header(&mut output, path, [inode, *mode, 1, 0, *major, *minor]);
                }
            }
        }
        header(&mut output, "TRAILER!!!", [0, 0, 1, 0, 0, 0]);
        output
    }

    fn insert(&mut self, path: &str, mode: u32, node: Node) -> Result<(), CpioError> {
        let fine = path.len() < NAME_LENGTH_MAX
            && !path.contains('\0')
            && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !fine {
            return Err(CpioError::BadPath { path: path.to_owned() });
        }
        for (end, _) in path.match_indices('/') {
            let parent = path[..end].to_owned();
            self.entries.entry(parent).or_insert((MODE_DIRECTORY | 0o755, Node::Directory));
        }
        self.entries.insert(path.to_owned(), (mode, node));
        Ok(())
    }
}

/// Writes one header and the name after it. `[inode, mode, links, size, major, minor]`; owner, group, time, device
/// and checksum are zero.
fn header(output: &mut Vec<u8>, name: &str, [inode, mode, links, size, major, minor]: [u32; 6]) {
    let name_length = name.len() as u32 + 1;
    output.extend_from_slice(b"070701");
    for field in [inode, mode, 0, 0, links, 0, size, 0, 0, major, minor, name_length, 0] {
        output.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    output.extend_from_slice(name.as_bytes());
    output.push(0);
    pad(output);
}

fn pad(output: &mut Vec<u8>) {
    output.resize(output.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Path, mode, content, device.
    type Entry = (String, u32, Vec<u8>, (u32, u32));

    /// Reads an archive back.
    fn read(mut bytes: &[u8]) -> Vec<Entry> {
        let mut entries = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |index: usize| {
                let text = std::str::from_utf8(&bytes[6 + index * 8..14 + index * 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_length) = (field(1), field(6) as usize, field(11) as usize);
            assert_eq!(field(5), 0, "the time must not depend on when it was built");
            let device = (field(9), field(10));
            let name = String::from_utf8(bytes[110..110 + name_length - 1].to_vec()).unwrap();
            let start = (110 + name_length).next_multiple_of(4);
            let content = bytes[start..start + size].to_vec();
            bytes = &bytes[(start + size).next_multiple_of(4)..];
            if name == "TRAILER!!!" {
                assert!(bytes.is_empty());
                return entries;
            }
            entries.push((name, mode, content, device));
        }
    }

    #[test]
    fn what_was_put_in_comes_out_sorted_with_parents_first() {
        let mut archive = Archive::default();
        archive.file("modules/a-b.ko", 0o644, b"module".to_vec()).unwrap();
        archive.file("init", 0o755, b"12345".to_vec()).unwrap();
        archive.character_device("dev/console", 0o600, (5, 1)).unwrap();
        archive.directory("proc", 0o555).unwrap();
        let entries = read(&archive.finish());
        let paths: Vec<&str> = entries.iter().map(|entry| entry.0.as_str()).collect();
        assert_eq!(paths, ["dev", "dev/console", "init", "modules", "modules/a-b.ko", "proc"]);
        assert_eq!(entries[1].1, 0o020_600);
        assert_eq!(entries[1].3, (5, 1));
        assert_eq!(entries[2].1, 0o100_755);
        assert_eq!(entries[2].2, b"12345");
        assert_eq!(entries[5].1, 0o040_555);
    }

    #[test]
    fn paths_that_leave_the_archive_are_refused() {
        for path in ["", "/init", "a//b", "../etc", "a/./b", "a\0b", "a/"] {
            let refused = Archive::default().file(path, 0o644, Vec::new());
            assert!(matches!(refused, Err(CpioError::BadPath { .. })), "{path:?}");
        }
    }

    #[test]
    fn other_programs_read_it() {
        let mut archive = Archive::default();
        archive.file("etc/name", 0o644, b"x".to_vec()).unwrap();
        archive.directory("empty", 0o755).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("archive");
        std::fs::write(&path, archive.finish()).unwrap();
        let Ok(output) =
            std::process::Command::new("cpio").arg("-it").stdin(std::fs::File::open(&path).unwrap()).output()
        else {
            eprintln!("SKIPPED: `cpio` is not installed");
            return;
        };
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "empty\netc\netc/name\n");
    }
}
