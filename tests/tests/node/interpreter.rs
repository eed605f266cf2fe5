//! Code contexts in real guests: state from cell to cell and through sleep and fork, time limits, hostile output, lost kernels.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use domain::SnapshotId;
use guest_link::GuestPath;
use guest_link::client::{Link, ProcessEvent};
use guest_link::message::{Channel, ExitStatus, SignalScope, User};
use image::template::code_interpreter;
use interpreter::{
    Cell, Context, ContextHandle, ContextSpec, ContextState, Ending, Language, LanguageServer, OnceError,
    OnceLanguage, RunError, RunEvent, RunResult, StartError, run_once, start_server,
};
use tests::{Lab, LabSettings, in_lab};

/// More than any cell here needs, and less than a test may take: guests are emulated.
const TIMEOUT: Duration = Duration::from_secs(120);
/// What a template has in memory is imported at once; read from its disk it takes an emulated guest many times as long.
const WARM_IMPORT: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(500);
/// The first run makes an image of more than a gigabyte.
const BUILD_TIMEOUT: Duration = Duration::from_secs(1500);

async fn context(link: &Link, language: Language) -> Result<Context> {
    Ok(Context::start(link, ContextSpec::new(language)).await?)
}

async fn cell(link: &Link, context: &Context, code: &str) -> Result<RunResult> {
    let result = context.run(link, Cell::new(code).with_timeout(TIMEOUT)).await;
    let result = result.with_context(|| format!("run {code:?}"))?;
    ensure!(result.ending == Ending::Finished, "{code:?} gave {result:?}");
    Ok(result)
}

/// The last result of a cell in a certain form.
fn form<'a>(result: &'a RunResult, mime: &str) -> Result<&'a str> {
    let bundle = result.results.last().with_context(|| format!("no result: {result:?}"))?;
    let text = bundle.data.get(mime).with_context(|| format!("no {mime}: {result:?}"))?;
    Ok(text)
}

async fn expect_value(link: &Link, context: &Context, code: &str, value: &str) -> Result<()> {
    let result = cell(link, context, code).await?;
    let found = form(&result, "text/plain")?;
    ensure!(found == value && result.exit == 0, "{code:?} gave {result:?}");
    Ok(())
}

async fn expect_output(link: &Link, context: &Context, code: &str, stdout: &str) -> Result<()> {
    let result = cell(link, context, code).await?;
    ensure!(result.stdout == stdout, "{code:?} gave {result:?}");
    Ok(())
}

#[test]
fn python_keeps_state_and_tells_values_output_and_errors_apart() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let python = context(&link, Language::Python).await?;
        let first =
            cell(&link, &python, "x = 40\nprint('héllo ☃')\nimport sys\nprint('trouble', file=sys.stderr)")
                .await?;
        ensure!((first.stdout.as_str(), first.stderr.as_str()) == ("héllo ☃\n", "trouble\n"), "{first:?}");
        ensure!(first.results.is_empty() && first.error.is_none() && first.exit == 0, "{first:?}");
        expect_value(&link, &python, "x + 2", "42").await?;
        let failed = cell(&link, &python, "def tief():\n    raise ValueError('böse')\ntief()").await?;
        let error = failed.error.as_ref().context("no error")?;
        ensure!((error.name.as_str(), error.value.as_str()) == ("ValueError", "böse"), "{failed:?}");
        ensure!(error.traceback.contains("raise ValueError('böse')"), "{failed:?}");
        ensure!(failed.exit == 1 && !error.traceback.contains("/run/pandastack"), "{failed:?}");
        let left = cell(&link, &python, "import sys; sys.exit(3)").await?;
        ensure!(left.exit == 3 && left.error.is_none(), "{left:?}");
        // What user code does to the standard descriptors does not reach the protocol.
        let code = "import os\nos.write(1, b'raw\\n'); os.read(0, 10); os.system('cat; echo child')\nif os.fork() == 0: y = 1\nelse: os.wait()";
        expect_output(&link, &python, code, "raw\nchild\n").await?;
        let long = format!("{}x", "# é\n".repeat(50_000));
        expect_value(&link, &python, &long, "40").await?;
        expect_value(&link, &python, "'é' * 5000", &format!("'{}'", "é".repeat(5000))).await?;
        python.close(&link).await?;
        ensure!(matches!(python.run(&link, Cell::new("x")).await, Err(RunError::Gone { .. })));
        python.close(&link).await?;
        ensure!(!python.alive(&link).await?);
        guest.remove().await
    })
}

