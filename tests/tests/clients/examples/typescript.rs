//! The examples in TypeScript.

use std::path::PathBuf;

use anyhow::{Context, Result};
use tests::packed::{self, Folder};

use crate::examples::{examples, says, with_server};

/// What an agent that follows `primes.json` shows: an error that it makes, one that it mends, and state from call to call.
const AGENT_SAYS: [&str; 11] = [
    "I write a program and run it.",
    "→ write_file ",
    "← wrote 119 bytes to /root/primes.py",
    "NameError: name 'limt' is not defined",
    "(exit code 1)",
    "A typing error. I correct it.",
    "669\n(exit code 0)",
    "→ run_python ",
    "← sieve: 669\n669",
    "There are 669 primes below 5000.",
    "(5 steps)",
];

/// The examples with what they need, and with our package as its users get it.
async fn project(folder: &Folder) -> Result<PathBuf> {
    let package = packed::typescript().await?.archive;
    let project = folder.path().join("examples");
    packed::copy_directory(&examples()?.join("typescript"), &project)?;
    packed::npm(&project, &["ci", "--ignore-scripts"]).await?;
    let package = package.to_str().context("a path that is no text")?;
    packed::npm(&project, &["install", "--no-save", "--offline", "--ignore-scripts", package]).await?;
    packed::npm(&project, &["run", "build"]).await?;
    Ok(project)
}

#[test]
fn examples_in_typescript_show_what_they_say() -> Result<()> {
    with_server("examples-typescript", &[], async |stage| {
        let folder = Folder::new("examples-typescript")?;
        let project = project(&folder).await?;
        let built = |name: &str| project.join("build").join(name);
        let mut agent = stage.with_model("primes.json")?;
        says(&stage.run(agent.arg("node").arg(built("ai_sdk.js"))).await?, &AGENT_SAYS)?;

        let said = stage.run(stage.command("node").arg(built("best_of_n.js"))).await?;
        says(&said, &["as in the book", "off by one", "AssertionError: fibonacci(0) is 0, not 1"])?;
        says(&said, &["a loop", "passed in", "never ends", "not done after"])?;
        says(&said, &["kept: a loop; 3 others are gone", "return a\n", "the parent has a solution: false"])
    })
}
