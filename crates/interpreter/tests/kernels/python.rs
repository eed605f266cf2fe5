//! Python.

use interpreter::Language;

use crate::driver::{Driver, Report};

fn start() -> Option<Driver> {
    Driver::start(Language::Python, "python3")
}

fn text(report: &Report) -> &str {
    report.last()["text/plain"].as_str().unwrap_or_else(|| panic!("{report:?}"))
}

#[test]
fn state_values_and_output() {
    let Some(mut python) = start() else { return };
    let first = python.run("import sys\nx = 40\nprint('héllo ☃ 𝒳')\nprint('err', file=sys.stderr)");
    assert_eq!((first.stdout.as_str(), first.stderr.as_str(), first.exit), ("héllo ☃ 𝒳\n", "err\n", 0));
    assert!(first.records.is_empty());
    let second = python.run("x + 2");
    assert_eq!((text(&second), second.count), ("42", 2));
    assert!(python.run("x + 2;").records.is_empty());
    assert_eq!(text(&python.run("_")), "42");
    assert_eq!(text(&python.run("'é' * 9000")).chars().count(), 9002);
    assert_eq!(text(&python.run("__name__, sys.modules['__main__'].x")), "('__main__', 40)");
    assert!(python.run("None").records.is_empty() && python.run("").exit == 0);
    assert_eq!(python.run("print('\\ud800')").stdout, "\\ud800\n");
}

#[test]
fn values_come_in_their_forms() {
    let Some(mut python) = start() else { return };
    let rich = python.run(
        "class Rich:\n    def __repr__(self): return 'rich'\n    def _repr_html_(self): return '<b>é</b>'\n    def _repr_png_(self): return b'\\x89PNG'\n    def _repr_json_(self): return {'a': [1]}\n    def _repr_svg_(self): raise ValueError('no')\nRich()",
    );
    let forms = rich.last();
    assert_eq!(
        (forms["text/html"].as_str(), forms["image/png"].as_str()),
        (Some("<b>é</b>"), Some("iVBORw=="))
    );
    assert_eq!((forms["application/json"].as_str(), text(&rich)), (Some("{\"a\": [1]}"), "rich"));
    assert!(rich.stderr.contains("could not show") && rich.exit == 0, "{rich:?}");
    let bundle = python.run("class B:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/markdown': '*x*'}, {}\ndisplay(B()); display({'text/latex': '$x$'}, raw=True)\nRich");
    assert_eq!(bundle.records.len(), 3);
    assert_eq!(bundle.records[0]["display"]["data"]["text/markdown"], "*x*");
    assert_eq!(bundle.records[1]["display"]["data"]["text/latex"], "$x$");
    assert_eq!(
        (bundle.records[1]["display"]["main"].as_bool(), text(&bundle)),
        (Some(false), "<class '__main__.Rich'>")
    );
    let huge = python.run("display(*range(300)); 'x' * 3_000_000");
    assert!(huge.records.len() == 256 && huge.stderr.contains("left out"), "{}", huge.records.len());
}

#[test]
fn errors_tell_the_users_story_only() {
    let Some(mut python) = start() else { return };
    python.run("def deep():\n    raise KeyError('böse')");
    let failed = python.run("try:\n    deep()\nexcept KeyError as e:\n    raise ValueError('then') from e");
    let story = failed.error()["traceback"].as_str().unwrap();
    for part in ["raise KeyError('böse')", "<cell 1>", "direct cause", "ValueError: then"] {
        assert!(story.contains(part), "{story}");
    }
    assert!(!story.contains("kernel-") && failed.exit == 1, "{story}");
    assert_eq!(python.run("x = = 1").error()["name"], "SyntaxError");
    let asked = python.run("input('name? ')");
    assert!(asked.error()["value"].as_str().unwrap().contains("nobody to ask"));
    assert_eq!(python.run("import sys; sys.exit(3)").exit, 3);
    assert_eq!(python.run("exit('reason')").stderr, "reason\n");
    let broken = python.run("class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E");
    assert_eq!(broken.error()["name"], "E");
    assert_eq!(python.run("def r(): r()\nr()").error()["name"], "RecursionError");
    assert_eq!(python.run("'still here'").exit, 0);
}

