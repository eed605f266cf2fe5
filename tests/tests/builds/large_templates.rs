//! The large templates that come with PandaStack, each doing in a real machine what it is for.
//!
//! They take minutes and gigabytes, so they are tried when `PANDASTACK_TEST_TEMPLATES` names them (`agent,browser`) or says `all`.
//! `minimal` and `code-interpreter` are what the other suites use.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use image::template;
use tests::{Guest, Lab, LabSettings, program, published, run_for};
use tokio::process::Command;
use tokio::sync::Mutex;

/// One at a time: each needs the whole host.
static TURN: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);
/// For one. The first run makes an image of gigabytes.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Which are tried.
const VARIABLE: &str = "PANDASTACK_TEST_TEMPLATES";

/// Whether a template is to be tried; says so when it is not.
fn is_wanted(name: &str) -> bool {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let is_wanted = wanted.split(',').any(|word| word == name || word == "all");
    if !is_wanted {
        eprintln!("SKIPPED: template {name} was not tried; set {VARIABLE}={name} or {VARIABLE}=all");
    }
    is_wanted
}

/// Builds and bakes a template, if it is to be tried, and hands over one of its sandboxes.
fn try_out(name: &'static str, test: impl AsyncFnOnce(&Guest) -> Result<()>) -> Result<()> {
    if !is_wanted(name) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let trial = async {
        let spec = template::find(name).context("no such template")?;
        let began = Instant::now();
        let settings = LabSettings::with_templates("catalogue", std::slice::from_ref(&spec));
        let lab = Lab::open(settings).await?;
        let snapshot = lab.snapshot_of(&spec).await?;
        let baked = began.elapsed();
        let began = Instant::now();
        let guest = lab.create_from(&snapshot).await?;
        ensure!(guest.shell("echo here").await? == "here");
        let created = began.elapsed();
        let directory = lab.snapshot_directory(&snapshot);
        let mib = |file: &str| stored(&directory.join(file)).map(|bytes| bytes >> 20);
        let (disk, memory) = (mib("disk")?, mib("memory")?);
        eprintln!(
            "{name}: made and baked in {baked:.0?}, disk {disk} MiB, memory {memory} MiB, restored in {created:.2?}"
        );
        test(&guest).await?;
        guest.remove().await?;
        lab.remove().await
    };
    runtime.block_on(async {
        let _turn = TURN.lock().await;
        tokio::time::timeout(TIMEOUT, trial).await.context("the test did not end")?
    })
}

/// What a file takes on its disk.
fn stored(path: &Path) -> Result<u64> {
    Ok(path.metadata().with_context(|| format!("measure {}", path.display()))?.blocks() * 512)
}

async fn expect(guest: &Guest, line: &str, wanted: &str) -> Result<()> {
    let began = Instant::now();
    let said = guest.shell(line).await?;
    ensure!(said.contains(wanted), "`{line}` said {said:?}, not {wanted:?}");
    eprintln!("{:6.1?} {}", began.elapsed(), said.lines().last().unwrap_or_default());
    Ok(())
}

#[test]
fn base_has_the_usual_languages_and_build_tools() -> Result<()> {
    try_out("base", async |guest| {
        expect(guest, "git --version", "git version").await?;
        expect(guest, "python3 --version", "Python 3").await?;
        expect(guest, "node --version", "v24.").await?;
        expect(guest, "npm --version", "11.").await?;
        expect(guest, "go version", "go1.27").await?;
        expect(guest, "bun --version", "1.4").await?;
        let c = "printf 'int puts(const char*);int main(){puts(\"hello from C\");}' > /tmp/a.c && gcc -o /tmp/a /tmp/a.c && /tmp/a";
        expect(guest, c, "hello from C").await?;
        expect(
            guest,
            "echo 'console.log(`hello from ${process.versions.bun}`)' > /tmp/a.ts && bun /tmp/a.ts",
            "1.4",
        )
        .await
    })
}