#[test]
fn bash_keeps_variables_functions_and_directory_even_over_exit() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let bash = context(&link, Language::Bash).await?;
        expect_output(&link, &bash, "x='ä b'; hail() { echo \"hail $1\"; }; cd /tmp; echo done", "done\n")
            .await?;
        expect_output(&link, &bash, "hail \"$x\"; pwd; cat", "hail ä b\n/tmp\n").await?;
        let left = cell(&link, &bash, "exit 7").await?;
        ensure!(left.exit == 7, "{left:?}");
        let stopped = cell(&link, &bash, "set -e; echo before; false; echo never").await?;
        ensure!((stopped.stdout.as_str(), stopped.exit) == ("before\n", 1), "{stopped:?}");
        let late = bash.run(&link, Cell::new("sleep 1000").with_timeout(SHORT)).await?;
        ensure!(matches!(late.ending, Ending::TimedOut { context: ContextState::Kept, .. }), "{late:?}");
        expect_output(&link, &bash, "hail \"$x\"; pwd", "hail ä b\n/tmp\n").await?;
        guest.remove().await
    })
}

#[test]
fn a_cell_that_takes_too_long_is_stopped_and_the_next_one_is_answered() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let python = context(&link, Language::Python).await?;
        expect_value(&link, &python, "x = 'kept'; x", "'kept'").await?;
        for code in ["print('began')\nwhile True: pass", "import time; print('began'); time.sleep(1000)"] {
            let late = python.run(&link, Cell::new(code).with_timeout(SHORT)).await?;
            ensure!(matches!(late.ending, Ending::TimedOut { context: ContextState::Kept, .. }), "{late:?}");
            ensure!(late.ending.sentence().is_some_and(|text| text.contains("timeout")), "{late:?}");
            ensure!(late.stdout == "began\n" && late.duration >= SHORT, "{late:?}");
            expect_value(&link, &python, "x", "'kept'").await?;
        }
        // Output without end does not postpone the deadline.
        let flood = "while True: print('y' * 1000)";
        let late = python.run(&link, Cell::new(flood).with_timeout(SHORT)).await?;
        ensure!(matches!(late.ending, Ending::TimedOut { .. }), "{:?}", late.ending);
        expect_value(&link, &python, "x", "'kept'").await?;
        // One that does not want to stop loses its context, and says so.
        let stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
        let late = python.run(&link, Cell::new(stubborn).with_timeout(SHORT)).await?;
        ensure!(matches!(late.ending, Ending::TimedOut { context: ContextState::Lost, .. }), "{late:?}");
        ensure!(late.ending.sentence().is_some_and(|text| text.contains("lost")), "{late:?}");
        ensure!(matches!(python.run(&link, Cell::new("x")).await, Err(RunError::Gone { .. })));
        guest.remove().await
    })
}

#[test]
fn ten_megabytes_of_output_are_cut_and_a_slow_reader_loses_nothing() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let python = context(&link, Language::Python).await?;
        let much = cell(&link, &python, "print('z' * 10_000_000); 'after'").await?;
        ensure!(much.stdout_truncated && much.stdout.len() == Cell::new("").limits.output_bytes_max);
        ensure!(form(&much, "text/plain")? == "'after'");
        let mut run = python.begin(&link, Cell::new("print('é' * 1_000_000)").with_timeout(TIMEOUT)).await?;
        let mut count = 0;
        let ending = loop {
            match run.next().await?.context("no end")? {
                RunEvent::Stdout(text) => count += text.chars().filter(|char| *char == 'é').count(),
                RunEvent::Ended { ending, .. } => break ending,
                other => anyhow::bail!("{other:?}"),
            }
        };
        ensure!(ending == Ending::Finished && count == 1_000_000, "{ending:?} {count}");
        guest.remove().await
    })
}

