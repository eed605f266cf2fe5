//! Many commands over one WebSocket, told apart by the names that the client gives them.
//!
//! ```text
//! {"id","cmd",…} ─► a task each ─► one queue of messages ─► the client
//! {"id","cancel"} ─► kills the process group
//! {"id","signal"} ─► signals it
//! {"id","input" | "input_end"} ─► its standard input
//! ```
//!
//! A command that is started with `"open_stdin": true` reads what the client writes: `input` is base64, and for each piece of it
//! comes `{"id","taken":bytes}` when the guest has it, 0 once it takes no more. Signals go before input that waits. With
//! `"binary": true` output comes as `{"id","stream","base64"}`, byte for byte.
//!
//! Commands end with the connection: whoever wants them to outlive it starts them at `/processes`. A client that does not read
//! holds up all of its commands, because their output waits in the queue, in the guest link's windows and in the guest, each of
//! them bounded; then it is dropped.

mod command;

use std::collections::HashMap;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::exec::ExecRequest;
use contract::process::SignalName;
use control::{Caller, Control, InputSource};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::unknown;
use crate::extract::Path;
use crate::socket::{
    Gone, Goodbye, MaybeUpgrade, Received, Receiving, Sending, Socket, expect_upgrade, keep_alive, pings,
};

use command::{Input, Manner, Reins, harness};

/// Commands of one connection at once; more are refused.
const COMMANDS_MAX: usize = 64;
/// Longest name of a command.
const ID_BYTES_MAX: usize = 128;
/// Messages that wait for the client; then whoever makes them waits.
const WAITING_MAX: usize = 16;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(exec_socket))
}

/// Runs many commands over one WebSocket: `{"id","cmd","timeout_seconds"?}` starts one, `{"id","cancel":true}` kills it.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/exec/ws", operation_id = "openCommandSocket", tag = "exec", params(("id" = String, Path)),
    responses((status = 101, description = "The connection is a WebSocket now")))]
async fn exec_socket(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    upgrade: MaybeUpgrade,
) -> ApiResult<Response> {
    let upgrade = expect_upgrade(&control, &caller, &id, upgrade).await?;
    let sandbox = control.enter(&caller, &id).await?;
    let services = control.clone();
    Ok(upgrade.run(&services, move |mut socket| async move {
        // In use while the connection lasts, commands or none. By its id: its name may change meanwhile.
        let id = sandbox.id().to_owned();
        let goodbye = converse(&control, &caller, &id, &mut socket).await;
        drop(sandbox);
        socket.close(goodbye).await;
    }))
}

/// What a client says.
#[derive(Debug, Deserialize)]
struct Said {
    #[serde(default)]
    id: String,
    #[serde(default)]
    cancel: bool,
    #[serde(default)]
    binary: bool,
    #[serde(default)]
    open_stdin: bool,
    #[serde(default)]
    input: Option<String>,
    #[serde(default)]
    input_end: bool,
    #[serde(default)]
    signal: Option<SignalName>,
    #[serde(flatten)]
    request: ExecRequest,
}

/// What a message may hold.
const FIELDS: [&str; 13] = [
    "id",
    "cmd",
    "cancel",
    "binary",
    "open_stdin",
    "input",
    "input_end",
    "signal",
    "timeout_seconds",
    "cwd",
    "env",
    "user",
    "stdin",
];

/// Reads a message; a field that nobody knows is refused by name.
fn understand(bytes: &[u8]) -> Result<Said, String> {
    let read = |error: serde_json::Error| format!("the message is not the JSON expected here: {error}");
    let fields: serde_json::Map<String, Value> = serde_json::from_slice(bytes).map_err(read)?;
    if let Some(field) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(unknown(field, &FIELDS));
    }
    serde_json::from_value(Value::Object(fields)).map_err(read)
}

async fn converse(
    control: &Control,
    caller: &Caller,
    id: &str,
    Socket { sending, receiving }: &mut Socket,
) -> Goodbye {
    let (messages, waiting) = mpsc::channel(WAITING_MAX);
    let mut commands = Commands {
        control: control.clone(),
        caller: caller.clone(),
        sandbox: id.to_owned(),
        messages,
        running: HashMap::new(),
        tasks: JoinSet::new(),
    };
    tokio::select! {
        goodbye = deliver(control, caller, sending, waiting) => goodbye,
        gone = commands.listen(receiving) => gone.into(),
    }
    // Dropping the commands ends those that run.
}

/// Sends what there is to send until the client is gone.
async fn deliver(
    control: &Control,
    caller: &Caller,
    sending: &mut Sending,
    mut waiting: mpsc::Receiver<Value>,
) -> Goodbye {
    let mut pings = pings();
    loop {
        let sent = tokio::select! {
            Some(message) = waiting.recv() => sending.json(&message).await,
            _ = pings.tick() => match keep_alive(control, caller, sending).await {
                Ok(()) => Ok(()),
                Err(goodbye) => return goodbye,
            },
            () = control.closing().cancelled() => return Goodbye::Away,
        };
        if let Err(lost) = sent {
            return lost.into();
        }
    }
}

