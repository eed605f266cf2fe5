//! Processes that outlive the request that started them, and the server.

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tests::api::event_stream::joined;
use tests::{Api, in_api, run};

use crate::api::at;

#[test]
fn a_process_is_started_written_to_and_signalled() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let start = json!({ "argv": ["cat"], "stdin": true, "tag": "echo", "env": { "A": "b" } });
        let process = api.post(&at(&id, "/processes"), start).await?.expect(201)?.json()?;
        ensure!(
            process["running"] == true && process["tag"] == "echo" && process["pid"].is_u64(),
            "{process}"
        );
        let path = at(&id, &format!("/processes/{}", process["id"]));
        api.post(&format!("{path}/input"), json!({ "data": "hello\n" })).await?.expect(204)?;
        api.post(&format!("{path}/input"), json!({ "data": "bye\n", "close": true })).await?.expect(204)?;
        let events = api.events(Method::GET, &format!("{path}/output"), None).await?.rest().await?;
        ensure!(joined(&events, "stdout") == "hello\nbye\n", "{events:?}");
        ensure!(events.last().is_some_and(|event| event.data == json!({ "exit_code": 0 })), "{events:?}");
        let offset =
            api.events(Method::GET, &format!("{path}/output?stdout_offset=6"), None).await?.rest().await?;
        ensure!(joined(&offset, "stdout") == "bye\n", "{offset:?}");
        api.post(&format!("{path}/input"), json!({ "data": "too late" })).await?.failure(409)?;

        let sleeper = api
            .post(&at(&id, "/processes"), json!({ "cmd": "sleep 999 & wait" }))
            .await?
            .expect(201)?
            .json()?;
        let path = at(&id, &format!("/processes/{}", sleeper["id"]));
        api.post(&format!("{path}/signal"), json!({ "signal": "SIGNONE" })).await?.failure(400)?;
        api.post(&format!("{path}/signal"), json!({ "signal": 99999 })).await?.failure(400)?;
        api.post(&format!("{path}/signal"), json!({ "signal": "SIGKILL" })).await?.expect(204)?;
        let events = api.events(Method::GET, &format!("{path}/output"), None).await?.rest().await?;
        ensure!(events.last().is_some_and(|event| event.data == json!({ "exit_code": 137 })), "{events:?}");
        let all = api.get(&at(&id, "/processes")).await?.expect(200)?.json()?;
        let known =
            |wanted: &Value| all.as_array().is_some_and(|all| all.iter().any(|one| &one["id"] == wanted));
        ensure!(known(&process["id"]) && known(&sleeper["id"]), "{all}");
        api.get(&at(&id, "/processes/4000000000")).await?.failure(404)?;
        api.get(&at(&id, "/processes/-1")).await?.failure(404)?;
        api.post(&at(&id, "/processes"), json!({})).await?.failure(400)?;
        api.post(&at(&id, "/processes"), json!({ "cmd": "a", "argv": ["b"] })).await?.failure(400)?;
        api.remove(&id).await
    })
}

#[test]
fn what_runs_goes_on_when_the_server_restarts() -> Result<()> {
    run(async || {
        let api = Api::start("restart").await?;
        let id =
            api.create_with(json!({ "metadata": { "name": "survivor" }, "env": { "KEPT": "yes" } })).await?;
        let count = "i=0; while [ ! -e /run/stop ]; do i=$((i+1)); echo $i; sleep 0.1; done; echo end";
        let process = api.post(&at(&id, "/processes"), json!({ "cmd": count })).await?.expect(201)?.json()?;
        let output = at(&id, &format!("/processes/{}/output", process["id"]));
        let mut stream = api.events(Method::GET, &output, None).await?;
        stream.until(|event| event.data["chunk"].as_str().is_some_and(|text| text.contains('3'))).await?;
        // A command somebody waits for, when the server is told to stop.
        let (client, sandbox) = (api.client().clone(), id.clone());
        let waiting = tokio::spawn(async move {
            client.exec(&sandbox, json!({ "cmd": "touch /run/begun; sleep 2; echo finished" })).await
        });
        api.shell(&id, "while [ ! -e /run/begun ]; do sleep 0.05; done").await?;
        let api = api.restart().await?;
        let waited = waiting.await?.context("a request under way was cut off")?;
        ensure!(waited["stdout"] == "finished\n", "{waited}");
        // Whoever followed was told, and goes on where it stopped.
        let told = stream.rest().await?;
        ensure!(told.last().is_some_and(|event| event.name == "error"), "{told:?}");
        api.shell(&id, "touch /run/stop").await?;
        let events = api.events(Method::GET, &output, None).await?.rest().await?;
        let lines = joined(&events, "stdout");
        let numbers: Vec<u64> = lines.lines().filter_map(|line| line.parse().ok()).collect();
        ensure!(numbers.iter().copied().eq(1..=numbers.len() as u64), "lines are missing: {lines}");
        ensure!(
            lines.ends_with("end\n") && events.last().is_some_and(|event| event.name == "exit"),
            "{lines}"
        );
        let offset = format!("{output}?stdout_offset={}", lines.len() - 4);
        let tail = api.events(Method::GET, &offset, None).await?.rest().await?;
        ensure!(joined(&tail, "stdout") == "end\n", "{tail:?}");
        let sandbox = api.get(&at(&id, "")).await?.expect(200)?.json()?;
        ensure!(sandbox["metadata"]["name"] == "survivor" && sandbox["status"] == "running", "{sandbox}");
        ensure!(api.shell(&id, "echo $KEPT").await? == "yes");
        api.finish().await
    })
}