#[test]
fn state_survives_hibernation_and_is_inherited_by_forks() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let (python, bash) = (context(&link, Language::Python).await?, context(&link, Language::Bash).await?);
        expect_value(&link, &python, "x = [1]; x", "[1]").await?;
        expect_output(&link, &bash, "y=one; echo $y", "one\n").await?;
        // As a server does that is started anew: from what was written down.
        let written = serde_json::to_string(&[python.handle(), bash.handle()])?;
        let found = || -> Result<[Context; 2]> {
            let handles: [ContextHandle; 2] = serde_json::from_str(&written)?;
            Ok(handles.map(Context::attach))
        };
        guest.hibernate().await?;
        guest.wake().await?;
        let link = guest.link().await?;
        let [python, bash] = found()?;
        expect_value(&link, &python, "x.append(2); x", "[1, 2]").await?;
        expect_output(&link, &bash, "echo $y", "one\n").await?;
        let child = lab.fork(&guest, 1).await?.pop().context("a child")?;
        let child_link = child.link().await?;
        let [child_python, child_bash] = found()?;
        expect_value(&child_link, &child_python, "x.append(3); x", "[1, 2, 3]").await?;
        expect_output(&child_link, &child_bash, "y=two; echo $y", "two\n").await?;
        expect_value(&link, &python, "x", "[1, 2]").await?;
        expect_output(&link, &bash, "echo $y", "one\n").await?;
        child.remove().await?;
        guest.remove().await
    })
}

#[test]
fn a_cell_under_way_goes_on_when_its_sandbox_is_forked() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let python = context(&link, Language::Python).await?;
        let code = "import time\nfor i in range(20): time.sleep(0.1); print(i)\ni";
        let mut run = python.begin(&link, Cell::new(code).with_timeout(TIMEOUT)).await?;
        ensure!(run.next().await? == Some(RunEvent::Stdout("0\n".to_owned())));
        let child = lab.fork(&guest, 1).await?.pop().context("a child")?;
        let result = run.collect(interpreter::limits::RunLimits::USUAL).await?;
        ensure!(result.stdout.ends_with("18\n19\n") && form(&result, "text/plain")? == "19", "{result:?}");
        // There the cell goes on too, where nobody waits for it; the next one gets its own answer.
        let child_link = child.link().await?;
        let copy = Context::attach(python.handle().clone());
        expect_value(&child_link, &copy, "'mine'", "'mine'").await?;
        guest.remove().await
    })
}

#[test]
fn a_lost_kernel_is_a_clear_error_and_nobody_gets_anothers_answer() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let python = context(&link, Language::Python).await?;
        let died = python
            .run(&link, Cell::new("import os\nprint('last')\nos._exit(5)").with_timeout(TIMEOUT))
            .await?;
        ensure!(
            died.ending == Ending::Died { status: ExitStatus::Code(5) } && died.stdout == "last\n",
            "{died:?}"
        );
        ensure!(died.ending.sentence().is_some_and(|text| text.contains("lost")));
        let other = context(&link, Language::Python).await?;
        expect_value(&link, &other, "1", "1").await?;
        link.signal(other.handle().process, 9, SignalScope::Leader).await?;
        ensure!(matches!(other.run(&link, Cell::new("1")).await, Err(RunError::Gone { .. })));
        // A cell nobody waits for any more keeps the context busy; the next says so, is not run later, and an interrupt helps.
        let third = context(&link, Language::Python).await?;
        expect_value(&link, &third, "n = 0; n", "0").await?;
        let mut abandoned =
            third.begin(&link, Cell::new("import time\nprint(1)\nwhile True: time.sleep(0.01)")).await?;
        ensure!(abandoned.next().await? == Some(RunEvent::Stdout("1\n".to_owned())));
        drop(abandoned);
        third.interrupt(&link).await?;
        expect_value(&link, &third, "n += 1; n", "1").await?;
        // A kernel that talks nonsense is an error, never more.
        let liar = "import glob, os\nwhile True: os.write(1, b'\\x1e' + max(glob.glob('/run/pandastack/cells/*'), key=os.path.getmtime)[-16:].encode() + b' ?\\n')";
        let nonsense = third.run(&link, Cell::new(liar).with_timeout(TIMEOUT)).await;
        ensure!(
            matches!(nonsense, Err(RunError::Malformed { .. })),
            "{:?}",
            nonsense.map(|result| result.ending)
        );
        // Where the language is missing.
        let missing = Context::start(&link, ContextSpec::new(Language::JavaScript)).await;
        ensure!(matches!(missing, Err(StartError::LanguageMissing { .. })), "{missing:?}");
        let once =
            run_once(&link, OnceLanguage::parse("py")?, "print('ü'); raise SystemExit(4)", TIMEOUT).await?;
        ensure!((once.stdout.as_str(), once.exit_code) == ("ü\n", 4), "{once:?}");
        let long = format!("echo long\n{}", "# filler\n".repeat(20_000));
        let once = run_once(&link, OnceLanguage::Bash, &long, TIMEOUT).await?;
        ensure!(once.stdout == "long\n", "{once:?}");
        let once = run_once(&link, OnceLanguage::Sh, "sleep 1000", SHORT).await?;
        ensure!(once.timed_out, "{once:?}");
        let once = run_once(&link, OnceLanguage::Ruby, "puts 1", TIMEOUT).await;
        ensure!(matches!(once, Err(OnceError::ProgramMissing { program: "ruby" })), "{once:?}");
        guest.remove().await
    })
}

