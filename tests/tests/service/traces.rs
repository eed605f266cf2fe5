//! Traces of the real server: what a collector gets of a request, and how little a bad collector matters.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::Method;
use serde_json::{Value, json};
use tests::api::client::{Answer, Client, nothing};
use tests::api::serve_process::ServeProcess;
use tests::api::{KEY, TEMPLATE};
use tests::collector::{Collector, Span};
use tests::{Lab, LabSettings, run, wait};

const TIMEOUT: Duration = Duration::from_secs(30);
/// How much longer a server with a collector that hangs may take to stop than it would anyway.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// More requests than spans can wait.
const FLOOD: usize = 6000;
const SECRET: &str = "hunter2-swordfish";
const CALLER: &str = "b7ad6b7169203331";

/// A trace of a caller's own.
fn trace(number: u8) -> String {
    format!("{number:02x}").repeat(16)
}

/// A request that belongs to a caller's trace.
async fn traced(
    client: &Client,
    method: Method,
    path: &str,
    trace: &str,
    body: Option<Value>,
) -> Result<Answer> {
    let parent = format!("00-{trace}-{CALLER}-01");
    let headers = [("traceparent", parent.as_str()), ("content-type", "application/json")];
    let body = body.map_or_else(nothing, |body| Full::new(body.to_string().into()).boxed());
    client.read(client.send(method, path, &headers, body).await?).await
}

/// The one span of that name in a trace.
fn only<'a>(spans: &'a [Span], trace: &str, name: &str) -> Result<&'a Span> {
    let found: Vec<_> = spans.iter().filter(|span| span.trace == trace && span.name == name).collect();
    let names = || spans.iter().filter(|span| span.trace == trace).map(|span| &span.name).collect::<Vec<_>>();
    ensure!(found.len() == 1, "{} spans {name} in {trace}: {:?}", found.len(), names());
    Ok(found[0])
}

async fn ready(client: &Client) -> Result<()> {
    wait::until_async("the template is ready", TIMEOUT, async || {
        let template = client.get(&format!("/v1/templates/{TEMPLATE}")).await?;
        Ok(template.json()?["status"] == "ready")
    })
    .await
}

#[test]
fn a_collector_gets_what_requests_did_and_no_secret() -> Result<()> {
    run(async || {
        let collector = Collector::start().await?;
        let mut lab = Lab::prepare(LabSettings::new("traces")).await?;
        let file = lab.data_dir().join("settings.toml");
        let endpoint = collector.endpoint();
        let headers = "authorization=Bearer%20collector-key";
        std::fs::write(
            &file,
            format!("[serve]\notlp_endpoint = \"{endpoint}\"\notlp_headers = \"{headers}\"\n"),
        )?;
        let file = file.to_str().context("a path that is not text")?;
        let server =
            ServeProcess::start(&mut lab, &["--config", file, "--otel-service-name", "pandas"]).await?;
        let client = server.client();
        ready(&client).await?;

        let body = json!({ "template": TEMPLATE, "persistent": true, "env": { "TOKEN": SECRET },
            "metadata": { "secret.key": SECRET, "note": SECRET } });
        let path = format!("/v1/sandboxes?access_token={SECRET}");
        let made = traced(&client, Method::POST, &path, &trace(1), Some(body)).await?.expect(201)?.json()?;
        let id = made["id"].as_str().context("no id")?.to_owned();
        let at = |rest: &str| format!("/v1/sandboxes/{id}{rest}");
        let command = json!({ "cmd": format!("echo $TOKEN {SECRET}; exit 3"), "stdin": SECRET });
        traced(&client, Method::POST, &at("/exec"), &trace(2), Some(command)).await?.expect(200)?;
        let content = Some(json!(SECRET));
        traced(&client, Method::PUT, &at(&format!("/fs?path=/{SECRET}")), &trace(3), content)
            .await?
            .expect(200)?;
        traced(&client, Method::POST, &at("/snapshots"), &trace(4), None).await?.expect(201)?;
        traced(&client, Method::POST, &at("/fork"), &trace(5), Some(json!({ "count": 2 })))
            .await?
            .expect(201)?;
        traced(&client, Method::POST, &at("/hibernate"), &trace(6), None).await?.expect(200)?;
        traced(&client, Method::POST, &at("/exec"), &trace(7), Some(json!({ "cmd": "true" })))
            .await?
            .expect(200)?;
        traced(&client, Method::GET, &format!("/v1/p/{SECRET}/x"), &trace(8), None).await?.expect(401)?;
        let refused = format!("00-{}-{CALLER}-00", trace(9));
        client.send(Method::GET, "/v1/sandboxes", &[("traceparent", refused.as_str())], nothing()).await?;
        wait::until_async("spans are counted", TIMEOUT, async || {
            Ok(counted(&client, "trace_spans_sent_total").await? > 10)
        })
        .await?;
        ensure!(counted(&client, "trace_spans_lost_total").await? == 0);
        client.delete_everything().await?;
        // What waits is sent before the server ends.
        traced(&client, Method::GET, "/v1/sandboxes", &trace(10), None).await?.expect(200)?;
        server.stop().await?;

        let spans = collector.spans()?;
        check_create(&spans, &id)?;
        let request = only(&spans, &trace(2), "POST /v1/sandboxes/{id}/exec")?;
        ensure!(request.attributes["sandbox.id"] == id, "{request:?}");
        let exec = only(&spans, &trace(2), "sandbox.exec")?;
        ensure!(exec.parent == request.id && exec.attributes["exit_code"] == "3", "{exec:?}");
        let snapshot = only(&spans, &trace(4), "sandbox.snapshot")?;
        ensure!(snapshot.attributes.contains_key("paused_ms"), "{snapshot:?}");
        let fork = only(&spans, &trace(5), "sandbox.fork")?;
        let children = spans.iter().filter(|span| span.name == "machine.restore" && span.parent == fork.id);
        ensure!(children.count() == 2 && fork.attributes["children"] == "2", "{fork:?}");
        only(&spans, &trace(6), "sandbox.hibernate")?;
        let request = only(&spans, &trace(7), "POST /v1/sandboxes/{id}/exec")?;
        ensure!(
            only(&spans, &trace(7), "sandbox.wake")?.parent == request.id,
            "a wake is part of what woke it"
        );
        only(&spans, &trace(10), "GET /v1/sandboxes")?;
        ensure!(spans.iter().all(|span| span.trace != trace(8) && span.trace != trace(9)));
        ensure!(
            spans
                .iter()
                .any(|span| span.attributes.get("http.response.status_code").is_some_and(|s| s == "401"))
        );

        for secret in [SECRET, KEY, "collector-key", "TOKEN"] {
            ensure!(!collector.holds(secret), "{secret} was sent to the collector");
        }
        ensure!(collector.holds("pandas") && collector.holds("service.name"));
        for (path, headers) in collector.heads() {
            ensure!(path == "/v1/traces" && headers["content-type"] == "application/x-protobuf", "{path}");
            ensure!(headers["authorization"] == "Bearer collector-key");
        }
        lab.remove()
    })
}

