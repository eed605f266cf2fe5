//! Forks in the forms that clients ask for them, and choosing among the children.

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tests::api::client::Client;
use tests::api::list;
use tests::in_api;

use crate::api::at;

/// A child of a fork in the form that every client reads.
fn child(answer: &Value) -> Result<String> {
    let id = answer["sandbox"]["id"].as_str().with_context(|| format!("no child: {answer}"))?;
    ensure!(answer["children"][0]["id"] == id && answer["errors"] == json!([]), "{answer}");
    ensure!(answer["snapshot_id"].is_string() && answer["at"].is_string() && answer["tree_id"].is_string());
    let child = &answer["sandbox"];
    ensure!(child["status"] == "running" && child["boot_ms"].is_u64() && child["cpu"].is_u64(), "{child}");
    ensure!(child["metadata"]["fork_parent_id"] == answer["parent_id"], "{child}");
    ensure!(child["parent_id"] == answer["parent_id"], "{child}");
    Ok(id.to_owned())
}

async fn says(api: &Client, id: &str, expected: &str) -> Result<()> {
    let said = api.shell(id, "cat /run/memory; kill -0 $(cat /run/pid) && echo alive").await?;
    ensure!(said == format!("{expected}\nalive"), "{said}");
    Ok(())
}

#[test]
fn every_form_of_a_fork_is_understood() -> Result<()> {
    in_api(async |api| {
        let parent = api.create_with(json!({ "metadata": { "mine": "1" } })).await?;
        api.shell(
            &parent,
            "echo common > /run/memory; setsid sleep 6666 >/dev/null 2>&1 & echo $! > /run/pid",
        )
        .await?;
        let fork = at(&parent, "/fork");
        let nothing = api.post_nothing(&fork).await?.expect(201)?.json()?;
        let text =
            api.bytes(Method::POST, &fork, "text/plain;charset=UTF-8", "").await?.expect(201)?.json()?;
        let warm = api.post(&fork, json!({ "count": 1, "mode": "warm" })).await?.expect(201)?.json()?;
        // A sleeping sandbox is woken by it, like by anything that uses it.
        api.post_nothing(&at(&parent, "/hibernate")).await?.expect(200)?;
        let written = api.post(&fork, json!({ "metadata": { "branch": "b" } })).await?.expect(201)?.json()?;
        ensure!(
            written["sandbox"]["metadata"]["branch"] == "b" && written["sandbox"]["metadata"]["mine"] == "1"
        );
        let first = child(&nothing)?;
        api.shell(&first, "echo changed > /run/memory").await?;
        for answer in [&text, &warm, &written] {
            let id = child(answer)?;
            says(api, &id, "common").await?;
            api.remove(&id).await?;
        }
        says(api, &first, "changed").await?;
        says(api, &parent, "common").await?;
        let names = (api.shell(&first, "hostname").await?, api.shell(&parent, "hostname").await?);
        ensure!(names.0 != names.1, "both are called {names:?}");
        let answer = api.post(&fork, json!({ "name": "fork-named" })).await?.expect(201)?.json()?;
        let named = child(&answer)?;
        ensure!(api.shell(&named, "hostname").await? == "fork-named");
        api.remove(&named).await?;
        for wrong in
            [json!({ "count": 0 }), json!({ "count": 17 }), json!({ "count": -1 }), json!({ "count": "2" })]
        {
            api.post(&fork, wrong).await?.failure(400)?;
        }
        for id in [first, parent] {
            api.remove(&id).await?;
        }
        Ok(())
    })
}

#[test]
fn one_child_is_chosen_and_the_others_go() -> Result<()> {
    in_api(async |api| {
        let parent = api.create().await?;
        api.shell(
            &parent,
            "echo common > /run/memory; setsid sleep 6666 >/dev/null 2>&1 & echo $! > /run/pid",
        )
        .await?;
        let tree = json!({ "count": 3, "metadata": { "explore": "1", "explore_ttl": "600" } });
        let made = api.post(&at(&parent, "/fork-tree"), tree).await?.expect(201)?.json()?;
        let children = list(&made["children"], "id")?;
        ensure!(children.len() == 3 && made["errors"] == json!([]) && made["parent_id"] == parent, "{made}");
        for (index, child) in children.iter().enumerate() {
            let (metadata, index) = (&made["children"][index]["metadata"], json!(index.to_string()));
            ensure!(metadata["fork_tree_id"] == made["tree_id"] && metadata["fork_index"] == index);
            says(api, child, "common").await?;
        }
        let promote = at(&children[1], "/promote");
        let kept = api.post(&promote, json!({ "cleanup_siblings": false })).await?.expect(200)?.json()?;
        ensure!(kept["deleted"] == json!([]) && kept["tree_id"] == made["tree_id"], "{kept}");
        let body = json!({ "cleanup_siblings": true, "tree_id": made["tree_id"] });
        let chosen = api.post(&promote, body).await?.expect(200)?.json()?;
        let mut deleted: Vec<_> =
            chosen["deleted"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        deleted.sort_unstable();
        let mut others = [children[0].as_str(), children[2].as_str()];
        others.sort_unstable();
        ensure!(
            deleted == others && chosen["winner"] == children[1] && chosen["failures"] == json!({}),
            "{chosen}"
        );
        // It does not go when it is forgotten, as children of an experiment do.
        let winner = api.get(&at(&children[1], "")).await?.expect(200)?.json()?;
        ensure!(
            winner["metadata"]["explore"] == "1" && winner["metadata"]["explore_ttl"].is_null(),
            "{winner}"
        );
        // Again, and without naming the fork: nothing more happens.
        let again = api.post(&promote, json!({ "cleanup_siblings": true })).await?.expect(200)?.json()?;
        ensure!(again["deleted"] == json!([]) && again["tree_id"] == made["tree_id"], "{again}");
        api.get(&at(&children[0], "")).await?.failure(404)?;
        says(api, &parent, "common").await?;
        api.post(&at(&parent, "/promote"), json!({})).await?.failure(400)?;
        api.post(&promote, json!({ "tree_id": "nonesuch" })).await?.failure(400)?;
        for id in [&children[1], &parent] {
            api.remove(id).await?;
        }
        Ok(())
    })
}
