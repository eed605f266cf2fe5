//! Ports: found, named, and never those that are nobody's business.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::{in_api, wait};

use crate::at;

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