#[test]
fn agents_answer() -> Result<()> {
    try_out("agent", async |guest| {
        expect(guest, "claude --version", "2.1.325").await?;
        expect(guest, "codex --version", "0.166.0").await?;
        expect(guest, "opencode --version", "1.18.33").await?;
        expect(guest, "node --version && git --version && rg --version | head -1", "ripgrep").await
    })
}

const SCREENSHOT: &str = r#"
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(timeout=240000)
    page = browser.new_page()
    page.goto("http://127.0.0.1:8000/", timeout=240000)
    page.screenshot(path="/tmp/page.png", timeout=240000)
    print(page.title())
    browser.close()
data = open("/tmp/page.png", "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 1000, len(data)
"#;

const CRAWL: &str = r#"
import asyncio
from crawl4ai import AsyncWebCrawler, CrawlerRunConfig

async def main():
    async with AsyncWebCrawler() as crawler:
        result = await crawler.arun("http://127.0.0.1:8000/", config=CrawlerRunConfig(page_timeout=240000))
        print(result.markdown)

asyncio.run(main())
"#;

#[test]
fn the_browser_takes_a_picture_of_a_page() -> Result<()> {
    try_out("browser", async |guest| {
        let page = "<title>A page</title><h1>Pandas eat bamboo</h1>";
        let serve = format!(
            "mkdir /tmp/site && cd /tmp/site && echo '{page}' > index.html && \
             (setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null &) && \
             until curl -sf http://127.0.0.1:8000/ >/dev/null; do sleep 0.2; done; echo serves"
        );
        expect(guest, &serve, "serves").await?;
        for (name, script, wanted) in
            [("picture", SCREENSHOT, "A page"), ("crawl", CRAWL, "Pandas eat bamboo")]
        {
            let line = format!("cat > /tmp/{name}.py <<'END'\n{script}\nEND\npython3 /tmp/{name}.py");
            expect(guest, &line, wanted).await?;
        }
        Ok(())
    })
}

/// Says no to every request, and what was asked of it.
const REFUSING_SERVER: &str = r#"
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        with open("/tmp/asked", "a") as log:
            print(self.command, self.path, self.headers.get("authorization"), self.headers.get("x-api-key"), file=log)
        body = b'{"type":"error","error":{"type":"not_found_error","message":"no"}}'
        self.send_response(404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST
HTTPServer(("127.0.0.1", 9999), Handler).serve_forever()
"#;

#[test]
fn a_managed_agents_worker_finds_what_it_needs() -> Result<()> {
    try_out("claude-agent", async |guest| {
        expect(guest, "ant --version", "2.8.0").await?;
        expect(guest, "claude --version", "2.1.325").await?;
        expect(
            guest,
            "test -d /mnt/session/outputs -a -d /workspace && touch /var/log/x && echo there",
            "there",
        )
        .await?;
        expect(
            guest,
            "PATH=/opt/mise/shims:$PATH; command -v node; node --version; python --version",
            "v24.",
        )
        .await?;
        expect(guest, "mise --version", "2026.9").await?;
        let serve = format!(
            "cat > /tmp/server.py <<'END'\n{REFUSING_SERVER}\nEND\n\
             (setsid python3 /tmp/server.py >/dev/null 2>&1 </dev/null &)\n\
             until curl -s http://127.0.0.1:9999/ >/dev/null; do sleep 0.2; done; echo serves"
        );
        expect(guest, &serve, "serves").await?;
        // As the published worker starts it; the other side refuses, and it says so and ends.
        let work = "export ANTHROPIC_BASE_URL=http://127.0.0.1:9999 ANTHROPIC_ENVIRONMENT_ID=env_1 \
            ANTHROPIC_ENVIRONMENT_KEY=key_1 ANTHROPIC_SESSION_ID=session_1 ANTHROPIC_WORK_ID=work_1\n\
            timeout 200 ant beta:worker run --workdir /workspace --log-format json > /tmp/worker.log 2>&1; echo exit=$?\n\
            grep -c 'env_1/work/work_1.*Bearer key_1 None' /tmp/asked && echo asked";
        expect(guest, work, "asked").await
    })
}

/// Our worker and the published ones, end to end: two turns of a session with a scripted server in the place of Anthropic's API, in
/// a network of the script's own.
#[test]
fn managed_agents_work_in_sandboxes_that_sleep() -> Result<()> {
    if !is_wanted("claude-agent") {
        return Ok(());
    }
    run_for(TIMEOUT, async || {
        let _turn = TURN.lock().await;
        let spec = template::find("claude-agent").context("no such template")?;
        let mut lab = Lab::prepare(LabSettings::with_templates("managed-agents", &[spec])).await?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/python/src").canonicalize()?;
        let ours = published::python("requirements-sdk.txt").await?.join("python");
        let theirs = published::python("requirements.txt").await?.join("python");
        let npm = published::node().await?.join("node_modules/@pandastack/sdk/dist/cli.js");
        let program = tokio::task::block_in_place(program::path)?;
        let script = published::scripts().join("managed_agents.py");
        let addresses = lab.config().addresses.to_string();
        for worker in [
            format!("ours={}", ours.display()),
            format!("published={}", theirs.display()),
            format!("npm={}", npm.display()),
        ] {
            let mut command = Command::new(&ours);
            command.arg(&script).arg("--serve").arg(program).arg(lab.data_dir()).arg(&worker);
            command.env("SERVE_OPTIONS", format!("--addresses {addresses} --pool-gib 8"));
            if worker.starts_with("ours") {
                command.env("PYTHONPATH", &source).env("PYTHONDONTWRITEBYTECODE", "1");
            }
            eprintln!("{}", published::output(&mut command, TIMEOUT).await?);
        }
        lab.remove()
    })
}

/// What somebody does with a database: a password, a table with vectors, the pooler, the usual extensions.
const DATABASE: &str = r#"
set -e
postgres-service start
runuser -u postgres -- psql -q -c "ALTER ROLE pandastack PASSWORD 'bamboo'"
export PGPASSWORD=bamboo PGUSER=pandastack PGHOST=127.0.0.1 PGDATABASE=pandastack
psql -q -p 5432 -c "CREATE TABLE notes (id int, place vector(3))" -c "INSERT INTO notes VALUES (1, '[1,1,1]'), (2, '[9,9,9]')"
psql -q -p 5432 -c "CREATE INDEX ON notes USING hnsw (place vector_l2_ops)"
psql -At -p 6432 -c "SELECT 'nearest ' || id FROM notes ORDER BY place <-> '[2,2,2]' LIMIT 1"
for name in pg_trgm pgcrypto uuid-ossp hstore citext unaccent postgres_fdw btree_gin; do
    runuser -u postgres -- env -u PGHOST -u PGPASSWORD -u PGUSER psql -q -d pandastack -c "CREATE EXTENSION \"$name\""
done
psql -At -p 6432 -c "SHOW server_version" -c "SELECT 'extensions ' || count(*) FROM pg_extension"
PGPASSWORD=wrong psql -p 6432 -c "SELECT 1" 2>&1 | grep -o "password authentication failed" || PGPASSWORD=wrong psql -p 6432 -c "SELECT 1" 2>&1 | grep -o "authentication failed"
pg_dump -p 5432 | grep -c "CREATE TABLE"
postgres-service stop
echo stopped
"#;

#[test]
fn postgres_serves_with_vectors_and_a_pooler() -> Result<()> {
    try_out("postgres-16", async |guest| {
        let said = guest.shell(DATABASE).await?;
        for wanted in ["nearest 1", "16.14", "extensions 11", "authentication failed", "stopped"] {
            ensure!(said.contains(wanted), "{wanted:?} is not in {said:?}");
        }
        Ok(())
    })
}
