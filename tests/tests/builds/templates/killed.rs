//! A server that is killed in the middle of a build: the next one finishes it. One that is stopped leaves it to the next, too.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::api::client::Client;
use tests::api::serve_process::ServeProcess;
use tests::form::Form;
use tests::{Lab, LabSettings, run_for, wait};

use crate::templates::{TEST_TIMEOUT, TIMEOUT};

const OPTIONS: [&str; 2] = ["--build-memory-mib", "512"];
/// Its second step waits, so that the server is not too fast for the test.
const DOCKERFILE: &str =
    "FROM minimal\nRUN echo first > /first\nRUN echo waiting && sleep 20 && echo second > /second\n";

/// Until the second step runs for the `times`th time.
async fn until_waiting(api: &Client, id: &str, times: usize) -> Result<()> {
    wait::until_async("the second step runs", TIMEOUT, async || {
        let build = api.build(id).await?;
        ensure!(build["status"] != "failed", "{build}");
        let log = api.build_log(id).await?;
        Ok(log.iter().filter(|line| line.ends_with(" waiting")).count() >= times)
    })
    .await
}

#[test]
fn the_next_server_finishes_a_build() -> Result<()> {
    run_for(TEST_TIMEOUT, async || {
        let mut lab =
            Lab::prepare(LabSettings { pool_bytes: 16 << 30, ..LabSettings::new("killed-build") }).await?;
        let server = ServeProcess::start(&mut lab, &OPTIONS).await?;
        let form = Form::new(&[("name", "survivor"), ("dockerfile", DOCKERFILE)]).file("unused", b"x");
        let id = server.client().start_build(form).await?;
        until_waiting(&server.client(), &id, 1).await?;
        server.kill()?;

        let server = ServeProcess::start(&mut lab, &OPTIONS).await?;
        let api = server.client();
        wait::until_async("it is begun again", TIMEOUT, async || {
            Ok(api.build_log(&id).await?.iter().any(|line| line.contains("started again")))
        })
        .await?;
        server.stop().await?;

        let server = ServeProcess::start(&mut lab, &OPTIONS).await?;
        let api = server.client();
        let build = api.ended_build(&id, TIMEOUT).await?;
        ensure!(build["status"] == "done", "{build}\n{}", api.build_log(&id).await?.join("\n"));
        let sandbox = api.create_with(json!({ "template": "survivor" })).await?;
        ensure!(api.shell(&sandbox, "cat /first /second").await? == "first\nsecond");
        api.remove(&sandbox).await?;
        server.kill()?;

        // Found again by the next, and its log too.
        let server = ServeProcess::start(&mut lab, &OPTIONS).await?;
        let api = server.client();
        let made = api.get("/v1/templates/survivor").await?.expect(200)?.json()?;
        ensure!(made["status"] == "ready", "{made}");
        ensure!(api.build_log(&id).await?.last().context("no log")?.contains("ready"));
        let sandbox = api.create_with(json!({ "template": "survivor" })).await?;
        ensure!(api.shell(&sandbox, "cat /second").await? == "second");
        api.delete_everything().await?;
        server.stop().await?;
        lab.remove()
    })
}

#[test]
fn a_build_that_no_server_survives_is_given_up() -> Result<()> {
    run_for(TEST_TIMEOUT, async || {
        let settings = LabSettings { pool_bytes: 16 << 30, ..LabSettings::new("deadly-build") };
        let mut lab = Lab::prepare(settings).await?;
        let mut server = ServeProcess::start(&mut lab, &OPTIONS).await?;
        let form = Form::new(&[("name", "deadly"), ("dockerfile", DOCKERFILE)]);
        let id = server.client().start_build(form).await?;
        for times in 1..=3 {
            until_waiting(&server.client(), &id, times).await?;
            server.kill()?;
            server = ServeProcess::start(&mut lab, &OPTIONS).await?;
        }
        let api = server.client();
        let build = api.ended_build(&id, TIMEOUT).await?;
        let error = build["error"].as_str().context("no error")?;
        ensure!(build["status"] == "failed" && error.contains("ended 3 times"), "{build}");
        ensure!(api.build_log(&id).await?.last().is_some_and(|line| line == &format!("error: {error}")));
        api.get("/v1/templates/deadly").await?.failure(404)?;
        // The server goes on, nothing of the build is left, and what it had done serves the next.
        let builds = lab.data_dir().join("pool/builds");
        for folder in ["uploads", "staging", "templates"] {
            wait::until("its files are gone", TIMEOUT, || {
                std::fs::read_dir(builds.join(folder)).is_ok_and(|mut left| left.next().is_none())
            })
            .await?;
        }
        let dockerfile = "FROM minimal\nRUN echo first > /first\n";
        let form = Form::new(&[("name", "deadly"), ("dockerfile", dockerfile)]);
        let build = api.built(form, TIMEOUT).await?;
        let log = api.build_log(build["id"].as_str().context("no id")?).await?;
        ensure!(log.iter().any(|line| line.ends_with(" CACHED")), "{}", log.join("\n"));
        api.delete_everything().await?;
        server.stop().await?;
        lab.remove()
    })
}
