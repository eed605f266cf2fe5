//! Code contexts and code that is run once.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::in_api;

use crate::at;

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
