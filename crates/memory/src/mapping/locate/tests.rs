//! Lines of `/proc/PID/maps` as VMMs leave them, and what is found in them.

#![allow(clippy::single_range_in_vec_init)] // Lists of ranges are what is checked here.

use super::*;

const GIB: u64 = 1 << 30;

/// Parts as (offset, address, length) and what was given back.
type Expected<'a> = (&'a [(u64, u64, u64)], &'a [Range<u64>]);

/// Looks for a file with inode 42.
fn check(maps: &str, length: u64, expected: Option<Expected<'_>>) {
    let found = locate(maps, length, |line| line.inode == 42);
    let found = found.map(|found| {
        let parts: Vec<_> = found.parts.iter().map(|part| (part.offset, part.address, part.length)).collect();
        (parts, found.given_back)
    });
    let expected = expected.map(|(parts, given_back)| (parts.to_vec(), given_back.to_vec()));
    assert_eq!(found, expected, "{maps}");
}

#[test]
fn a_mapping_is_found_whole_or_split() {
    let whole: Expected<'_> = (&[(0, 0x1000, 0x2000)], &[]);
    check("1000-3000 rw-p 00000000 fe:00 42 /ram\n", 0x2000, Some(whole));
    check("1000-3000 rw-s 00000000 fe:00 42 /ram\n", 0x2000, Some(whole));
    check("1000-2000 rw-p 0 fe:00 42 /ram\n2000-3000 r--p 1000 fe:00 42 /ram\n", 0x2000, Some(whole));
    let sharing = |maps| locate(maps, 0x2000, |line| line.inode == 42).map(|found| found.sharing);
    assert_eq!(sharing("1000-3000 rw-p 0 fe:00 42 /ram\n"), Some(Sharing::Private));
    assert_eq!(sharing("1000-3000 rw-s 0 fe:00 42 /ram\n"), Some(Sharing::Shared));
}

#[test]
fn what_is_not_the_whole_file_is_not_found() {
    check("", 0x2000, None);
    check("1000-3000 rw-p 00000000 fe:00 43 /other\n", 0x2000, None);
    check("1000-2000 rw-p 00000000 fe:00 42 /ram\n", 0x2000, None);
    check("1000-4000 rw-p 00000000 fe:00 42 /ram\n", 0x2000, None);
    check("1000-3000 rw-p 00001000 fe:00 42 /ram\n", 0x2000, None);
    check("1000-2000 rw-p 0 fe:00 42 /ram\n2000-3000 rw-p 0 fe:00 42 /ram\n", 0x2000, None);
    check("1000-2000 rw-p 0 fe:00 42 /ram\n2000-3000 rw-s 1000 fe:00 42 /ram\n", 0x2000, None);
    check("1000-2000 rw-p 0 fe:00 42 /ram\n5000-6000 rw-p fffffffffffff000 fe:00 42 /ram\n", 0x2000, None);
}

#[test]
fn a_second_mapping_counts_when_the_first_is_partial() {
    check(
        "1000-2000 r--p 0 fe:00 42 /ram\n5000-6000 rw-p 0 fe:00 42 /ram\n6000-7000 rw-p 1000 fe:00 42 /ram\n",
        0x2000,
        Some((&[(0, 0x5000, 0x2000)], &[])),
    );
}

#[test]
fn parts_lie_in_any_order() {
    let apart = "1000-2000 rw-p 0 fe:00 42 /ram\n3000-5000 rw-p 1000 fe:00 42 /ram\n";
    check(apart, 0x3000, Some((&[(0, 0x1000, 0x1000), (0x1000, 0x3000, 0x2000)], &[])));
    let below = "1000-3000 rw-p 1000 fe:00 42 /ram\n3000-4000 rw-p 0 fe:00 42 /ram\n";
    check(below, 0x3000, Some((&[(0, 0x3000, 0x1000), (0x1000, 0x1000, 0x2000)], &[])));
}

