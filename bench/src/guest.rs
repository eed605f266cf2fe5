//! Small things done in guests.

use anyhow::{Context, ensure};
use guest_link::client::ExecLimits;
use guest_link::message::ProcessSpec;
use node::Sandbox;

const LIMITS: ExecLimits = ExecLimits { stdout_bytes_max: 1 << 20, stderr_bytes_max: 1 << 20 };

/// Runs a program and gives its output.
pub(crate) async fn run(sandbox: &Sandbox, command: &[&str]) -> anyhow::Result<String> {
    let link = sandbox.link().await?;
    let output = link.exec(ProcessSpec::argv(command.iter().copied()), b"", LIMITS).await?;
    ensure!(
        output.exit.status.shell_code() == 0,
        "{command:?} ended with {:?}: {}",
        output.exit.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Makes `mib` MiB of the guest's memory differ from its template.
pub(crate) async fn dirty(sandbox: &Sandbox, mib: usize) -> anyhow::Result<()> {
    let line =
        format!("mkdir -p /dev/shm && dd if=/dev/urandom of=/dev/shm/dirty bs=1M count={mib} 2>/dev/null");
    run(sandbox, &["sh", "-c", &line]).await.context("dirty the guest's memory").map(drop)
}
