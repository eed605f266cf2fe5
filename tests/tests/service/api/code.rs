//! Code contexts and code that is run once.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tests::api::event_stream::joined;
use tests::in_api;

use crate::api::at;

#[test]
fn a_context_keeps_its_state() -> Result<()> {
    in_api(async |api| {
        let id = api.create_with(json!({ "env": { "GREETING": "hej" } })).await?;
        let sessions = at(&id, "/repl/sessions");
        let made = api.post(&sessions, json!({ "language": "bash" })).await?.expect(201)?.json()?;
        let context = made["id"].as_str().context("no id")?.to_owned();
        ensure!(
            made["sandbox_id"] == id && made["language"] == "bash" && made["created_at"].is_string(),
            "{made}"
        );
        let path = format!("{sessions}/{context}/run");
        let run = async |body: Value| -> Result<Value> { api.post(&path, body).await?.expect(200)?.json() };
        ensure!(run(json!({ "code": "x=41; cd /tmp" })).await?["exit"] == 0);
        let second = run(json!({ "code": "echo $((x+1)) $PWD $GREETING é🐼; echo err >&2" })).await?;
        ensure!(second["stdout"] == "42 /tmp hej é🐼\n" && second["stderr"] == "err\n", "{second}");
        ensure!(
            second["results"].is_array() && second["duration_ms"].is_u64() && second["exit_code"] == 0,
            "{second}"
        );
        let failed = run(json!({ "code": "nonesuch-command" })).await?;
        ensure!(failed["exit"] != 0, "{failed}");
        let begun = Instant::now();
        let late = api.post(&path, json!({ "code": "sleep 300", "timeout_ms": 1000 })).await?;
        ensure!(late.failure(504)?.contains("timeout") && begun.elapsed().as_secs() < 60, "{}", late.text());
        ensure!(run(json!({ "code": "echo still $x" })).await?["stdout"] == "still 41\n");
        // Asleep and awake again, it is the same process.
        api.post_nothing(&at(&id, "/hibernate")).await?.expect(200)?;
        let listed = api.get(&sessions).await?.expect(200)?.json()?;
        ensure!(listed[0]["id"] == context && listed[0]["cells"].as_u64() >= Some(3), "{listed}");
        ensure!(api.status(&id).await? == "hibernated", "listing contexts woke it");
        ensure!(run(json!({ "code": "echo $x" })).await?["stdout"] == "41\n");
        // A child has the context of its parent, and goes its own way.
        let child = api.post_nothing(&at(&id, "/fork")).await?.expect(201)?.json()?;
        let child = child["sandbox"]["id"].as_str().context("no child")?.to_owned();
        let theirs = at(&child, &format!("/repl/sessions/{context}/run"));
        let answer = api.post(&theirs, json!({ "code": "echo $x; x=7" })).await?.expect(200)?.json()?;
        ensure!(answer["stdout"] == "41\n", "{answer}");
        ensure!(run(json!({ "code": "echo $x" })).await?["stdout"] == "41\n");

        for wrong in [json!({ "timeout_ms": -1 }), json!({ "timeout_ms": i64::MAX }), json!({ "code": 1 })] {
            api.post(&path, wrong).await?.failure(400)?;
        }
        api.post(&sessions, json!({ "language": "cobol" })).await?.failure(400)?;
        api.post(&format!("{sessions}/nonesuch/run"), json!({ "code": "true" })).await?.failure(404)?;
        api.delete(&format!("{sessions}/{context}")).await?.expect(204)?;
        api.post(&path, json!({ "code": "true" })).await?.failure(404)?;
        ensure!(api.get(&sessions).await?.expect(200)?.json()? == json!([]));
        for id in [child, id] {
            api.remove(&id).await?;
        }
        Ok(())
    })
}

