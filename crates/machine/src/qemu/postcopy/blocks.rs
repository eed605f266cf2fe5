//! Blocks of memory that QEMU has, from the table that it shows of them.

/// Most blocks that are believed. A machine has five.
const BLOCKS_MAX: usize = 64;

/// A block of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) name: String,
    /// Its bytes.
    pub(super) length: u64,
    /// Where it lies in the process.
    pub(super) address: u64,
}

/// Reads the table: a line of titles, then one line for each block. `None` when it is not the table that is known.
pub(super) fn parse(table: &str) -> Option<Vec<Block>> {
    let mut lines = table.lines();
    let titles: Vec<&str> = lines.next()?.split_ascii_whitespace().collect();
    if titles != ["Block", "Name", "PSize", "Offset", "Used", "Total", "HVA", "RO"] {
        return None;
    }
    let blocks: Vec<Block> = lines.take(BLOCKS_MAX + 1).map(parse_line).collect::<Option<_>>()?;
    (blocks.len() <= BLOCKS_MAX).then_some(blocks)
}

fn parse_line(line: &str) -> Option<Block> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [name, "4", "KiB", _offset, length, _total, address, _mode] = words[..] else { return None };
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    Some(Block { name: name.to_owned(), length: number(length)?, address: number(address)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TITLES: &str = "              Block Name    PSize              Offset               Used              Total                HVA  RO\n";

    #[test]
    fn what_qemu_shows_is_read() {
        let lines = "                     ram    4 KiB  0x0000000000000000 0x0000000010000000 0x0000000010000000 0x00007f2c9fe00000  rw
    /rom@etc/acpi/tables    4 KiB  0x0000000010040000 0x0000000000001000 0x0000000000200000 0x00007f2cf6600000  ro\n";
        let block = |name: &str, length, address| Block { name: name.to_owned(), length, address };
        let expected = vec![
            block("ram", 0x1000_0000, 0x7f2c_9fe0_0000),
            block("/rom@etc/acpi/tables", 0x1000, 0x7f2c_f660_0000),
        ];
        assert_eq!(parse(&format!("{TITLES}{lines}")), Some(expected));
        assert_eq!(parse(TITLES), Some(Vec::new()));
    }

    #[test]
    fn other_tables_are_refused() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("Block Name PSize Offset Used Total RO\n"), None);
        let huge = "ram 2 MiB 0x0 0x1000 0x1000 0x7f0000000000 rw\n";
        assert_eq!(parse(&format!("{TITLES}{huge}")), None);
        let one = "ram 4 KiB 0x0 0x1000 0x1000 0x7f0000000000 rw\n";
        assert!(parse(&format!("{TITLES}{}", one.repeat(BLOCKS_MAX))).is_some());
        assert_eq!(parse(&format!("{TITLES}{}", one.repeat(BLOCKS_MAX + 1))), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*", line in "[ -~]{0,120}") {
            let _ = parse(&text);
            let _ = parse(&format!("{TITLES}{line}"));
        }
    }
}
