//! Ports: found, named, and never those that are nobody's business.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{in_api, wait};

use crate::api::at;

fn port(ports: &Value, number: u16) -> Value {
    ports.as_array().into_iter().flatten().find(|port| port["port"] == number).cloned().unwrap_or_default()
}

#[test]
fn ports_are_found_and_named() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let path = at(&id, "/ports");
        ensure!(api.get(&path).await?.expect(200)?.json()? == json!([]));
        let listen = "import _socket as s, time; a = s.socket(s.AF_INET, s.SOCK_STREAM); \
            a.bind(('0.0.0.0', 8000)); a.listen(); time.sleep(9999)";
        api.post(&at(&id, "/processes"), json!({ "argv": ["python3", "-c", listen] })).await?.expect(201)?;
        let listening =
            async || Ok(port(&api.get(&path).await?.expect(200)?.json()?, 8000)["listening"] == true);
        wait::until_async("the port is found", Duration::from_secs(60), listening).await?;
        let named = api.post(&path, json!({ "port": 8000, "label": "web" })).await?.expect(201)?.json()?;
        ensure!(
            named["label"] == "web" && named["source"] == "user" && named["listening"] == true,
            "{named}"
        );
        ensure!(named["proxy_url"] == at(&id, "/proxy/8000/"), "{named}");
        api.post(&path, json!({ "port": 9000 })).await?.expect(201)?;
        let all = api.get(&path).await?.expect(200)?.json()?;
        ensure!(port(&all, 9000)["listening"] == false && port(&all, 9000)["source"] == "user", "{all}");
        let object = api.get(&at(&id, "")).await?.json()?;
        ensure!(object["metadata"]["port.8000"] == "web", "{object}");
        for wrong in [json!(22), json!(0), json!(-1), json!(65536), json!(i64::MAX), json!("80"), json!(null)]
        {
            api.post(&path, json!({ "port": wrong })).await?.failure(400)?;
        }
        api.delete(&format!("{path}/8000")).await?.expect(204)?;
        api.delete(&format!("{path}/8000")).await?.failure(404)?;
        let detected = port(&api.get(&path).await?.json()?, 8000);
        ensure!(detected["source"] == "detected" && detected.get("label").is_none(), "{detected}");
        api.remove(&id).await
    })
}

#[test]
fn browsers_get_pages_that_say_what_to_do() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let made =
            api.post(&at(&id, "/preview-token"), json!({ "port": 3000 })).await?.expect(200)?.json()?;
        let link = format!("/v1/p/{}/", made["token"].as_str().context("no token")?);
        let ask = async |host: &str, path: &str, accept: &str| {
            let head = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
            );
            api.raw(head.as_bytes()).await
        };
        let page = async |host: &str, path: &str, status: u16, wanted: &str| -> Result<String> {
            let answer = ask(host, path, "text/html,application/xhtml+xml,*/*;q=0.8").await?;
            ensure!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            let lower = answer.to_ascii_lowercase();
            ensure!(
                lower.contains("content-type: text/html") && lower.contains("<!doctype html>"),
                "{answer}"
            );
            ensure!(lower.contains("content-security-policy: default-src 'none'; style-src 'unsafe-inline'"));
            ensure!(!lower.contains("<script") && answer.contains(wanted), "{answer}");
            Ok(answer)
        };
        let host = |port: u16| format!("{port}-{id}.localhost");
        for (host, path) in [(host(3000), "/"), ("127.0.0.1".to_owned(), link.as_str())] {
            let waiting = page(&host, path, 502, "localhost:3000").await?;
            ensure!(
                waiting.contains("Nothing listens on port 3000") && waiting.contains("refresh"),
                "{waiting}"
            );
            let answer = ask(&host, path, "*/*").await?;
            ensure!(answer.contains("\"code\":\"upstream\"") && answer.contains("\"hint\""), "{answer}");
        }
        ensure!(!page(&host(22), "/", 403, "not open").await?.contains("refresh"));
        page("127.0.0.1", "/v1/p/x.y/", 401, "Ask for a new link").await?;
        page("www.localhost", "/", 404, "There is nothing here").await?;
        api.remove(&id).await?;
        page(&host(3000), "/", 404, "deleted").await.map(drop)
    })
}
