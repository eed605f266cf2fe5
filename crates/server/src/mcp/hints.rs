//! What the services say, in the words of the tools: they speak of requests, and here there are tools and arguments.
//!
//! The only place of these servers where texts of the services are looked into.

use super::tool::Scope;

/// A text of the services, and what it is for the tools of the workspace and for those of one sandbox.
type Told = (&'static str, &'static str, &'static str);

/// Whole hints.
const HINTS: [Told; 8] = [
    ("raise the timeout, or run it in the background", BACKGROUND, BACKGROUND),
    ("raise the timeout, or run it as a process in the background", BACKGROUND, BACKGROUND),
    ("start it cold, from its disk", COLD, COLD_INSIDE),
    ("its files are kept; start it cold, from its disk", COLD, COLD_INSIDE),
    ("resume it first", "wake_sandbox lets it go on", "its owner lets it go on"),
    (
        "delete what you no longer need, or ask the operator for more",
        "delete what you no longer need with delete_sandbox or delete_snapshot, or ask the operator for more",
        "the owner deletes what is no longer needed, or asks the operator for more",
    ),
    (
        "delete that sandbox first, or attach the volume read-only everywhere",
        "delete that sandbox first with delete_sandbox, or set read_only for it in volumes everywhere",
        "",
    ),
    (
        "attach the volume read-only, or take the snapshot of a sandbox without it",
        "create the sandbox with read_only for it in volumes, or take the snapshot of a sandbox without it",
        "",
    ),
];
const BACKGROUND: &str =
    "raise timeout_seconds, or start it with start_process and read what it writes with process_logs";
const COLD: &str = "its files are kept: wake_sandbox with cold starts it from its disk";
const COLD_INSIDE: &str = "its files are kept: its owner starts it from its disk";

/// Words inside of texts.
const WORDS: [Told; 4] = [
    (
        "create it with network \"all\", or open the network of this one",
        "give network \"all\" to create_sandbox, or to update_sandbox for this one",
        "its owner opens the network",
    ),
    (
        "; its operator adds one with --uplink",
        "; only its operator can change that",
        "; only its operator can change that",
    ),
    (
        "made anew when code is run the next time",
        "made anew by the next run_code",
        "made anew by the next run_code",
    ),
    ("cmd required", "command must not be empty", "command must not be empty"),
];

/// Text of the services, with tools and arguments instead of requests.
pub(super) fn translated(text: &str, scope: Scope) -> String {
    let here = |told: &Told| match scope {
        Scope::Workspace => told.1,
        Scope::Sandbox => told.2,
    };
    if let Some(told) = HINTS.iter().find(|told| told.0 == text) {
        return here(told).to_owned();
    }
    WORDS.iter().fold(text.to_owned(), |text, told| text.replace(told.0, here(told)))
}

/// What may help where the services say nothing, because over HTTP it is plain.
pub(super) fn of_its_own(message: &str, scope: Scope) -> Option<&'static str> {
    if message == "no such process" {
        return Some("list_processes tells which there are");
    }
    let known = [
        ("there is no sandbox ", "list_sandboxes tells which there are"),
        ("there is no snapshot ", "list_snapshots tells which there are"),
        ("unknown template ", "list_templates tells which there are"),
    ];
    let hint = known.iter().find(|(begins, _)| message.starts_with(begins)).map(|(_, hint)| *hint);
    hint.filter(|_| scope == Scope::Workspace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::tool::Tool;
    use crate::mcp::{sandbox_tools, workspace_tools};

    /// Names in a text that look like a tool's or an argument's: words with `_`.
    fn names(text: &str) -> Vec<&str> {
        let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        words.filter(|word| word.contains('_')).collect()
    }

    #[test]
    fn what_is_named_are_tools_and_arguments_that_are_there() {
        let texts = |scope| {
            let told = HINTS.iter().chain(&WORDS).map(move |told| translated(told.0, scope));
            told.chain(
                ["there is no sandbox x", "there is no snapshot x", "unknown template x", "no such process"]
                    .iter()
                    .filter_map(move |text| of_its_own(text, scope))
                    .map(str::to_owned),
            )
        };
        let check = |scope, tools: &[Tool]| {
            for text in texts(scope) {
                for foreign in ["/v1", "POST", "--", "pandastack", "timeout_ms"] {
                    assert!(!text.contains(foreign), "{text}");
                }
                for name in names(&text) {
                    let named = |tool: &Tool| tool.name == name || (tool.arguments)().get(name).is_some();
                    let inside = name == "read_only" || tools.iter().any(named);
                    assert!(inside, "{name} of {text:?} is not there");
                }
            }
        };
        check(Scope::Workspace, &workspace_tools::TOOLS);
        check(Scope::Sandbox, &sandbox_tools::TOOLS);
    }

    #[test]
    fn hints_of_the_services_name_tools() {
        let hint = |text| translated(text, Scope::Workspace);
        assert_eq!(hint("raise the timeout, or run it in the background"), BACKGROUND);
        assert_eq!(hint("cmd required"), "command must not be empty");
        assert_eq!(hint("they are abcd1, abcd2"), "they are abcd1, abcd2");
        let closed = "the sandbox's network is closed; create it with network \"all\", or open the network of this one";
        assert!(hint(closed).contains("update_sandbox"), "{}", hint(closed));
        assert!(!translated(closed, Scope::Sandbox).contains("update_sandbox"));
        assert_eq!(of_its_own("there is no sandbox \"x\"", Scope::Sandbox), None);
    }
}
