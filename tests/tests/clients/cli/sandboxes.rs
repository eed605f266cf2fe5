//! Names, lists, trees and deletion of sandboxes.

use anyhow::{Result, ensure};
use tests::api::TEMPLATE;
use tests::in_api;

use crate::cli::program::Cli;

#[test]
fn sandboxes_are_named_found_drawn_and_deleted() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let mark = "suite=cli-sandboxes";
        let words =
            ["sandbox", "create", "-t", TEMPLATE, "--name", "cli-web", "--ttl", "1h30m", "--metadata", mark];
        let id = cli.ok(&words).await?;
        let child = cli.ok(&["sandbox", "fork", "cli-web", "--name", "cli-draft"]).await?;
        let snapshot = cli.ok(&["sandbox", "snapshot", "cli-draft"]).await?;

        let listed = cli.ok(&["sandbox", "list", "--metadata", mark]).await?;
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        ensure!(
            lines[0] == ["ID", "NAME", "TEMPLATE", "STATUS", "AGE", "IDLE", "LEFT", "METADATA"],
            "{listed}"
        );
        ensure!(lines.len() == 3 && lines[2][..4] == [&id[..8], "cli-web", TEMPLATE, "running"], "{listed}");
        // Metadata of the platform is not shown, and an age is no date.
        ensure!(lines[2][5] == "1h" && lines[2][6..] == [mark], "{listed}");
        ensure!(cli.ok(&["sandbox", "list", "--no-trunc", "--name", "cli-web"]).await?.contains(&id));
        ensure!(cli.ok(&["sandbox", "list", "-q", "--parent", "cli-web"]).await? == child);
        ensure!(
            cli.ok(&["sandbox", "list", "-q", "--status", "paused", "--metadata", mark]).await?.is_empty()
        );
        ensure!(cli.ok(&["snapshot", "list", "-q"]).await?.contains(&snapshot));
        for list in ["template", "volume", "token"] {
            ensure!(!cli.ok(&[list, "list", "--quiet"]).await?.contains(' '), "{list}");
        }

        let listed = cli.ok(&["snapshot", "list", "--sandbox", &child]).await?;
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        ensure!(lines[0] == ["ID", "SANDBOX", "TEMPLATE", "ON", "DISK", "AGE"], "{listed}");
        ensure!(lines[1][..3] == [&snapshot[..8], &child[..8], TEMPLATE], "{listed}");
        ensure!(!listed.contains(&snapshot), "{listed}");
        ensure!(cli.ok(&["snapshot", "list", "--no-trunc"]).await?.contains(&snapshot));

        // What Tab offers.
        ensure!(cli.offered(&["sandbox", "get", "cli-"]).await?.contains(&"cli-web".to_owned()));
        ensure!(cli.offered(&["sandbox", "delete", "cli-web", &child[..10]]).await? == [child.as_str()]);
        ensure!(cli.offered(&["sandbox", "cp", "cli-w"]).await?.contains(&"cli-web:".to_owned()));
        ensure!(cli.offered(&["snapshot", "get", &snapshot[..10]]).await? == [snapshot.as_str()]);
        ensure!(cli.offered(&["run", "--template", TEMPLATE]).await?.contains(&TEMPLATE.to_owned()));

        let drawn = cli.ok(&["sandbox", "tree", "cli-draft"]).await?;
        let lines: Vec<&str> = drawn.lines().collect();
        ensure!(lines[0].starts_with(&id[..8]) && lines[0].contains("cli-web"), "{drawn}");
        ensure!(
            lines[1].starts_with("└─ ") && lines[1].contains("cli-draft") && lines[1].ends_with('◀'),
            "{drawn}"
        );
        ensure!(lines[2].contains(&format!("└─ snapshot {snapshot}")), "{drawn}");
        ensure!(cli.json(&["sandbox", "tree", &child]).await?["root"] == id.as_str());

        let renamed =
            cli.json(&["sandbox", "update", &id[..8], "--name", "cli-site", "--ttl", "10m"]).await?;
        ensure!(renamed["name"] == "cli-site" && renamed["ttl_seconds"] == 600, "{renamed}");
        let unnamed = cli.json(&["sandbox", "update", "cli-site", "--name", ""]).await?;
        ensure!(unnamed["name"].is_null(), "{unnamed}");

        // Without a terminal nothing is deleted by a filter unless it is meant.
        let said = cli.fails(1, &["sandbox", "delete", "--metadata", mark]).await?;
        ensure!(said.contains("2 sandboxes") && said.contains("--yes"), "{said}");
        for wrong in [&["sandbox", "delete"][..], &["sandbox", "delete", "cli-draft", "--all"]] {
            cli.fails(2, wrong).await?;
        }
        let deleted = cli.ok(&["sandbox", "delete", "--metadata", mark, "--yes"]).await?;
        ensure!(
            deleted.lines().count() == 2 && deleted.contains(&id) && deleted.contains(&child),
            "{deleted}"
        );
        cli.ok(&["snapshot", "delete", &snapshot]).await?;
        Ok(())
    })
}

#[test]
fn sizes_volumes_and_times_are_said_as_people_say_them() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        cli.ok(&["volume", "create", "cli-words", "--size", "64m"]).await?;
        let words = ["sandbox", "create", "-t", TEMPLATE, "--volume", "cli-words:/data"];
        let id = cli.ok(&words).await?;
        ensure!(api.shell(&id, "df /data | tail -n 1").await?.contains("/dev/vdb"));
        let changed = cli.json(&["sandbox", "set-ttl", &id, "2h"]).await?;
        ensure!(changed["ttl_seconds"] == 7200, "{changed}");

        // What the server says of fields and routes is said of options and commands.
        let said = cli.fails(1, &["sandbox", "exec", "--timeout", "1s", &id, "--", "sleep", "600"]).await?;
        ensure!(said.contains("--timeout") && said.contains("sandbox process start"), "{said}");
        cli.ok(&["sandbox", "hibernate", &id]).await?;
        let listed = cli.ok(&["sandbox", "list", "--status", "hibernated"]).await?;
        ensure!(listed.contains(&id[..8]) && listed.contains("sleeping"), "{listed}");
        let quiet = cli.run(&["sandbox", "logs", &id]).await?;
        ensure!(
            quiet.code == 0 && (!quiet.stdout.is_empty() || quiet.stderr.contains("process logs")),
            "{quiet:?}"
        );
        for wrong in [
            &["sandbox", "create", "--ttl", "soon"][..],
            &["sandbox", "create", "--memory", "2x"],
            &["sandbox", "create", "--volume", "data:relative"],
            &["sandbox", "exec", "--timeout", "1m1h", &id, "true"],
        ] {
            ensure!(cli.fails(2, wrong).await?.contains("error: "), "{wrong:?}");
        }
        cli.ok(&["sandbox", "delete", &id]).await?;
        cli.ok(&["volume", "delete", "cli-words"]).await?;
        Ok(())
    })
}