#[test]
fn pieces_that_were_given_back_belong_to_their_part() {
    let middle = "10000-11000 rw-p 0 fe:00 42 /ram\n11000-14000 rw-p 0 00:00 0 \n14000-15000 rw-p 4000 fe:00 42 /ram\n";
    check(middle, 0x5000, Some((&[(0, 0x10000, 0x5000)], &[0x1000..0x4000])));
    let edges =
        "10000-12000 rw-p 0 00:00 0 \n12000-13000 rw-p 2000 fe:00 42 /ram\n13000-15000 rw-p 0 00:00 0\n";
    check(edges, 0x5000, Some((&[(0, 0x10000, 0x5000)], &[0..0x2000, 0x3000..0x5000])));
    let in_lines = "10000-11000 rw-p 0 fe:00 42 /ram\n11000-12000 rw-p 0 00:00 0 \n12000-13000 rwxp 0 00:00 0 \n13000-14000 rw-p 3000 fe:00 42 /ram\n";
    check(in_lines, 0x4000, Some((&[(0, 0x10000, 0x4000)], &[0x1000..0x3000])));
}

#[test]
fn a_hole_or_a_stranger_in_the_middle_is_not_memory() {
    for between in [
        "",
        "11000-13000 rw-p 0 00:00 0 \n",
        "11000-14000 rw-p 0 fe:00 7 /x\n",
        "11000-14000 rw-s 0 00:00 0 \n",
        "11000-14000 ---p 0 00:00 0 \n",
        "11000-14000 rw-p 0 00:00 0 [heap]\n",
    ] {
        let maps =
            format!("10000-11000 rw-p 0 fe:00 42 /ram\n{between}14000-15000 rw-p 4000 fe:00 42 /ram\n");
        check(&maps, 0x5000, None);
    }
    check("10000-11000 rw-p 1000 fe:00 42 /ram\n", 0x2000, None);
    check("f000-10000 rw-p 0 00:00 0 [stack]\n10000-11000 rw-p 1000 fe:00 42 /ram\n", 0x2000, None);
}

#[test]
fn memory_given_back_at_a_border_goes_to_its_side() {
    // Nothing else is anonymous there, so both sides are known by their length.
    let exact = "10000-11000 rw-p 0 fe:00 42 /ram\n11000-12000 rw-p 0 00:00 0 \n20000-22000 rw-p 0 00:00 0 \n22000-23000 rw-p 4000 fe:00 42 /ram\n";
    check(exact, 0x5000, Some((&[(0, 0x10000, 0x2000), (0x2000, 0x20000, 0x3000)], &[0x1000..0x4000])));
    // More is anonymous than is missing: it could be anywhere.
    let doubtful = exact.replace("11000-12000", "11000-13000");
    check(&doubtful, 0x5000, None);
    // The same, where a part is known to begin.
    if cfg!(target_arch = "x86_64") {
        let (low, high) = (0x7f00_0000_0000_u64, 0x7e00_0000_0000_u64);
        let maps = format!(
            "{high:x}-{:x} rw-p 0 00:00 0 \n{:x}-{:x} rw-p c0100000 fe:00 42 /ram\n{low:x}-{:x} rw-p 0 fe:00 42 /ram\n{:x}-{:x} rw-p 0 00:00 0 \n",
            high + 0x10_0000,
            high + 0x10_0000,
            high + GIB,
            low + 3 * GIB - 0x1000,
            low + 3 * GIB - 0x1000,
            low + 3 * GIB + 0x5000,
        );
        let expected =
            (&[(0, low, 3 * GIB), (3 * GIB, high, GIB)][..], &[3 * GIB - 0x1000..3 * GIB + 0x10_0000][..]);
        check(&maps, 4 * GIB, Some(expected));
    }
}

#[test]
fn a_part_that_was_given_back_whole_is_not_looked_for_among_strangers() {
    if cfg!(target_arch = "x86_64") {
        let tail = format!(
            "1000-{:x} rw-p 0 fe:00 42 /ram\n{:x}-{:x} rw-p 0 00:00 0 \n",
            3 * GIB + 0x1000,
            3 * GIB + 0x1000,
            5 * GIB
        );
        check(&tail, 4 * GIB, None);
        let head = format!(
            "1000-{:x} rw-p 0 00:00 0 \n{:x}-{:x} rw-p c0000000 fe:00 42 /ram\n",
            3 * GIB + 0x1000,
            3 * GIB + 0x1000,
            4 * GIB + 0x1000
        );
        check(&head, 4 * GIB, None);
    }
}

#[test]
fn garbage_lines_are_passed_over() {
    for text in
        ["", "x", "1000", "1000-2000", "2000-1000 rw-p 0 0:0 42", "zz-yy rw-p 0 0:0 42", "1-2 rw-x 0 0:0 1"]
    {
        assert_eq!(Line::parse(text), None, "{text}");
    }
}