#[test]
fn interrupts_end_the_cell_only() {
    let Some(mut python) = start() else { return };
    python.run("kept = 'kept'");
    for code in [
        "print(1)\nwhile True: pass",
        "import time; print(1); time.sleep(1000)",
        "import subprocess; subprocess.run('echo 1; sleep 1000', shell=True)",
        "import asyncio; print(1)\nawait asyncio.sleep(1000)",
        "print(1)\n!sleep 1000",
    ] {
        let stopped = python.interrupt(code);
        assert_eq!(
            (stopped.exit, stopped.error()["name"].as_str()),
            (130, Some("KeyboardInterrupt")),
            "{code}"
        );
    }
    assert_eq!(text(&python.run("kept")), "'kept'");
    assert_eq!(text(&python.run("await asyncio.sleep(0, 5)")), "5");
    assert_eq!(text(&python.run("asyncio.run(asyncio.sleep(0, 6))")), "6");
}

#[test]
fn user_code_cannot_break_the_protocol() {
    let Some(mut python) = start() else { return };
    let code = "import os, sys\nos.write(1, b'raw'); os.read(0, 5); sys.stdin.read(); os.system('cat; echo child')\n\
        if os.fork() == 0: x = 1\nelse: os.wait()";
    assert_eq!(python.run(code).stdout, "rawchild\n");
    assert_eq!(python.run("if os.fork() == 0: raise ValueError\nos.wait(); 1").exit, 0);
    python.run("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)");
    assert_eq!(python.interrupt("print(1, flush=True)\nwhile True: pass").exit, 130);
    assert_eq!(python.run("import fcntl; fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK); 1").exit, 0);
    assert_eq!(python.run("print('y' * 3_000_000)").stdout.len(), 3_000_001);
    assert_eq!(python.run("sys.stdout = None; sys.stderr = None; 5").exit, 0);
    python.line("run 0123456789abcdef");
    python.line("run ../../../etc/passwd");
    assert_eq!(text(&python.run("6")), "6");
    let id = python.send("import os; os._exit(0)");
    assert!(python.report(&id, |_| {}).is_none());
}

#[test]
fn lines_for_the_shell_and_magic_ones() {
    let Some(mut python) = start() else { return };
    let shell = python.run("for i in range(2):\n    !echo shell\n!false");
    assert_eq!((shell.stdout.as_str(), shell.stderr.as_str()), ("shell\nshell\n", "exit code 1\n"));
    assert_eq!(text(&python.run("found = !printf 'a\\nb'\nfound")), "['a', 'b']");
    assert_eq!(python.run("%matplotlib inline\n%cd /\n%pwd").stdout, "/\n");
    assert_eq!(python.run("%%bash\ncd /tmp\npwd").stdout, "/tmp\n");
    assert_eq!(text(&python.run("'''\n!not shell\n'''")), "'\\n!not shell\\n'");
    assert_eq!(python.run("%unheard_of").error()["name"], "UsageError");
}

#[test]
fn files_do_not_pile_up() {
    let Some(mut python) = start() else { return };
    for _ in 0..3 {
        python.run("'x' * 10000");
    }
    assert_eq!(std::fs::read_dir(python.cells()).unwrap().count(), 2);
}

#[test]
fn a_kernel_is_preloaded_and_becomes_somebodys() {
    let Some(mut python) = start() else { return };
    let failed = python.ask("preload", "import no_such_module");
    assert_eq!((failed.exit, failed.error()["name"].as_str()), (1, Some("ModuleNotFoundError")));
    let preload = "import random, tempfile\nrandom.seed(1)\nleft = 5";
    assert_eq!(python.ask("preload", preload).exit, 0);
    let wrong = python.ask("adopt", r#"{"env":{},"cwd":"/no/such/folder"}"#);
    assert_eq!((wrong.exit, wrong.error()["name"].as_str()), (1, Some("FileNotFoundError")));
    let adopted = python.ask("adopt", "{\"env\":{\"HÄILO\":\"a \\\"é\\\"\\n\"},\"cwd\":\"/\"}");
    assert_eq!((adopted.exit, adopted.count), (0, 0));
    let code = "import os, random, sys\n'left' in globals(), 'tempfile' in sys.modules, os.getcwd(), os.environ['HÄILO']";
    let first = python.run(code);
    assert_eq!((text(&first), first.count), ("(False, True, '/', 'a \"é\"\\n')", 1));
    // As it would be without being made its own.
    let drawn = python.run("random.random() == random.Random(1).random()");
    assert_eq!(text(&drawn), "False");
}
