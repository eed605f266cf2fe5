//! Signed preview links: nothing passes that was not signed, and nothing signed but malformed does harm.

#![no_main]

use control::fuzzing::{preview_token, signed};
use fuzz::seeds;
use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: seeds(|| {
        let body = br#"{"s":"abcdefghjk","t":"abcdefghjk","p":8080,"e":99,"a":["/x"]}"#;
        vec![body.to_vec(), signed(body).expect("a link").into_bytes(), b"a.b".to_vec()]
    }),
    |data: &[u8]| {
        if let Ok(text) = std::str::from_utf8(data) {
            let _ = preview_token(text);
        }
        let link = signed(data).expect("anything can be signed");
        if let Some(grant) = preview_token(&link) {
            if grant.is_limited() {
                assert!(!grant.covers("/x/../y") && !grant.covers("/x/%2e%2E/y"));
            }
            assert!(preview_token(&link[..link.len() - 2]).is_none());
        }
    }
);