#[test]
fn the_default_context_is_made_once_kept_forked_and_replaced() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let path = |id: &str| at(id, "/repl/sessions/default/run");
        let run_in = async |id: &str, code: &str| -> Result<Value> {
            let body = json!({ "code": code, "language": "bash" });
            api.post(&path(id), body).await?.expect(200)?.json()
        };
        // Two that come first at the same time meet in one context.
        let (one, other) = tokio::join!(run_in(&id, "n=$((n+1))"), run_in(&id, "n=$((n+1)); plan=draft"));
        let (one, other) = (one?, other?);
        ensure!(one["context_id"] == other["context_id"] && one["context_id"].is_string(), "{one} {other}");
        ensure!(run_in(&id, "echo $n $plan").await?["stdout"] == "2 draft\n");
        let listed = api.get(&at(&id, "/repl/sessions")).await?.expect(200)?.json()?;
        ensure!(listed[0]["id"] == one["context_id"] && listed[0]["cells"] == 3, "{listed}");
        // It sleeps with its sandbox, and a child has it too.
        api.post_nothing(&at(&id, "/hibernate")).await?.expect(200)?;
        ensure!(run_in(&id, "echo $plan").await?["stdout"] == "draft\n");
        let child = api.post_nothing(&at(&id, "/fork")).await?.expect(201)?.json()?;
        let child = child["sandbox"]["id"].as_str().context("no child")?.to_owned();
        ensure!(run_in(&child, "echo $plan; plan=theirs").await?["stdout"] == "draft\n");
        ensure!(run_in(&id, "echo $plan").await?["stdout"] == "draft\n");
        // A cell that ends its interpreter says so, and the next one has a new one.
        let ended = run_in(&id, "kill -9 $$").await?;
        ensure!(
            ended["exit"] == 137 && ended["error"].as_str().is_some_and(|text| text.contains("lost")),
            "{ended}"
        );
        ensure!(run_in(&id, "echo [$plan]").await?["stdout"] == "[]\n");
        // One that was killed in between is missed by the next cell, and replaced for the one after it.
        let pid = run_in(&id, "echo $$").await?["stdout"].as_str().context("no pid")?.trim().to_owned();
        api.shell(&id, &format!("kill -9 {pid}; while kill -0 {pid} 2>/dev/null; do :; done")).await?;
        let missed = api.post(&path(&id), json!({ "code": "true", "language": "bash" })).await?;
        ensure!(
            missed.failure(502)?.contains("lost") && missed.json()?["hint"].is_string(),
            "{}",
            missed.text()
        );
        ensure!(run_in(&id, "echo again").await?["stdout"] == "again\n");
        // Python is meant where no language is said, and each language has its own.
        let python = api.post(&path(&id), json!({ "code": "x = 20\nx + 1" })).await?.expect(200)?.json()?;
        ensure!(
            python["results"][0]["text/plain"] == "21" && python["context_id"] != one["context_id"],
            "{python}"
        );
        let context = python["context_id"].as_str().context("no id")?;
        let named = at(&id, &format!("/repl/sessions/{context}/run"));
        ensure!(api.post(&named, json!({ "code": "x" })).await?.expect(200)?.text().contains("20"));
        let wrong = api.post(&named, json!({ "code": "x", "language": "python" })).await?;
        ensure!(wrong.failure(400)?.contains("default"));
        api.post(&path(&id), json!({ "code": "1", "language": "cobol" })).await?.failure(400)?;
        for id in [child, id] {
            api.remove(&id).await?;
        }
        Ok(())
    })
}