/// Runs a test that may have to build an image first, which takes longer than tests may.
fn with_time_to_build(test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(BUILD_TIMEOUT, test()).await.context("the test did not end")?
    })
}

/// A lab whose node knows the template for code contexts, which is kept between runs: it takes minutes to make.
async fn interpreter_lab() -> Result<(Lab, SnapshotId)> {
    let lab = Lab::open(LabSettings::with_templates("interpreter", &[code_interpreter()])).await?;
    let snapshot = lab.snapshot_of(&code_interpreter()).await?;
    Ok((lab, snapshot))
}

/// In the template for code contexts the first Python context runs already.
async fn expect_warm_kernels(lab: &Lab, snapshot: &SnapshotId) -> Result<()> {
    let draw = "import random, numpy, ssl, tempfile, uuid\n\
        random.random(), numpy.random.rand(), ssl.RAND_bytes(8), tempfile.mktemp(), uuid.uuid4()";
    let mut drawn = Vec::new();
    for name in ["one", "two"] {
        let guest = lab.create_from(snapshot).await?;
        let link = guest.link().await?;
        let env = vec![("WHO".to_owned(), name.to_owned())];
        let spec =
            ContextSpec { env, cwd: Some(GuestPath::parse("/tmp")?), ..ContextSpec::new(Language::Python) };
        let first = Context::start(&link, spec).await?;
        let imported = cell(&link, &first, "import pandas, matplotlib.pyplot as plt, numpy").await?;
        eprintln!("`import pandas` took {:?}", imported.duration);
        ensure!(imported.count == 1 && imported.duration < WARM_IMPORT, "{imported:?}");
        let seen = format!("('{name}', '/tmp', 0, [])");
        let look = "import os, sys\nos.environ['WHO'], os.getcwd(), os.getuid(), [n for n in ('io', 'json') if n in globals()]";
        expect_value(&link, &first, look, &seen).await?;
        let values = cell(&link, &first, draw).await?;
        let values = form(&values, "text/plain")?.trim_matches(['(', ')']).to_owned();
        drawn.push(values.split(", ").map(str::to_owned).collect::<Vec<_>>());

        // There is one of it. A fork has it too, and does not take it for its own.
        let child = lab.fork(&guest, 1).await?.pop().context("a child")?;
        for guest in [&guest, &child] {
            let link = guest.link().await?;
            let second = context(&link, Language::Python).await?;
            expect_value(
                &link,
                &second,
                "import os, sys\n'pandas' in sys.modules, os.getcwd()",
                "(False, '/root')",
            )
            .await?;
        }
        child.remove().await?;
        guest.remove().await?;
    }
    let same = drawn[0].iter().zip(&drawn[1]).filter(|(one, two)| one == two).count();
    ensure!(drawn[0].len() == 5 && same == 0, "{drawn:?}");

    // Whoever asks for what it cannot become gets a new one; it stays for the next.
    let guest = lab.create_from(snapshot).await?;
    let link = guest.link().await?;
    let user =
        ContextSpec { user: Some(User::Name("user".to_owned())), ..ContextSpec::new(Language::Python) };
    let path = vec![("PYTHONPATH".to_owned(), "/x".to_owned())];
    let path = ContextSpec { env: path, ..ContextSpec::new(Language::Python) };
    let somebody = Context::start(&link, user).await?;
    expect_value(&link, &somebody, "import os, sys\nos.getuid(), 'pandas' in sys.modules", "(1000, False)")
        .await?;
    let elsewhere = Context::start(&link, path).await?;
    expect_value(&link, &elsewhere, "import sys\n'/x' in sys.path, 'pandas' in sys.modules", "(True, False)")
        .await?;
    let next = context(&link, Language::Python).await?;
    expect_value(&link, &next, "import sys\n'pandas' in sys.modules", "True").await?;
    guest.remove().await?;
    // A directory that is not there is the same error as with a new one.
    let guest = lab.create_from(snapshot).await?;
    let link = guest.link().await?;
    let nowhere = Some(GuestPath::parse("/no/such/folder")?);
    let nowhere = ContextSpec { cwd: nowhere, ..ContextSpec::new(Language::Python) };
    ensure!(matches!(Context::start(&link, nowhere).await, Err(StartError::Spawn { .. })));
    guest.remove().await
}

