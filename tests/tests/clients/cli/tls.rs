//! A server behind TLS, with a certificate of a CA that the host does not know.

use anyhow::{Result, ensure};
use tests::in_api;
use tests::tls_front::TlsFront;

use crate::cli::program::Cli;

#[test]
fn a_ca_that_is_named_is_trusted() -> Result<()> {
    in_api(async |api| {
        let front = TlsFront::start("cli-tls", api.address())?;
        let id = api.create().await?;
        let cli = Cli::new(api.address())?.at(&front.url()).trusting(&front.authority());
        ensure!(cli.ok(&["sandbox", "list", "--quiet"]).await?.contains(&id));
        // A WebSocket, files both ways, events.
        let went = cli.with_input(&["sandbox", "exec", &id, "cat; exit 3"], b"through TLS").await?;
        ensure!(went.code == 3 && went.stdout == "through TLS", "{went:?}");
        let large = vec![b'x'; 3_000_000];
        ensure!(cli.with_input(&["fs", "write", &id, "/root/large"], &large).await?.code == 0);
        ensure!(cli.run(&["fs", "cat", &id, "/root/large"]).await?.bytes == large);
        cli.ok(&["sandbox", "process", "start", &id, "--tag", "one", "--", "echo", "an event"]).await?;
        ensure!(cli.ok(&["sandbox", "process", "attach", &id, "one"]).await? == "an event");

        // Without that nothing is sent, and it says what to do.
        let said = Cli::new(api.address())?.at(&front.url()).fails(1, &["sandbox", "list"]).await?;
        ensure!(said.contains("invalid peer certificate") && said.contains("hint: SSL_CERT_FILE="), "{said}");
        api.remove(&id).await
    })
}