#[test]
fn a_cell_is_followed_while_it_runs_and_goes_on_alone() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let path = at(&id, "/repl/sessions/default/run/stream");
        let follow = async |body: Value| api.events(Method::POST, &path, Some(body)).await;
        // What is told before the cell can go on, because it waits for what the test does then.
        let code = "import os, sys, time\nprint('hé')\nsys.stdout.flush()\nsys.stderr.write('oops')\nsys.stderr.flush()\n\
            while not os.path.exists('/tmp/go'): time.sleep(0.05)\n'done'";
        let mut cell = follow(json!({ "code": code, "timeout_ms": 120_000 })).await?;
        let first = cell.until(|event| event.name == "stdout").await?;
        ensure!(first.data == json!({ "chunk": "hé\n" }), "{first:?}");
        api.shell(&id, "touch /tmp/go").await?;
        let rest = cell.rest().await?;
        ensure!(joined(&rest, "stderr") == "oops", "{rest:?}");
        let result = rest.iter().find(|event| event.name == "result").context("no result")?;
        ensure!(result.data["text/plain"] == "'done'", "{result:?}");
        let exit = rest.last().context("no end")?;
        ensure!(exit.name == "exit" && exit.data["exit"] == 0 && exit.data["exit_code"] == 0, "{exit:?}");
        ensure!(exit.data["duration_ms"].is_u64() && exit.data["context_id"].is_string(), "{exit:?}");
        let raised = follow(json!({ "code": "1 / 0" })).await?.rest().await?;
        let exit = raised.last().context("no end")?;
        let error = exit.data["error"].as_str().unwrap_or_default();
        ensure!(
            exit.name == "exit" && exit.data["exit"] == 1 && error.contains("ZeroDivisionError"),
            "{exit:?}"
        );
        let late = json!({ "code": "print('begun', flush=True)\nwhile True: pass", "timeout_ms": 500 });
        let late = follow(late).await?.rest().await?;
        let end = late.last().context("no end")?;
        ensure!(
            end.name == "error" && end.data["code"] == "timeout" && end.data["hint"].is_string(),
            "{end:?}"
        );
        ensure!(joined(&late, "stdout") == "begun\n", "{late:?}");
        // The caller goes away, the cell does not.
        let code =
            "open('/tmp/there', 'w').close()\nwhile not os.path.exists('/tmp/on'): time.sleep(0.05)\nx = 5";
        let mut left =
            follow(json!({ "code": format!("print('on', flush=True)\n{code}"), "timeout_ms": 120_000 }))
                .await?;
        left.until(|event| event.name == "stdout").await?;
        drop(left);
        api.shell(&id, "touch /tmp/on").await?;
        let after = follow(json!({ "code": "x" })).await?.rest().await?;
        let seen = after.iter().any(|event| event.name == "result" && event.data["text/plain"] == "5");
        ensure!(seen, "{after:?}");
        let missing = at(&id, "/repl/sessions/nonesuch/run/stream");
        api.post(&missing, json!({ "code": "1" })).await?.failure(404)?;
        api.remove(&id).await
    })
}

#[test]
fn code_is_run_once() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let once = async |body: Value| api.post(&at(&id, "/repl"), body).await;
        let bash = once(json!({ "language": "sh", "code": "echo out; echo err >&2; exit 4" }))
            .await?
            .expect(200)?
            .json()?;
        let expected = json!({ "language": "sh", "stdout": "out\n", "stderr": "err\n", "exit_code": 4 });
        ensure!(bash == expected, "{bash}");
        let python =
            once(json!({ "language": "py", "code": "print('é' * 2)" })).await?.expect(200)?.json()?;
        ensure!(python["stdout"] == "éé\n" && python["exit_code"] == 0, "{python}");
        once(json!({ "language": "cobol", "code": "" })).await?.failure(400)?;
        let late = once(json!({ "language": "bash", "code": "sleep 300", "timeout_ms": 500 })).await?;
        ensure!(late.failure(504)?.contains("timeout"));
        let languages = api.get("/v1/repl/languages").await?.expect(200)?.json()?;
        ensure!(languages.as_array().is_some_and(|all| all.contains(&json!("python"))), "{languages}");
        let servers = api.get("/v1/lsp/languages").await?.expect(200)?.json()?;
        ensure!(servers["supported"].is_array() && servers["note"].is_string(), "{servers}");
        api.remove(&id).await
    })
}
