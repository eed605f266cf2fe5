//! Commands, waited for and followed.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tests::api::client::Client;
use tests::api::event_stream::{Event, joined};
use tests::{in_api, wait};

use crate::api::at;

#[test]
fn a_command_is_run_as_asked() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let exec = async |request: Value| api.exec(&id, request).await;
        let plain = exec(json!({ "cmd": "echo out; echo err >&2; exit 7" })).await?;
        ensure!(
            plain["stdout"] == "out\n" && plain["stderr"] == "err\n" && plain["exit_code"] == 7,
            "{plain}"
        );
        ensure!(plain["duration_ms"].is_u64() && plain["truncated"] == false, "{plain}");
        ensure!(exec(json!({ "cmd": "kill -9 $$" })).await?["exit_code"] == 137);
        ensure!(exec(json!({ "cmd": "kill -TERM $$" })).await?["exit_code"] == 143);
        ensure!(exec(json!({ "cmd": "pwd" })).await?["stdout"] == "/root\n");
        ensure!(exec(json!({ "cmd": "pwd", "cwd": "/usr/bin" })).await?["stdout"] == "/usr/bin\n");
        ensure!(exec(json!({ "cmd": "wc -c", "stdin": "é\n" })).await?["stdout"] == "3\n");
        ensure!(exec(json!({ "cmd": "cat" })).await?["stdout"] == "", "standard input is not empty");
        let env = json!({ "cmd": "printf %s \"$A$B\"", "env": { "A": "1\n", "B": "ü" } });
        ensure!(exec(env).await?["stdout"] == "1\nü");
        ensure!(exec(json!({ "cmd": "id -un", "user": "nobody" })).await?["stdout"] == "nobody\n");
        ensure!(
            exec(json!({ "cmd": "echo $PATH" })).await?["stdout"]
                .as_str()
                .is_some_and(|path| path.contains("/usr/local/bin"))
        );
        let bytes = exec(json!({ "cmd": "printf 'a\\377b\\360\\237\\220\\274'" })).await?;
        ensure!(bytes["stdout"] == "a\u{fffd}b🐼", "{bytes}");
        let large =
            exec(json!({ "cmd": "x() { head -c 1048576 /dev/zero | tr '\\0' x; }; x; x >&2" })).await?;
        let length = |name: &str| large[name].as_str().map_or(0, str::len);
        ensure!(length("stdout") == 1 << 20 && length("stderr") == 1 << 20 && large["truncated"] == false);

        // What stays behind with its own output does not keep the command from ending.
        let started = Instant::now();
        let behind = exec(json!({ "cmd": "setsid sleep 600 >/dev/null 2>&1 & echo launched" })).await?;
        ensure!(behind["stdout"] == "launched\n" && started.elapsed() < Duration::from_secs(100), "{behind}");

        for empty in [json!({}), json!({ "cmd": "" }), json!({ "cmd": "  " })] {
            ensure!(api.post(&at(&id, "/exec"), empty).await?.failure(400)?.contains("cmd required"));
        }
        let nobody = json!({ "cmd": "true", "user": "nonesuch" });
        ensure!(
            api.post(&at(&id, "/exec"), nobody).await?.status < 500,
            "an unknown user is the caller's mistake"
        );
        let nowhere = json!({ "cmd": "true", "cwd": "/nonesuch" });
        ensure!(
            api.post(&at(&id, "/exec"), nowhere).await?.status < 500,
            "an unknown directory is the caller's mistake"
        );
        api.remove(&id).await
    })
}

/// Waits until no process of a sandbox has `needle` as an argument.
async fn ends(api: &Client, id: &str, needle: &str) -> Result<()> {
    let line = format!("pgrep -fx 'sleep {needle}' >/dev/null && echo alive || echo gone");
    let gone = async || Ok(api.shell(id, &line).await? == "gone");
    wait::until_async("the command is killed", Duration::from_secs(60), gone).await
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_all_it_started() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let request = json!({ "cmd": "sleep 7777 & sleep 7777", "timeout_seconds": 1 });
        let late = api.post(&at(&id, "/exec"), request.clone()).await?;
        ensure!(late.failure(504)?.contains("timeout"), "{}", late.text());
        ends(api, &id, "7777").await?;
        let late = api.events(Method::POST, &at(&id, "/exec/stream"), Some(request)).await?.rest().await?;
        let last = late.last().map(|event| (event.name.as_str(), event.data["error"].to_string()));
        ensure!(last.is_some_and(|(name, text)| name == "error" && text.contains("timeout")), "{late:?}");
        ends(api, &id, "7777").await?;
        for wrong in [json!(-1), json!(1e99), json!("1"), json!(true)] {
            let answer =
                api.post(&at(&id, "/exec"), json!({ "cmd": "true", "timeout_seconds": wrong })).await?;
            answer.failure(400)?;
        }
        ensure!(api.exec(&id, json!({ "cmd": "true", "timeout_seconds": null })).await?["exit_code"] == 0);
        api.remove(&id).await
    })
}

#[test]
fn output_is_followed_in_order() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let stream = async |cmd: &str| -> Result<(String, Vec<Event>)> {
            let stream =
                api.events(Method::POST, &at(&id, "/exec/stream"), Some(json!({ "cmd": cmd }))).await?;
            let header = stream.headers().get("content-type").map(|value| format!("{value:?}"));
            Ok((header.unwrap_or_default(), stream.rest().await?))
        };
        let (kind, events) =
            stream("echo one; sleep 0.3; echo two >&2; sleep 0.3; echo three; exit 3").await?;
        ensure!(kind.contains("text/event-stream; charset=utf-8"), "{kind}");
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        ensure!(names == ["stdout", "stderr", "stdout", "exit"], "{events:?}");
        ensure!(joined(&events, "stdout") == "one\nthree\n" && joined(&events, "stderr") == "two\n");
        ensure!(events[3].data == json!({ "exit_code": 3 }), "{events:?}");

        // Characters that other line readers break at, one that is cut in half by two writes, one that never was one.
        let odd =
            "printf 'a\\342\\200\\250b\\302\\205c\\r\\n\\360\\237'; sleep 0.3; printf '\\220\\274\\377\\n'";
        let (_, events) = stream(odd).await?;
        ensure!(joined(&events, "stdout") == "a\u{2028}b\u{85}c\r\n🐼\u{fffd}\n", "{events:?}");
        let (_, events) = stream("for i in $(seq 20000); do echo line $i; done").await?;
        let expected: String = (1..=20000).map(|number| format!("line {number}\n")).collect();
        ensure!(joined(&events, "stdout") == expected, "lines were lost or mixed up");
        let (_, events) = stream("true").await?;
        ensure!(events == [Event { name: "exit".to_owned(), data: json!({ "exit_code": 0 }) }], "{events:?}");
        api.post(&at(&id, "/exec/stream"), json!({})).await?.failure(400)?;
        api.remove(&id).await
    })
}
