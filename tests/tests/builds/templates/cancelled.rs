//! Builds that are cancelled, under way and waiting.

use anyhow::{Context, Result, ensure};
use tests::form::Form;

use crate::templates::{TIMEOUT, in_server};

/// Never ends by itself.
const ENDLESS: &str = "FROM minimal\nRUN echo begun && sleep 100000\n";

#[test]
fn a_build_is_cancelled_whether_it_runs_or_waits() -> Result<()> {
    in_server(async |api| {
        let form = |name: &str| Form::new(&[("name", name), ("dockerfile", ENDLESS)]);
        let running = api.start_build(form("endless")).await?;
        tests::wait::until_async("the step runs", TIMEOUT, async || {
            Ok(api.build_log(&running).await?.iter().any(|line| line.ends_with("begun")))
        })
        .await?;
        // Of one name only one is built at a time.
        api.ask_build(form("endless")).await?.failure(409)?;
        let waiting = api.start_build(form("endless").field("replace", "true")).await?;
        ensure!(api.build(&waiting).await?["status"] == "queued");
        let following = tokio::spawn({
            let (client, id) = (api.client().clone(), running.clone());
            async move { client.followed_log(&id).await }
        });
        for id in [&waiting, &running] {
            api.delete(&format!("/v1/templates/builds/{id}")).await?.expect(204)?;
            api.delete(&format!("/v1/templates/builds/{id}")).await?.expect(204)?;
            let build = api.build(id).await?;
            ensure!(build["status"] == "failed" && build["error"] == "cancelled", "{build}");
            ensure!(api.build_log(id).await?.last().is_some_and(|line| line == "error: cancelled"));
        }
        let log = tokio::time::timeout(TIMEOUT, following).await.context("it is still followed")???;
        ensure!(log.last().is_some_and(|line| line == "error: cancelled"), "{log:?}");
        // Its machine and its files go.
        let uploads = api.node().builds_directory().join("uploads");
        tests::wait::until("its files are gone", TIMEOUT, || {
            [&running, &waiting].iter().all(|id| !uploads.join(id).exists())
        })
        .await?;
        api.get("/v1/templates/endless").await?.failure(404).map(drop)
    })
}
