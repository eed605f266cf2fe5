//! What is written is read again; what other programs write is read; what nobody should write is refused without harm.

use std::io::Read;
use std::process::Command;

use proptest::prelude::*;

use super::*;

fn archive(entries: &[(Entry, Vec<u8>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (entry, content) in entries {
        match entry.kind {
            Kind::File => writer.add_file(entry, content.as_slice()).unwrap(),
            _ => writer.add(entry).unwrap(),
        }
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, TarError> {
    let mut reader = Reader::new(bytes);
    let mut found = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        let mut content = Vec::new();
        reader.read_to_end(&mut content)?;
        found.push((entry, content));
    }
    reader.drain()?;
    Ok(found)
}

fn entry() -> impl Strategy<Value = (Entry, Vec<u8>)> {
    let kind = prop::sample::select(vec![
        Kind::File,
        Kind::Directory,
        Kind::Symlink,
        Kind::HardLink,
        Kind::CharDevice,
    ]);
    let name = prop_oneof!["[a-z/]{1,30}", "[a-zé ]{90,300}"].prop_map(String::into_bytes);
    let xattrs = proptest::collection::btree_map(
        "user\\.[a-z]{1,10}",
        proptest::collection::vec(any::<u8>(), 0..40),
        0..3,
    );
    (
        kind,
        name.clone(),
        name,
        0..0o10000u32,
        0..u32::MAX,
        any::<i32>(),
        0..1_000_000_000u32,
        xattrs,
        0..3000usize,
    )
        .prop_map(|(kind, path, link, mode, owner, seconds, nanoseconds, xattrs, size)| {
            let mut entry = Entry::new(kind, &path, mode);
            (entry.uid, entry.gid) = (owner, owner / 2);
            entry.mtime = Mtime { seconds: i64::from(seconds) * 100, nanoseconds };
            entry.xattrs = xattrs.into_iter().map(|(name, value)| (name.into_bytes(), value)).collect();
            match kind {
                Kind::Symlink | Kind::HardLink => entry.link = link,
                Kind::CharDevice => entry.device = (5, 1),
                _ => {}
            }
            let content = if kind == Kind::File { vec![b'x'; size] } else { Vec::new() };
            entry.size = content.len() as u64;
            if size > 0 && kind == Kind::File {
                entry.segments.push(Segment { offset: 0, length: entry.size });
            }
            (entry, content)
        })
}

proptest! {
    #[test]
    fn what_is_written_is_read(entries in proptest::collection::vec(entry(), 0..6)) {
        prop_assert_eq!(read(&archive(&entries)).unwrap(), entries);
    }

    #[test]
    fn cut_or_changed_archives_are_answered(
        entries in proptest::collection::vec(entry(), 1..4),
        cut in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        fix in any::<bool>(),
    ) {
        let mut bytes = archive(&entries);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if fix {
            right_the_sums(&mut bytes);
        }
        let _ = read(&bytes);
        let _ = read(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn any_block_with_a_right_sum_is_answered(mut bytes in proptest::collection::vec(any::<u8>(), BLOCK * 3), letter in
        prop::sample::select(b"0123456xgLKS7\0V".to_vec())) {
        bytes[156] = letter;
        for field in [100..108, 108..116, 116..124, 124..136, 136..148, 329..337, 337..345, 483..495] {
            for at in field.clone() {
                bytes[at] = b'0' + bytes[at] % 8;
            }
            bytes[field.end - 1] = 0;
            bytes[field.start..field.end - 4].fill(b'0');
        }
        right_the_sums(&mut bytes);
        let _ = read(&bytes);
    }
}

/// Makes the sum of every block right, so that what lies behind it is reached.
fn right_the_sums(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(BLOCK).filter(|block| block.iter().any(|byte| *byte != 0)) {
        block[148..156].copy_from_slice(b"        ");
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

#[test]
fn gnu_tar_writes_sparse_files_and_long_names() {
    let folder = tempfile::tempdir().unwrap();
    let long = "n".repeat(150);
    let file = std::fs::File::create(folder.path().join(&long)).unwrap();
    let mut expected = vec![0; 40 << 16];
    for piece in 0..40u8 {
        let at = usize::from(piece) << 16;
        expected[at..at + 4096].fill(piece + 1);
        std::os::unix::fs::FileExt::write_all_at(&file, &[piece + 1; 4096], at as u64).unwrap();
    }
    file.set_len(expected.len() as u64).unwrap();
    for form in [
        &["--format=gnu"][..],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=pax", "--sparse-version=1.0"],
        &["--format=oldgnu"],
    ] {
        let made = Command::new("tar")
            .args(form)
            .args(["--sparse", "-cf", "-", "-C"])
            .arg(folder.path())
            .arg(&long)
            .output();
        let found = read(&made.unwrap().stdout).unwrap();
        let [(entry, content)] = found.as_slice() else { panic!("{form:?}: {found:?}") };
        assert_eq!((entry.path.as_slice(), entry.size), (long.as_bytes(), expected.len() as u64), "{form:?}");
        assert!(
            entry.segments.len() >= 40 && content.len() < expected.len(),
            "{form:?}: {}",
            entry.segments.len()
        );
        let mut whole = vec![0; expected.len()];
        let mut at = 0;
        for segment in &entry.segments {
            let (offset, length) = (segment.offset as usize, segment.length as usize);
            whole[offset..offset + length].copy_from_slice(&content[at..at + length]);
            at += length;
        }
        assert!(whole == expected, "{form:?}");
    }
}

#[test]
fn lengths_that_are_only_claimed_cost_nothing() {
    let mut entry = Entry::new(Kind::File, b"x", 0o644);
    entry.size = 1 << 60;
    let mut writer = Writer::new(Vec::new());
    assert!(writer.add_file(&entry, &b"short"[..]).is_err());
    let mut bytes = writer.finish().unwrap();
    assert!(matches!(read(&bytes), Err(TarError::Truncated)));
    // The same length for a long name or records is refused before any of it is read.
    for letter in [b'L', b'x'] {
        // The entry's own header is the last one, after a record with its length.
        let header = bytes.len() - 2 * BLOCK - 5 - BLOCK;
        bytes[header + 156] = letter;
        bytes[header + 124..header + 136].copy_from_slice(b"77777777777\0");
        right_the_sums(&mut bytes[header..header + BLOCK]);
        assert!(matches!(read(&bytes[header..]), Err(TarError::TooLarge { .. })));
    }
}

#[test]
fn numbers_are_octal_or_binary() {
    for (field, value) in [
        (&b"0000644\0"[..], Some(0o644)),
        (b"    644 ", Some(0o644)),
        (b"\0\0\0\0\0\0\0\0", Some(0)),
        (b"\x80\0\0\0\0\0\x01\0", Some(256)),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
        (b"\x80\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
        (b"0000648\0", None),
        (b"-000644\0", None),
    ] {
        assert_eq!(header::number(field).ok(), value, "{field:?}");
    }
}
