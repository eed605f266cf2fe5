//! What can be seen from outside: logs, events, measurements, the server itself.

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tests::{in_api, wait};

use crate::api::at;

#[test]
fn a_sandbox_tells_what_happens_to_it() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let mut following = api.events(Method::GET, &at(&id, "/events?follow=1&tail=5"), None).await?;
        let kind = |wanted: &'static str| {
            move |event: &tests::api::event_stream::Event| event.data["type"] == wanted
        };
        let first = following.until(kind("sandbox.running")).await?;
        ensure!(first.name == "event" && first.data["sandbox_id"] == id && first.data["time"].is_string());
        api.post_nothing(&at(&id, "/pause")).await?.expect(204)?;
        following.until(kind("sandbox.paused")).await?;
        api.post_nothing(&at(&id, "/resume")).await?.expect(204)?;
        following.until(kind("sandbox.resumed")).await?;
        api.post_nothing(&at(&id, "/hibernate")).await?.expect(200)?;
        following.until(kind("sandbox.hibernated")).await?;
        api.post_nothing(&at(&id, "/wake")).await?.expect(200)?;
        following.until(kind("sandbox.woken")).await?;
        let all = api.get(&at(&id, "/events")).await?.expect(200)?.json()?;
        ensure!(all["events"].as_array().is_some_and(|all| all.len() >= 5), "{all}");
        let two = api.get(&at(&id, "/events?tail=2")).await?.expect(200)?.json()?;
        ensure!(
            two["events"].as_array().map(Vec::len) == Some(2) && two["events"][1]["type"] == "sandbox.woken"
        );

        // The console is the guest's kernel and whatever is written there.
        api.shell(&id, "echo 'said on the console é' > /dev/console").await?;
        let said = async || {
            Ok(api.get(&at(&id, "/logs")).await?.expect(200)?.text().contains("said on the console é"))
        };
        wait::until_async("the console is read", std::time::Duration::from_secs(60), said).await?;
        let plain = api.get(&at(&id, "/logs?follow=false&stream=both&tail=1")).await?.expect(200)?;
        ensure!(
            plain.header("content-type") == "text/plain; charset=utf-8" && plain.text().lines().count() == 1
        );
        ensure!(api.get(&at(&id, "/logs?stream=stderr")).await?.expect(200)?.text().is_empty());
        api.get(&at(&id, "/logs?stream=nonesuch")).await?.failure(400)?;
        let mut lines = api.events(Method::GET, &at(&id, "/logs?follow=true"), None).await?;
        api.shell(&id, "echo followed > /dev/console").await?;
        let line = lines
            .until(|event| event.data["line"].as_str().is_some_and(|line| line.contains("followed")))
            .await?;
        ensure!(line.name == "line" && line.data["line"].as_str().is_some_and(|line| line.ends_with('\n')));

        let metrics = api.get(&at(&id, "/metrics")).await?.expect(200)?.json()?;
        for name in
            ["pid", "uptime_seconds", "host_cpu_percent", "host_rss_bytes", "host_vsz_bytes", "threads"]
        {
            ensure!(metrics[name].is_number(), "{name}: {metrics}");
        }
        ensure!(metrics["guest"]["memory_total_bytes"].as_u64() > Some(100 << 20), "{metrics}");
        let boots = api.get("/v1/stats/boot?limit=5").await?.expect(200)?.json()?;
        ensure!(boots["overall"]["p50"].is_number() && boots["recent"].is_array(), "{boots}");
        api.remove(&id).await?;
        following.until(kind("sandbox.deleted")).await?;
        ensure!(following.next().await?.is_none(), "the stream goes on after the end");
        ensure!(lines.rest().await?.iter().all(|event| event.name == "line"));
        Ok(())
    })
}

#[test]
fn each_end_of_a_machine_is_told_once() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let cold = json!({ "cold": true });
        let off = json!({ "cmd": "echo o > /proc/sysrq-trigger" });
        for deaths in 1..=2 {
            // Of one that runs nothing is lost, and nothing happens to it.
            api.post(&at(&id, "/start"), cold.clone()).await?.expect(200)?;
            // The answer to this may or may not arrive. What is asked later is told of the end, not of how it was noticed.
            api.post(&at(&id, "/exec"), off.clone()).await?;
            wait::until_async("commands are refused", std::time::Duration::from_secs(60), async || {
                let answer = api.post(&at(&id, "/exec"), json!({ "cmd": "true" })).await?;
                if answer.status == 200 {
                    return Ok(false);
                }
                answer.failure(409)?;
                Ok(true)
            })
            .await?;
            let kinds = async || {
                let events = api.get(&at(&id, "/events")).await?.expect(200)?.json()?;
                let all = events["events"].as_array().context("no events")?.clone();
                Ok::<_, anyhow::Error>(all.into_iter().map(|event| event["type"].clone()).collect::<Vec<_>>())
            };
            let count = |kinds: &[Value], kind: &str| kinds.iter().filter(|one| *one == kind).count();
            wait::until_async("the end is told", std::time::Duration::from_secs(60), async || {
                Ok(count(&kinds().await?, "vm.died") >= deaths)
            })
            .await?;
            api.post(&at(&id, "/start"), cold.clone()).await?.expect(200)?;
            let kinds = kinds().await?;
            ensure!(count(&kinds, "vm.died") == deaths, "{kinds:?}");
            ensure!(count(&kinds, "sandbox.running") == deaths + 1, "{kinds:?}");
        }
        api.remove(&id).await
    })
}

