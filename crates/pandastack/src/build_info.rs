//! Which program this is: its version, what it was built from and when. `build.rs` finds out.

use server::Build;

/// The version, then commit and day where they are known: `0.11.0 (abc1234, 2026-11-18)`.
pub(crate) const LINE: &str = env!("PANDASTACK_VERSION_LINE");

/// What it was built from, for the server to tell.
pub(crate) fn build() -> Build {
    Build {
        commit: env!("PANDASTACK_BUILT_FROM").to_owned(),
        built_at: env!("PANDASTACK_BUILT_AT").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_begins_with_the_version() {
        let rest = LINE.strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
        assert!(rest.is_empty() || (rest.starts_with(" (") && rest.ends_with(')')), "{LINE}");
        let day = build().built_at;
        assert!(day == "unknown" || (day.len() == 20 && day.ends_with('Z')), "{day}");
    }
}