/// The commands of one connection.
struct Commands {
    control: Control,
    caller: Caller,
    sandbox: String,
    messages: mpsc::Sender<Value>,
    running: HashMap<String, Reins>,
    /// Each ends with the name of its command.
    tasks: JoinSet<String>,
}

impl Commands {
    async fn listen(&mut self, receiving: &mut Receiving) -> Gone {
        loop {
            let received = tokio::select! {
                received = receiving.next() => received,
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(id) = ended {
                        self.running.remove(&id);
                    }
                    continue;
                }
            };
            let said = match &received {
                Err(gone) => return *gone,
                Ok(Received::Text(text)) => understand(text.as_bytes()),
                Ok(Received::Binary(bytes)) => understand(bytes),
            };
            let refused = match said {
                Ok(said) => self.obey(said).err(),
                Err(error) => Some((String::new(), error)),
            };
            if let Some((id, error)) = refused {
                let _ = self.messages.send(json!({ "id": id, "error": error })).await;
            }
        }
    }

    fn obey(&mut self, said: Said) -> Result<(), (String, String)> {
        // What has ended makes room before anything is refused.
        while let Some(ended) = self.tasks.try_join_next() {
            if let Ok(id) = ended {
                self.running.remove(&id);
            }
        }
        if said.id.len() > ID_BYTES_MAX {
            return Err((String::new(), format!("id is longer than {ID_BYTES_MAX} bytes")));
        }
        let id = said.id.clone();
        self.perform(said).map_err(|error| (id, error))
    }

    fn perform(&mut self, said: Said) -> Result<(), String> {
        if said.id.is_empty() {
            return Err("id required: a name for the command, of your choice".to_owned());
        }
        let steers = said.cancel || said.input.is_some() || said.input_end || said.signal.is_some();
        match self.running.get(&said.id) {
            Some(reins) if steers => steer(reins, said),
            None if steers => Err("no command of this id is running".to_owned()),
            Some(_) => Err("a command of this id is running already".to_owned()),
            None if self.running.len() >= COMMANDS_MAX => {
                Err(format!("{COMMANDS_MAX} commands are running already; no more are taken at once"))
            }
            None => {
                self.start(said);
                Ok(())
            }
        }
    }

    fn start(&mut self, said: Said) {
        let input = if said.open_stdin { InputSource::Connection } else { InputSource::Given };
        let (control, caller, sandbox) = (self.control.clone(), self.caller.clone(), self.sandbox.clone());
        let (command, reins) = harness(control, caller, sandbox, said.id.clone(), self.messages.clone());
        self.running.insert(said.id, reins);
        self.tasks.spawn(command.run(said.request, Manner { binary: said.binary, input }));
    }
}

/// Passes an order on to a command that runs.
fn steer(reins: &Reins, said: Said) -> Result<(), String> {
    if said.cancel {
        reins.cancelled.cancel();
        return Ok(());
    }
    if let Some(signal) = said.signal {
        // Whoever sends more signals than can be delivered means the same with all of them.
        let _ = reins.signals.try_send(signal);
    }
    let full = |_| "input comes faster than it is taken: wait for `taken`".to_owned();
    if let Some(text) = said.input {
        let bytes = STANDARD.decode(text).map_err(|_| "input must be base64".to_owned())?;
        reins.inputs.try_send(Input::Bytes(bytes)).map_err(full)?;
    }
    if said.input_end {
        reins.inputs.try_send(Input::End).map_err(full)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_hold_what_is_known() {
        let said =
            understand(br#"{"id": "1", "cmd": ["ls", "-l"], "timeout_seconds": 2, "stdin": "x"}"#).unwrap();
        assert_eq!(said.request.cmd, vec!["ls".to_owned(), "-l".to_owned()].into());
        assert_eq!((said.request.timeout_seconds, said.request.stdin.as_deref()), (Some(2.0), Some("x")));
        let whole = json!({ "id": "", "cmd": "", "cancel": true, "binary": true, "open_stdin": true, "input": "",
            "input_end": true, "signal": 9, "timeout_seconds": 1, "cwd": "", "env": {}, "user": "", "stdin": "" });
        assert!(understand(whole.to_string().as_bytes()).is_ok());
        let error = understand(br#"{"id": "1", "cmd": "ls", "timeout_ms": 2}"#).unwrap_err();
        assert!(error.starts_with("unknown field \"timeout_ms\"; known fields: id, cmd,"), "{error}");
        assert!(understand(b"[]").is_err() && understand(br#"{"cmd": 1}"#).is_err());
    }
}
