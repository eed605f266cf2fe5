//! Logging in, contexts, and what is said when something is wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::api::KEY;
use tests::{in_api, run};

use crate::cli::program::Cli;

fn content(file: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(file)?)?)
}

#[test]
fn logging_in_keeps_a_key_that_works() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::bare()?;
        let address = format!("http://{}", api.address());
        let refused = cli.with_input(&["auth", "login", "--api", &address], b"pds_wrong\n").await?;
        ensure!(refused.code == 1 && refused.stderr.contains("error: try the key"), "{refused:?}");
        let file = cli.home().join(".config/pandastack/config.json");
        ensure!(!file.exists(), "a key that does not work was kept");

        let login = ["auth", "login", "--name", "here", "--api", &address];
        let done = cli.with_input(&login, format!("{KEY}\n").as_bytes()).await?;
        ensure!(done.code == 0 && !done.stderr.contains(KEY), "{done:?}");
        ensure!(fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600, "others may read the key");
        // Where the SDKs look too.
        let kept = content(&file)?;
        ensure!(kept["token"] == KEY && kept["api_url"] == address.as_str(), "{kept}");
        let status = cli.json(&["auth", "status"]).await?;
        ensure!(status["context"] == "here" && status["api"] == address.as_str(), "{status}");
        ensure!(!status.to_string().contains(KEY), "the key is shown: {status}");
        ensure!(cli.json(&["sandbox", "list"]).await?.is_array());
        cli.ok(&["auth", "network-default", "none"]).await?;
        let me = cli.json(&["me"]).await?;
        ensure!(me["network_default"] == "none" && me["workspace"] == status["workspace"], "{me}");
        cli.ok(&["auth", "network-default", "default"]).await?;
        ensure!(cli.json(&["me"]).await?["network_default"].is_null());

        // Another server gets nothing of it, and a second context can be chosen.
        let said = cli.fails(1, &["sandbox", "list", "--api", "http://127.0.0.1:1"]).await?;
        ensure!(
            said.contains("there is no API key") && said.contains("hint: pandastack auth login"),
            "{said}"
        );
        let second =
            cli.with_input(&["auth", "login", "--name", "again", "--api", &address], KEY.as_bytes()).await?;
        ensure!(second.code == 0, "{second:?}");
        cli.ok(&["context", "use", "here"]).await?;
        let contexts = cli.json(&["context", "list"]).await?;
        let current: Vec<_> =
            contexts.as_array().into_iter().flatten().map(|one| (&one["name"], &one["current"])).collect();
        let expected =
            [(&Value::from("again"), &Value::from(false)), (&Value::from("here"), &Value::from(true))];
        ensure!(current == expected, "{contexts}");
        ensure!(cli.json(&["--context", "again", "auth", "status"]).await?["context"] == "again");
        let said = cli.fails(1, &["--context", "nope", "sandbox", "list"]).await?;
        ensure!(
            said.contains("no context `nope`") && said.contains("hint: pandastack context list"),
            "{said}"
        );

        cli.ok(&["auth", "logout"]).await?;
        let said = cli.fails(1, &["sandbox", "list"]).await?;
        ensure!(said.contains("hint: pandastack auth login"), "{said}");
        let kept = content(&file)?;
        ensure!(kept["token"].is_null() && kept["contexts"]["here"]["api_key"].is_null(), "{kept}");
        cli.ok(&["context", "delete", "again"]).await?;
        ensure!(!fs::read_to_string(&file)?.contains(KEY), "a forgotten key is still in the file");
        Ok(())
    })
}

#[test]
fn errors_say_what_failed_why_and_what_to_do() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let said = cli.fails(1, &["sandbox", "get", "nonesuch"]).await?;
        ensure!(said.starts_with("error: "), "{said}");
        let said = cli.fails(1, &["sandbox", "create", "--template", "nonesuch"]).await?;
        ensure!(said.contains("nonesuch"), "{said}");
        let said = cli.fails(1, &["--output", "json", "sandbox", "get", "nonesuch"]).await?;
        let error: Value = serde_json::from_str(&said)?;
        ensure!(
            error["status"] == 404 && error["code"] == "not_found" && error["request_id"].is_string(),
            "{said}"
        );
        for wrong in [
            &["sandbox"][..],
            &["sandbox", "nonesuch"],
            &["sandbox", "exec", "0a1b"],
            &["sandbox", "create", "--nonesuch"],
            &["sandbox", "create", "--metadata", "no-value"],
            &["template", "build", "--name", "x"],
            &["volume", "resize", "data"],
        ] {
            let said = cli.fails(2, wrong).await?;
            ensure!(said.contains("error: ") || said.contains("Usage: "), "{wrong:?}: {said}");
        }
        let wrong = Cli::new(api.address())?.with_key("pds_wrong");
        let said = wrong.fails(1, &["sandbox", "list"]).await?;
        ensure!(said.contains("hint: pandastack auth login"), "{said}");
        let said = cli.fails(1, &["sandbox", "list", "--api", "http://127.0.0.1:1"]).await?;
        ensure!(said.contains("could not reach http://127.0.0.1:1") && said.contains("because: "), "{said}");
        ensure!(said.contains("hint: "), "{said}");
        let said = cli.fails(1, &["sandbox", "list", "--api", "nonesuch"]).await?;
        ensure!(said.contains("not the address of a server"), "{said}");
        Ok(())
    })
}

#[test]
fn shells_and_man_are_served() -> Result<()> {
    run(async || {
        let cli = Cli::bare()?;
        for shell in ["bash", "zsh", "fish"] {
            let script = cli.ok(&["completions", shell]).await?;
            ensure!(script.contains("PANDASTACK_COMPLETE"), "{shell}: {script}");
        }
        ensure!(cli.offered(&["sandbox", "fork"]).await? == ["fork", "fork-tree"]);
        // Where no server answers there is nothing to offer, and nothing is said.
        let nowhere = Cli::new("127.0.0.1:1")?;
        ensure!(nowhere.offered(&["sandbox", "get", "a"]).await?.is_empty());
        let script = cli.home().join("completions.bash");
        fs::write(&script, cli.ok(&["completions", "bash"]).await?)?;
        let checked =
            tests::command::run("/usr/bin/bash", &[std::ffi::OsStr::new("-n"), script.as_os_str()])?;
        ensure!(checked.stderr.is_empty(), "{checked:?}");
        cli.ok(&["man", "pages"]).await?;
        let page = fs::read_to_string(cli.home().join("pages/pandastack-sandbox-exec.1"))?;
        ensure!(page.contains(".SH EXAMPLES") || page.contains("Examples:"), "{page}");
        ensure!(fs::read_dir(cli.home().join("pages"))?.count() > 60);
        Ok(())
    })
}
