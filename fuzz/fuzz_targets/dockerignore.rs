//! `.dockerignore` files of strangers. The last line of the input is the path that is asked about.

#![no_main]

use dockerfile::{Entry, IgnoreFile, Listing};
use fuzz::seeds;
use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: seeds(|| {
        [
            "# comment\n*.md\n!README.md\n\nsrc/main.rs",
            "**/node_modules\n!a/**/b?\n[a-c]*\\*\n a/node_modules/x",
            "/a/./../b/\n**c\n** /x/**/y\nb/d",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    }),
    |text: &str| {
        let (patterns, path) = text.rsplit_once('\n').unwrap_or(("", text));
        let Ok(ignore) = IgnoreFile::parse(patterns) else { return };
        let ignored = ignore.ignores(path);
        let mut listing = Listing::new();
        if listing.insert(path, Entry::File).is_ok() && !path.contains("./") {
            let kept = listing.without(&ignore);
            assert_eq!(kept.iter().any(|(_, entry)| *entry == Entry::File), !ignored);
        }
    }
);