/// A create, its phases and how they hang together.
fn check_create(spans: &[Span], id: &str) -> Result<()> {
    let trace = trace(1);
    let request = only(spans, &trace, "POST /v1/sandboxes")?;
    ensure!(request.parent == CALLER && !request.failed, "{request:?}");
    let known = &request.attributes;
    for name in ["request.id", "tenant.id"] {
        ensure!(known.get(name).is_some_and(|value| !value.is_empty()), "{name}: {known:?}");
    }
    ensure!(known["sandbox.id"] == id && known["http.response.status_code"] == "201", "{known:?}");
    ensure!(known["http.request.method"] == "POST" && known["http.route"] == "/v1/sandboxes", "{known:?}");
    let create = only(spans, &trace, "sandbox.create")?;
    ensure!(create.parent == request.id && create.attributes["sandbox.id"] == id, "{create:?}");
    let restore = only(spans, &trace, "machine.restore")?;
    ensure!(restore.parent == create.id, "{restore:?}");
    let mut before = restore.times_ns.0;
    for name in ["machine.prepare", "machine.load", "machine.confirm"] {
        let step = only(spans, &trace, name)?;
        let (start, end) = step.times_ns;
        ensure!(step.parent == restore.id && start >= before && end >= start, "{step:?}");
        before = start;
    }
    for name in ["sandbox.record", "sandbox.settle"] {
        ensure!(only(spans, &trace, name)?.parent == create.id, "{name}");
    }
    Ok(())
}

/// What a counter stands at.
async fn counted(client: &Client, name: &str) -> Result<u64> {
    let text = client.get("/metrics").await?.expect(200)?.text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("pandastack_{name} ")));
    Ok(line.with_context(|| format!("no {name} in\n{text}"))?.trim().parse()?)
}

#[test]
fn a_collector_that_never_answers_harms_nobody() -> Result<()> {
    run(async || {
        let collector = Collector::start_silent().await?;
        let mut lab = Lab::prepare(LabSettings::new("silent")).await?;
        let endpoint = collector.endpoint();
        let server = ServeProcess::start(&mut lab, &["--otlp-endpoint", &endpoint]).await?;
        let client = server.client();
        ready(&client).await?;
        let id = client.create().await?;
        ensure!(client.shell(&id, "echo hi").await? == "hi");
        let started = Instant::now();
        for _ in 0..FLOOD {
            client.get("/version").await?.expect(200)?;
        }
        eprintln!("each of {FLOOD} requests took {:?}", started.elapsed() / u32::try_from(FLOOD)?);
        ensure!(counted(&client, "trace_spans_lost_total").await? > 0, "more waits than there is room for");
        client.remove(&id).await?;
        let started = Instant::now();
        server.stop().await?;
        ensure!(started.elapsed() < STOP_TIMEOUT, "it took {:?} to stop", started.elapsed());
        lab.remove()
    })
}