/// What devices carried is told of a sandbox, and of all of them together. Asking wakes nobody, and what is gone stays counted.
#[test]
fn what_devices_carry_is_counted() -> Result<()> {
    in_api(async |api| {
        const BYTES: u64 = 2 << 20;
        let total = async || {
            let text = api.without_key().get("/metrics").await?.expect(200)?.text();
            let line = text.lines().find(|line| line.starts_with("pandastack_disk_written_bytes_total "));
            let number = line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            number.with_context(|| format!("no such total: {text}"))
        };
        let before = total().await?;
        let id = api.create().await?;
        api.shell(&id, "dd if=/dev/zero of=/counted bs=1M count=2 oflag=direct 2>&1").await?;
        let told = async || {
            let metrics = api.get(&at(&id, "/metrics")).await?.expect(200)?.json()?;
            Ok(metrics["devices"]["disk_written_bytes"].as_u64() >= Some(BYTES))
        };
        let patience = std::time::Duration::from_secs(60);
        wait::until_async("the sandbox tells what it wrote", patience, told).await?;
        let grown = async || Ok(total().await? >= before + BYTES);
        wait::until_async("the total has it", patience, grown).await?;

        api.shell(&id, "dd if=/dev/zero of=/counted bs=1M count=2 oflag=direct 2>&1").await?;
        api.post_nothing(&at(&id, "/hibernate")).await?.expect(200)?;
        let grown = async || Ok(total().await? >= before + 2 * BYTES);
        wait::until_async("the total has what was written before it slept", patience, grown).await?;
        api.get(&at(&id, "/metrics")).await?.failure(409)?;
        let asleep = api.get(&at(&id, "")).await?.expect(200)?.json()?;
        ensure!(asleep["status"] == "hibernated", "{asleep}");
        api.remove(&id).await?;
        let after = total().await?;
        ensure!(after >= before + 2 * BYTES, "{before}, then {after}");
        Ok(())
    })
}

#[test]
fn the_server_tells_about_itself() -> Result<()> {
    in_api(async |api| {
        let open = api.without_key();
        let health = open.get("/healthz").await?.expect(200)?.json()?;
        ensure!(health["status"] == "ok" && health["checks"]["database"] == "ok", "{health}");
        for path in ["/version", "/v1/version"] {
            let version = open.get(path).await?.expect(200)?.json()?;
            ensure!(
                version["service"] == "pandastack" && version["semver"] == version["version"],
                "{version}"
            );
            ensure!(version["commit"].is_string() && version["built_at"].is_string(), "{version}");
        }
        let text = open.get("/metrics").await?.expect(200)?.text();
        ensure!(text.contains("# TYPE") && text.trim_end().ends_with("# EOF"), "{text}");
        let page = open.get("/docs").await?.expect(200)?;
        ensure!(
            page.header("content-type").starts_with("text/html") && page.text().contains("/v1/sandboxes")
        );

        let asked = api
            .send(Method::GET, "/v1/me", &[("x-request-id", "mine-1")], tests::api::client::nothing())
            .await?;
        let me = api.read(asked).await?.expect(200)?;
        ensure!(me.header("x-request-id") == "mine-1" && me.header("access-control-allow-origin") == "*");
        let me: Value = me.json()?;
        for name in ["id", "user_id", "email", "workspace", "current_org_id", "auth_method"] {
            ensure!(me[name].is_string(), "{name}: {me}");
        }
        ensure!(me["orgs"].as_array().map(Vec::len) == Some(1), "{me}");
        let preflight = open.request(Method::OPTIONS, "/v1/sandboxes", None).await?;
        ensure!(
            matches!(preflight.status, 200 | 204)
                && preflight.header("access-control-allow-headers").contains("authorization")
        );

        let id = api.create_with(json!({ "metadata": { "who": "audited" } })).await?;
        api.remove(&id).await?;
        let found = async || {
            let audit = api.get("/v1/audit?limit=1000").await?.expect(200)?.json()?;
            let entries = audit["entries"].as_array().cloned().unwrap_or_default();
            Ok(entries.iter().any(|entry| {
                entry["method"] == "DELETE" && entry["path"] == at(&id, "").as_str() && entry["status"] == 204
            }))
        };
        wait::until_async("the deletion is in the audit log", std::time::Duration::from_secs(60), found)
            .await?;
        let later = api.get("/v1/audit?since=2099-01-01T00:00:00Z").await?.expect(200)?.json()?;
        ensure!(later["entries"] == json!([]), "{later}");
        api.get("/v1/audit?since=yesterday").await?.failure(400).map(drop)
    })
}
