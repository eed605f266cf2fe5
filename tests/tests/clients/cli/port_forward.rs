//! `sandbox port-forward`: ports of this host that lead into a sandbox, with several connections at once.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tests::in_api;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::cli::program::{Cli, TIMEOUT};

/// Answers each connection, once that has said all it has to, with how much it said.
const SERVER: &str = r#"
import socketserver
class Counts(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"%d bytes" % len(self.rfile.read()))
socketserver.ThreadingTCPServer(("127.0.0.1", 4000), Counts).serve_forever()
"#;

#[test]
fn connections_reach_a_port_of_the_sandbox() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let server = json!({ "cmd": ["python3", "-c", SERVER] });
        api.post(&format!("/v1/sandboxes/{id}/processes"), server).await?.expect(201)?;
        api.shell(&id, "until grep -q ':0FA0 .* 0A ' /proc/net/tcp; do sleep 0.1; done").await?;

        let mut command = cli.command(&["sandbox", "port-forward", &id, "0:4000"])?;
        let mut forward = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(forward.stdout.take().context("no output")?).lines();
        let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await??.context("it says nothing")?;
        let local = line.strip_prefix("forwarding ").and_then(|rest| rest.strip_suffix(" -> 4000"));
        let local = local.with_context(|| line.clone())?.to_owned();

        let mut asking = JoinSet::new();
        for length in [0, 10, 1_000_000] {
            let local = local.clone();
            asking.spawn(async move {
                let mut stream = TcpStream::connect(&local).await?;
                stream.write_all(&vec![b'x'; length]).await?;
                // The end of what is sent arrives, and the answer still comes.
                stream.shutdown().await?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await?;
                ensure!(answer == format!("{length} bytes"), "{length}: {answer}");
                Ok(())
            });
        }
        while let Some(asked) = tokio::time::timeout(TIMEOUT, asking.join_next()).await? {
            asked??;
        }

        let pid = Pid::from_raw(forward.id().context("no id")? as i32).context("no process")?;
        kill_process(pid, Signal::INT)?;
        tokio::time::timeout(TIMEOUT, forward.wait()).await??;
        ensure!(TcpStream::connect(&local).await.is_err(), "the port is still open");
        api.remove(&id).await
    })
}
