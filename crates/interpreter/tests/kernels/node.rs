//! JavaScript and TypeScript.

use interpreter::Language;

use crate::driver::{Driver, Report};

fn start() -> Option<Driver> {
    Driver::start(Language::JavaScript, "node")
}

fn text(report: &Report) -> &str {
    report.last()["text/plain"].as_str().unwrap_or_else(|| panic!("{report:?}"))
}

#[test]
fn declarations_persist_and_may_be_repeated() {
    let Some(mut node) = start() else { return };
    node.run("const x = 1; let y = 2; class A {} function f() { return x + y }");
    assert_eq!(text(&node.run("f()")), "3");
    assert_eq!(text(&node.run("const x = 'é'; class A { v = 1 }; x")), "'é'");
    assert_eq!(
        text(&node.run("const later = await new Promise((r) => setTimeout(() => r(7), 5)); later")),
        "7"
    );
    assert_eq!(text(&node.run("later")), "7");
}

#[test]
fn values_come_in_their_forms() {
    let Some(mut node) = start() else { return };
    let object = node.run("({ a: [1, 'ü'] })");
    assert_eq!(object.last()["application/json"], "{\"a\":[1,\"ü\"]}");
    assert_eq!(text(&object), "{ a: [ 1, 'ü' ] }");
    assert_eq!(text(&node.run("{ a: 1 }")), "{ a: 1 }");
    assert_eq!(text(&node.run("new Map([[1, 2n]])")), "Map(1) { 1 => 2n }");
    assert_eq!(text(&node.run("'x'.repeat(9000)")).len(), 9002);
    assert!(node.run("undefined").records.is_empty());
    let shown =
        node.run("display({ [Symbol.for('Jupyter.display')]: () => ({ 'text/html': '<b>' }) }); undefined");
    assert_eq!(shown.last()["text/html"], "<b>");
}

#[test]
fn modules_are_imported_in_every_way() {
    let Some(mut node) = start() else { return };
    let code = "import fs, { existsSync as there } from 'fs'\nimport * as os from \"node:os\";\n\
        [typeof fs.readFileSync, there('/'), typeof os.cpus, typeof (await import('node:url')).URL, typeof require('path').sep].join()";
    assert_eq!(text(&node.run(code)), "'function,true,function,function,string'");
    assert_eq!(
        text(&node.run("`${'import(1)'}` + \"import x from 'y'\" // import(2)")),
        "\"import(1)import x from 'y'\""
    );
    assert_eq!(node.run("import nothing from 'there-is-no-such-module'").exit, 1);
}

#[test]
fn errors_exits_and_interrupts_end_the_cell_only() {
    let Some(mut node) = start() else { return };
    node.run("const kept = 'kept'");
    let failed = node.run("function deep() {\n  throw new TypeError('böse')\n}\ndeep()");
    let error = failed.error();
    assert_eq!((error["name"].as_str(), error["value"].as_str()), (Some("TypeError"), Some("böse")));
    let story = error["traceback"].as_str().unwrap();
    assert!(story.contains("at deep (cell-2:2:9)") && !story.contains("kernel-"), "{story}");
    assert_eq!(node.run("not javascript").error()["name"], "SyntaxError");
    assert_eq!(node.run("throw null").exit, 1);
    assert_eq!(node.run("process.exit(3)").exit, 3);
    assert_eq!(
        node.run("setTimeout(() => { throw new Error('late') }, 1); await new Promise(() => {})").exit,
        1
    );
    assert_eq!(node.interrupt("console.log(1); while (true) {}").exit, 130);
    assert_eq!(node.interrupt("console.log(1); await new Promise(() => {})").exit, 130);
    assert_eq!(text(&node.run("kept")), "'kept'");
}

/// The interrupt mostly lands inside of what writes.
#[test]
fn an_interrupted_write_leaves_the_outputs_usable() {
    let Some(mut node) = start() else { return };
    for name in ["log", "error"] {
        let code = format!("console.log(1); while (true) console.{name}('again')");
        for _ in 0..5 {
            assert_eq!(node.interrupt(&code).exit, 130);
            let after =
                node.run("console.log('ü'); console.error('err'); process.stdout.write(Uint8Array.of(33))");
            assert_eq!((after.stdout.as_str(), after.stderr.as_str()), ("ü\n!", "err\n"));
        }
    }
}

#[test]
fn output_is_told_apart_and_not_cut() {
    let Some(mut node) = start() else { return };
    let both = node.run("console.log('ü☃'); console.error('err'); require('child_process').execSync('echo child; cat', { stdio: 'inherit' }); 0");
    assert_eq!((both.stdout.as_str(), both.stderr.as_str()), ("ü☃\nchild\n", "err\n"));
    assert_eq!(node.run("console.log('y'.repeat(3_000_000))").stdout.len(), 3_000_001);
    assert_eq!(node.run("require('fs').readFileSync(0, 'utf8')").exit, 0);
}

#[test]
fn typescript_runs_or_says_what_is_missing() {
    let Some(mut node) = Driver::start(Language::TypeScript, "node") else { return };
    let report = node.run("interface P { x: number }\nconst p: P = { x: 3 }; p.x as number");
    if report.exit == 0 {
        assert_eq!(text(&report), "3");
        assert_eq!(text(&node.run("p.x + 1")), "4");
    } else {
        eprintln!("SKIPPED: this host has no typescript package, TypeScript was not tested");
        let value = report.error()["value"].as_str().unwrap().to_owned();
        assert!(value.contains("npm install -g typescript"), "{value}");
    }
}
