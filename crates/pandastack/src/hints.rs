//! What the server says, in the words of the command line: it speaks of fields and routes, and here there are options and commands.
//!
//! The only place where texts of the server are looked into.

use client::Refusal;

/// Whole hints, and what they are here.
const HINTS: [(&str, &str); 11] = [
    ("raise the timeout, or run it in the background", BACKGROUND),
    ("raise the timeout, or run it as a process in the background", BACKGROUND),
    (
        "choose another name, or ask for the old one to be replaced: the new one takes its place when it is done",
        "choose another name with --name, or replace the old one with --replace: the new one takes its place when it is done",
    ),
    ("start it cold, from its disk", COLD),
    ("its files are kept; start it cold, from its disk", COLD),
    ("wake it first", "pandastack sandbox wake ID"),
    ("resume it first", "pandastack sandbox resume ID"),
    (
        "its owner opens it by adding it to the sandbox's ports",
        "its owner opens it: pandastack sandbox add-port ID PORT",
    ),
    (
        "delete that sandbox first, or attach the volume read-only everywhere",
        "delete that sandbox first: pandastack sandbox delete ID",
    ),
    (
        "attach the volume read-only, or take the snapshot of a sandbox without it",
        "attach the volume read-only with --volume NAME:ro, or take the snapshot of a sandbox without it",
    ),
    (
        "the routes are described at /docs and /openapi.json",
        "the server may be older than this program: compare pandastack --version with /version of the server",
    ),
];
const BACKGROUND: &str =
    "raise it with --timeout, or run it in the background: pandastack sandbox process start ID COMMAND";
const COLD: &str = "its files are kept; start it from its disk: pandastack sandbox wake --cold ID";

/// Words of requests, and the options that stand for them here. Longer ones come first.
const WORDS: [(&str, &str); 16] = [
    ("POST /v1/sandboxes/{id}/processes", "pandastack sandbox process start"),
    (
        "create it with network \"all\", or open the network of this one",
        "create it with --network all, or open the network of this one: pandastack sandbox update ID --network all",
    ),
    ("with replace=true", "with --replace"),
    ("replace=true", "--replace"),
    ("timeout_seconds", "--timeout"),
    ("expires_in_seconds", "--expires"),
    ("expires_in_days", "--expires"),
    ("ttl_seconds", "--ttl"),
    ("timeout_ms", "--timeout"),
    ("memory_mb", "--memory"),
    ("disk_gb", "--disk"),
    ("from_snapshot", "--from-snapshot"),
    ("cleanup_siblings", "--cleanup-siblings"),
    ("\"persistent\"", "--persistent"),
    ("leave cpu and", "leave --cpu and"),
    ("all=true", "--all"),
];

/// What may help after a refusal.
pub(crate) fn hint(refusal: &Refusal) -> Option<String> {
    if refusal.status == 401 {
        return Some("pandastack auth login".to_owned());
    }
    if let Some(hint) = &refusal.hint {
        return Some(translated(hint));
    }
    match refusal.code.as_str() {
        "timeout" => Some(BACKGROUND.to_owned()),
        _ => None,
    }
}

/// Text of the server's, with options instead of fields.
pub(crate) fn translated(text: &str) -> String {
    if let Some((_, here)) = HINTS.iter().find(|(there, _)| *there == text) {
        return (*here).to_owned();
    }
    WORDS.iter().fold(text.to_owned(), |text, (there, here)| text.replace(there, here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_options() {
        for (there, here) in [
            ("raise the timeout, or run it in the background", BACKGROUND),
            ("raise timeout_seconds", "raise --timeout"),
            ("ask again with replace=true", "ask again with --replace"),
            (
                "disk_gb is less than the 6 GiB of what it starts from: a disk can only grow",
                "--disk is less than the 6 GiB of what it starts from: a disk can only grow",
            ),
            (
                "leave cpu and memory_mb out, or create a sandbox of that size from a template",
                "leave --cpu and --memory out, or create a sandbox of that size from a template",
            ),
            ("they are abcd1, abcd2", "they are abcd1, abcd2"),
        ] {
            assert_eq!(translated(there), here);
        }
    }

    #[test]
    fn a_hint_for_a_closed_network_names_commands() {
        let hint = translated(
            "the sandbox's network is closed, so it reaches nothing outside itself; create it with network \"all\", \
             or open the network of this one",
        );
        assert!(hint.contains("--network all") && hint.contains("sandbox update ID --network all"), "{hint}");
    }
}
