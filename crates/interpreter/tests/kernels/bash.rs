//! Bash.

use interpreter::Language;

use crate::driver::Driver;

fn start() -> Option<Driver> {
    Driver::start(Language::Bash, "bash")
}

#[test]
fn state_is_kept_and_output_is_told_apart() {
    let Some(mut bash) = start() else { return };
    let first =
        bash.run("x='ä  b'; f() { echo \"f:$1\"; }; declare -A m=([k]='v w'); cd /; echo out; echo err >&2");
    assert_eq!((first.stdout.as_str(), first.stderr.as_str(), first.exit), ("out\n", "err\n", 0));
    let second = bash.run("f \"$x\"; echo \"${m[k]}\"; pwd; (exit 4)");
    assert_eq!((second.stdout.as_str(), second.exit, second.count), ("f:ä  b\nv w\n/\n", 4, 2));
}

#[test]
fn exit_errexit_and_interrupt_end_the_cell_only() {
    let Some(mut bash) = start() else { return };
    bash.run("x=1; arr=(a 'b c'); f() { echo f; }; alias g='echo g'; export e=2");
    assert_eq!(bash.run("exit 9").exit, 9);
    let stopped = bash.run("set -euo pipefail; echo a; false; echo b");
    assert_eq!((stopped.stdout.as_str(), stopped.exit), ("a\n", 1));
    assert_eq!(bash.interrupt("echo began; sleep 1000").exit, 130);
    assert_eq!(bash.interrupt("echo began; while true; do :; done").exit, 130);
    let after = bash.run("echo $x ${arr[1]}; f; g; sh -c 'echo $e'; false; echo on");
    assert_eq!(after.stdout, "1 b c\nf\ng\n2\non\n");
}

#[test]
fn user_code_cannot_break_the_protocol() {
    let Some(mut bash) = start() else { return };
    assert_eq!(bash.run("cat; read line; echo \"<$line>\"").stdout, "<>\n");
    assert_eq!(bash.run("exec >/dev/null 2>&1; echo lost").stdout, "");
    assert_eq!(bash.run("echo back").stdout, "back\n");
    let wrong = bash.run("if then");
    assert!(wrong.exit != 0 && wrong.stderr.contains("syntax error"), "{wrong:?}");
    bash.line("run 0123");
    bash.line("nonsense \u{1e}");
    bash.line("run 0123456789abcdef");
    assert_eq!(bash.run("printf 'a\\036b'").stdout, "a\u{1e}b");
    let much = bash.run("head -c 3000000 /dev/zero | tr '\\0' y");
    assert_eq!(much.stdout.len(), 3_000_000);
}

#[test]
fn files_do_not_pile_up() {
    let Some(mut bash) = start() else { return };
    for _ in 0..40 {
        bash.run("set -o noclobber; true");
    }
    bash.run("exit 1");
    bash.run("true");
    // What is left of the cells before the last is gone; the last one's file is emptied just after its end.
    let left = std::fs::read_dir(bash.cells()).unwrap().count();
    assert!(left <= 1, "{left} files");
}
