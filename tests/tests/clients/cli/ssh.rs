//! `sandbox ssh-config` for the `ssh` and `scp` that people have: sandboxes are known by keys of their own, forks too.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use image::template::base;
use tests::api::serve_process::ServeProcess;
use tests::published::output;
use tests::{Lab, LabSettings, run_for};
use tokio::process::Command;

use crate::cli::program::{Cli, TIMEOUT};

/// The first run makes an image of more than a gigabyte.
const BUILD_TIMEOUT: Duration = Duration::from_secs(3600);

/// What a person has: `ssh` with the file that the command line wrote.
struct Ssh<'a> {
    cli: &'a Cli,
    config: PathBuf,
}

impl Ssh<'_> {
    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        self.cli.furnish(&mut command);
        command.arg("-F").arg(&self.config).args(["-o", "BatchMode=yes"]).args(words);
        command
    }

    async fn run(&self, words: &[&str]) -> Result<String> {
        output(&mut self.command("ssh", words), TIMEOUT).await
    }

    async fn copy(&self, words: &[&str]) -> Result<String> {
        output(&mut self.command("scp", words), TIMEOUT).await
    }
}

#[test]
fn ssh_and_scp_reach_a_sandbox_and_its_fork() -> Result<()> {
    run_for(BUILD_TIMEOUT, async || {
        let mut lab = Lab::prepare(LabSettings::with_templates("cli-ssh", &[base()])).await?;
        let server = ServeProcess::start(&mut lab, &[]).await?;
        let cli = Cli::new(server.address())?;
        let parent = cli.ok(&["sandbox", "create", "--template", "base", "--name", "desk"]).await?;
        let config = cli.home().join("ssh_config");
        std::fs::write(&config, cli.ok(&["sandbox", "ssh-config", &parent]).await?)?;
        let ssh = Ssh { cli: &cli, config: config.clone() };

        let said = ssh
            .run(&["pandastack-desk", "echo \"$SSH_CONNECTION\" | wc -w; id -un; echo draft > plan"])
            .await?;
        ensure!(said.trim() == "4\nroot", "{said}");
        std::fs::write(cli.home().join("notes"), "from outside")?;
        ssh.copy(&["-q", "notes", "pandastack-desk:/tmp/notes"]).await?;
        ssh.copy(&["-q", "pandastack-desk:plan", "plan"]).await?;
        ensure!(
            std::fs::read_to_string(cli.home().join("plan"))? == "draft\n",
            "what was copied is another file"
        );
        let code = ssh.command("ssh", &["pandastack-desk", "exit 7"]).status().await?.code();
        ensure!(code == Some(7), "the command's end is told as {code:?}");

        // A fork has the parent's running SSH server, and yet a host key of its own: who has met one has not met the other.
        let child = cli.ok(&["sandbox", "fork", &parent]).await?;
        std::fs::write(&config, cli.ok(&["sandbox", "ssh-config", &parent, &child]).await?)?;
        let host = |id: &str| -> Result<String> {
            let text = std::fs::read_to_string(&config)?;
            let blocks = text.split("Host ").filter(|block| block.contains(&format!("HostName {id}\n")));
            Ok(blocks.filter_map(|block| block.split_whitespace().next()).collect())
        };
        let said = ssh.run(&[&host(&child)?, "cat /tmp/notes plan; echo final > plan"]).await?;
        ensure!(said == "from outsidedraft\n", "{said}");
        ensure!(
            ssh.run(&["pandastack-desk", "cat plan"]).await? == "draft\n",
            "the fork wrote into its parent"
        );
        let known = std::fs::read_to_string(cli.home().join(".config/pandastack/known_hosts"))?;
        let key = |id: &str| {
            let line = known.lines().find(|line| line.starts_with(&format!("pandastack-{id} ssh-ed25519 ")));
            line.and_then(|line| line.split(' ').nth(2)).unwrap_or_default()
        };
        ensure!(!key(&parent).is_empty() && key(&parent) != key(&child), "{known}");

        // A sandbox that shows another's host key is refused.
        let swapped = known.replace(&format!("pandastack-{child} "), "pandastack-gone ");
        let swapped = swapped.replace(&format!("pandastack-{parent} "), &format!("pandastack-{child} "));
        std::fs::write(cli.home().join(".config/pandastack/known_hosts"), swapped)?;
        let refused = ssh.command("ssh", &[&host(&child)?, "true"]).output().await?;
        let said = String::from_utf8_lossy(&refused.stderr);
        ensure!(!refused.status.success() && said.contains("Host key verification failed"), "{said}");

        server.client().delete_everything().await?;
        server.stop().await?;
        lab.remove()
    })
}