#[test]
fn tables_figures_javascript_and_typescript_in_the_template_for_them() -> Result<()> {
    with_time_to_build(async || {
        let (lab, snapshot) = interpreter_lab().await?;
        expect_warm_kernels(&lab, &snapshot).await?;
        let guest = lab.create_from(&snapshot).await?;
        let link = guest.link().await?;
        let python = context(&link, Language::Python).await?;
        let code = "import pandas as pd\npd.DataFrame({'größe': [1, 2]})";
        let table = cell(&link, &python, code).await?;
        ensure!(form(&table, "text/html")?.contains("größe"), "{table:?}");
        ensure!(form(&table, "text/plain")?.contains("größe"), "{table:?}");
        let png = |result: &RunResult| -> Result<usize> {
            let pictures = result.results.iter().filter_map(|bundle| bundle.data.get("image/png"));
            let pictures: Vec<_> = pictures.collect();
            ensure!(pictures.iter().all(|picture| picture.starts_with("iVBORw0KGgo")), "{result:?}");
            Ok(pictures.len())
        };
        let shown = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nprint(plt.get_fignums())";
        let shown = cell(&link, &python, shown).await?;
        ensure!(png(&shown)? == 1 && shown.stdout == "[]\n", "{shown:?}");
        let left_open = cell(&link, &python, "fig, ax = plt.subplots(); ax.plot([3, 1]); None").await?;
        ensure!(png(&left_open)? == 1, "{left_open:?}");
        let value = cell(&link, &python, "fig").await?;
        ensure!(png(&value)? == 1, "{value:?}");
        let quiet = cell(&link, &python, "import numpy as np\nnp.arange(3)").await?;
        ensure!(png(&quiet)? == 0 && form(&quiet, "text/plain")? == "array([0, 1, 2])", "{quiet:?}");
        let awaited = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 5\nawait f()";
        expect_value(&link, &python, awaited, "5").await?;
        let html = "from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>'))";
        let html = cell(&link, &python, html).await?;
        ensure!(form(&html, "text/html")? == "<b>x</b>", "{html:?}");

        let node = context(&link, Language::JavaScript).await?;
        expect_value(&link, &node, "const x = 1; let y = { ä: [x] }; y", "{ 'ä': [ 1 ] }").await?;
        let object = cell(&link, &node, "const x = await Promise.resolve(2); ({ x, ...y })").await?;
        ensure!(form(&object, "application/json")? == "{\"x\":2,\"ä\":[1]}", "{object:?}");
        expect_value(&link, &node, "import { sep } from 'node:path'; sep", "'/'").await?;
        let late = node.run(&link, Cell::new("while (true) {}").with_timeout(SHORT)).await?;
        ensure!(matches!(late.ending, Ending::TimedOut { context: ContextState::Kept, .. }), "{late:?}");
        expect_value(&link, &node, "x", "2").await?;
        let failed = cell(&link, &node, "console.error('é'); throw new TypeError('böse')").await?;
        let error = failed.error.as_ref().context("no error")?;
        ensure!(error.name == "TypeError" && failed.stderr == "é\n" && failed.exit == 1, "{failed:?}");
        ensure!(!error.traceback.contains("pandastack"), "{failed:?}");

        let typescript = context(&link, Language::TypeScript).await?;
        let code = "interface Punkt { x: number }\nconst p: Punkt = { x: 3 }; p.x as number";
        expect_value(&link, &typescript, code, "3").await?;
        expect_value(&link, &typescript, "p.x + 1", "4").await?;

        let mut server = start_server(&link, LanguageServer::find("py")?, None).await?;
        let input = server.take_input().context("a server without input")?;
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"processId":null,"rootUri":null,"capabilities":{}}}"#;
        input.write_all(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
        let mut answer = Vec::new();
        while !String::from_utf8_lossy(&answer).contains("\"capabilities\"") {
            match server.next().await? {
                ProcessEvent::Output { channel: Channel::Stdout, data, .. } => answer.extend(data),
                ProcessEvent::Output { .. } | ProcessEvent::Gap { .. } => {}
                ProcessEvent::Exited(exit) => anyhow::bail!("the language server ended: {exit:?}"),
            }
        }
        guest.remove().await?;
        lab.remove().await
    })
}
