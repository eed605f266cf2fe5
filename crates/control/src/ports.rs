//! Ports of sandboxes: those that something listens on, and those that the caller named.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::port::{AddPort, Port};
use guest_link::client::{Connection, LinkError};
use guest_link::message::Failure;
use store::{SandboxChange, SandboxRow, Scope};

use crate::access::InUse;
use crate::caller::Caller;
use crate::control::Control;
use crate::error::{ControlError, Kind};
use crate::names;

/// Never shown and never reached from outside.
const SSH: u16 = 22;
/// Ports that hold data rather than pages. Whoever knows a sandbox's address reaches them only after its owner named them.
const DATA_PORTS: [u16; 12] = [2375, 2376, 3306, 5432, 5433, 5544, 6379, 6432, 9042, 9200, 11211, 27017];
/// How long a guest may take to open a connection to itself; it does when a program does not accept what waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Most ports named on one sandbox.
const NAMED_MAX: usize = 64;

fn port(row: &SandboxRow, number: u16, listening: bool) -> Port {
    let label = row.ports.get(&number).cloned();
    Port {
        port: number,
        source: if label.is_some() { "user" } else { "detected" }.to_owned(),
        label: label.filter(|label| !label.is_empty()),
        listening,
        proxy_url: format!("/v1/sandboxes/{}/proxy/{number}/", row.id),
    }
}

/// To whoever asks a program in a sandbox it does not matter why that cannot answer: it does not run.
pub(crate) fn not_running(mut error: ControlError) -> ControlError {
    if error.kind == Kind::Conflict {
        error.kind = Kind::Unavailable;
    }
    error
}

/// Whether whoever knows a sandbox's address may reach a port of it without a key.
pub(crate) fn open_to_the_world(row: &SandboxRow, number: u16) -> bool {
    let named = row.ports.contains_key(&number);
    let usual = (number >= 1024 || number == 80 || number == 443) && !DATA_PORTS.contains(&number);
    number != SSH && number != 0 && (named || usual)
}

impl Control {
    /// Ports that something listens on, and those that were named. A sandbox that sleeps stays asleep: nothing listens in it.
    pub async fn ports(&self, caller: &Caller, id: &str) -> Result<Vec<Port>, ControlError> {
        let row = self.row(caller, id).await?;
        let mut found: BTreeMap<u16, Port> =
            row.ports.keys().map(|&number| (number, port(&row, number, false))).collect();
        let link = self.node().sandbox(&row.id)?.state().link;
        if let Some(link) = link.filter(|link| !link.is_closed()) {
            for listening in link.listening_ports().await? {
                found.insert(listening.port, port(&row, listening.port, true));
            }
        }
        found.remove(&SSH);
        Ok(found.into_values().collect())
    }

    /// Names a port, and with that opens it to whoever knows the sandbox's address.
    pub async fn add_port(&self, caller: &Caller, id: &str, request: AddPort) -> Result<Port, ControlError> {
        caller.require(Scope::Write)?;
        let number = names::port(request.port)?;
        let label = names::label(&request.label.unwrap_or_default())?;
        let mut row = self.row(caller, id).await?;
        row.ports.insert(number, label);
        if row.ports.len() > NAMED_MAX {
            return Err(ControlError::invalid(format!("at most {NAMED_MAX} ports can be named")));
        }
        let change = SandboxChange { ports: Some(row.ports.clone()), ..SandboxChange::default() };
        self.store().change_sandbox(&row.id, change).await?;
        let listed = self.ports(caller, id).await?.into_iter().find(|listed| listed.port == number);
        Ok(listed.unwrap_or_else(|| port(&row, number, false)))
    }

    /// Forgets a port's name.
    pub async fn remove_port(&self, caller: &Caller, id: &str, number: u16) -> Result<(), ControlError> {
        caller.require(Scope::Write)?;
        let mut row = self.row(caller, id).await?;
        if row.ports.remove(&number).is_none() {
            return Err(ControlError::not_found(format!("port {number} has no name")));
        }
        let change = SandboxChange { ports: Some(row.ports), ..SandboxChange::default() };
        self.store().change_sandbox(&row.id, change).await?;
        Ok(())
    }

    /// A connection to a port of a sandbox, for a caller with a key.
    pub async fn connect(
        &self,
        caller: &Caller,
        id: &str,
        port: u16,
    ) -> Result<(InUse, Connection), ControlError> {
        names::port(i64::from(port))?;
        let sandbox = self.enter(caller, id).await.map_err(not_running)?;
        self.connect_in(sandbox, port).await
    }

    /// A connection to any port of a sandbox's loopback, for a caller whose key may change things: what listens there asks for
    /// passwords and keys of its own, if for any.
    pub async fn connect_any(
        &self,
        caller: &Caller,
        id: &str,
        port: u16,
    ) -> Result<(InUse, Connection), ControlError> {
        if port == 0 {
            return Err(ControlError::invalid("port must be between 1 and 65535"));
        }
        let sandbox = self.enter(caller, id).await.map_err(not_running)?;
        self.connect_in(sandbox, port).await
    }

    pub(crate) async fn connect_in(
        &self,
        sandbox: InUse,
        port: u16,
    ) -> Result<(InUse, Connection), ControlError> {
        use guest_link::client::CallError;
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, sandbox.link.connect(None, port));
        let Ok(connected) = connecting.await else {
            let message = "upstream: the program in the sandbox takes no connections at the moment";
            return Err(ControlError::new(Kind::Timeout, message));
        };
        match connected {
            Ok(connection) => Ok((sandbox, connection)),
            Err(CallError::Guest(Failure::ConnectionRefused)) => Err(ControlError::new(
                Kind::NotListening,
                format!("upstream: nothing listens on port {port} in the sandbox"),
            )
            .hint(format!("start a server in the sandbox on 0.0.0.0:{port} or localhost:{port}"))),
            Err(CallError::Link(LinkError::Closed | LinkError::Io(_))) => {
                Err(ControlError::new(Kind::Unavailable, "the sandbox stopped answering"))
            }
            Err(error) => Err(error.into()),
        }
    }
}
