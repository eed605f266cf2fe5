//! Ports of this host that lead into a sandbox.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use client::{Api, ClientError};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::relay;
use crate::hints;
use crate::output::{Format, say};
use crate::signals::Signals;

/// Connections at once; further ones wait.
const CONNECTIONS_MAX: usize = 256;
/// How long it waits after a connection could not be accepted, as when this process has too many files open.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Options of `port-forward`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The sandbox.
    id: String,
    /// Ports: the sandbox's, or one here and the sandbox's. 0 here is any that is free.
    #[arg(required = true, value_name = "[LOCAL:]REMOTE", value_parser = ports)]
    ports: Vec<Ports>,
    /// The address to listen on here.
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
}

/// A port here and one there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ports {
    local: u16,
    remote: u16,
}

fn ports(text: &str) -> Result<Ports, String> {
    let expected = || "expected a port such as 3000, or two such as 8080:3000".to_owned();
    let (local, remote) = text.split_once(':').unwrap_or((text, text));
    let local = local.parse().map_err(|_| expected())?;
    let remote = remote.parse().ok().filter(|port| *port > 0).ok_or_else(expected)?;
    Ok(Ports { local, remote })
}

pub(super) async fn run(api: &Api, arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::watch()?;
    // Names may move to another sandbox; what is forwarded stays with this one.
    let id = api.sandbox(&arguments.id).await?.id;
    let mut listening = JoinSet::new();
    for ports in &arguments.ports {
        let address = SocketAddr::new(arguments.address, ports.local);
        let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
        announce(listener.local_addr()?, ports.remote, format)?;
        listening.spawn(serve(api.clone(), id.clone(), listener, ports.remote));
    }
    let told = signals.next().await;
    listening.shutdown().await;
    Ok(ExitCode::from(told.exit_code()))
}

/// Says where a port is reached: scripts need it where the port was 0.
fn announce(local: SocketAddr, remote: u16, format: Format) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match format {
        Format::Json => writeln!(stdout, "{}", json!({ "local": local.to_string(), "remote": remote }))?,
        Format::Table => writeln!(stdout, "forwarding {local} -> {remote}")?,
    }
    stdout.flush()
}

/// Accepts connections and carries each one over a tunnel of its own.
async fn serve(api: Api, id: String, listener: TcpListener, port: u16) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
            continue;
        }
        match listener.accept().await {
            Ok((socket, _)) => {
                let (api, id) = (api.clone(), id.clone());
                connections.spawn(async move {
                    if let Err(error) = carry(&api, &id, socket, port).await {
                        tell(&error, port);
                    }
                });
            }
            Err(error) => {
                say(format!("error: a connection could not be accepted: {error}"));
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

async fn carry(api: &Api, id: &str, socket: TcpStream, port: u16) -> anyhow::Result<()> {
    // Small pieces are what people type.
    socket.set_nodelay(true)?;
    let tunnel = api.tunnel(id, port).await?;
    relay::tcp(tunnel, socket).await
}

/// Tells why a connection failed. That the program here has gone is its own matter.
fn tell(error: &anyhow::Error, port: u16) {
    match error.downcast_ref::<ClientError>() {
        Some(refused) if refused.is_nothing_listening() => {
            say(format!("error: {}", hints::translated(&refused.to_string())));
        }
        Some(refused) => say(format!("error: port {port}: {refused}")),
        None => tracing::debug!(%error, port, "a connection broke"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read() {
        for (text, local, remote) in [("3000", 3000, 3000), ("8080:80", 8080, 80), ("0:22", 0, 22)] {
            assert_eq!(ports(text), Ok(Ports { local, remote }), "{text}");
        }
        for text in ["", "0", ":", "80:", ":80", "80:0", "70000", "a:b", "1:2:3", "-1"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }
}
