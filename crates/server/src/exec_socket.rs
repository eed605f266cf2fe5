//! Many commands over one WebSocket, told apart by the names that the client gives them.
//!
//! ```text
//! {"id","cmd",…} ─► a task each ─► one queue of messages ─► the client
//! {"id","cancel"} ─► kills the process group
//! ```
//!
//! Commands end with the connection: whoever wants them to outlive it starts them at `/processes`. A client that does not read
//! holds up all of its commands, because their output waits in the queue, in the guest link's windows and in the guest, each of
//! them bounded; then it is dropped.

use std::collections::HashMap;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use contract::exec::ExecRequest;
use control::{Caller, Control, ControlError, exec_failure};
use guest_link::client::ProcessEvent;
use guest_link::message::{Channel, Exit};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::extract::Path;
use crate::socket::{
    Gone, Goodbye, MaybeUpgrade, Received, Receiving, Sending, Socket, expect_upgrade, keep_alive, pings,
    told,
};
use crate::utf8::Utf8Decoder;

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
#[utoipa::path(get, path = "/v1/sandboxes/{id}/exec/ws", tag = "exec", params(("id" = String, Path)),
    responses((status = 101, description = "The connection is a WebSocket now")))]
async fn exec_socket(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    upgrade: MaybeUpgrade,
) -> Answer<Response> {
    let upgrade = expect_upgrade(&control, &caller, &id, upgrade).await?;
    let sandbox = control.enter(&caller, &id).await?;
    let services = control.clone();
    Ok(upgrade.run(&services, move |mut socket| async move {
        // In use while the connection lasts, commands or none.
        let _sandbox = sandbox;
        let goodbye = converse(&control, &caller, &id, &mut socket).await;
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
    #[serde(flatten)]
    request: ExecRequest,
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
    running: HashMap<String, CancellationToken>,
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
                Ok(Received::Text(text)) => serde_json::from_str(text),
                Ok(Received::Binary(bytes)) => serde_json::from_slice(bytes),
            };
            let refused = match said {
                Ok(said) => self.obey(said).err(),
                Err(error) => {
                    Some((String::new(), format!("the message is not the JSON expected here: {error}")))
                }
            };
            if let Some((id, error)) = refused {
                let _ = self.messages.send(json!({ "id": id, "error": error })).await;
            }
        }
    }

    fn obey(&mut self, said: Said) -> Result<(), (String, String)> {
        let Said { id, cancel, request } = said;
        // What has ended makes room before anything is refused.
        while let Some(ended) = self.tasks.try_join_next() {
            if let Ok(id) = ended {
                self.running.remove(&id);
            }
        }
        let error = if id.is_empty() {
            "id required: a name for the command, of your choice".to_owned()
        } else if id.len() > ID_BYTES_MAX {
            return Err((String::new(), format!("id is longer than {ID_BYTES_MAX} bytes")));
        } else if cancel {
            match self.running.get(&id) {
                Some(command) => {
                    command.cancel();
                    return Ok(());
                }
                None => "no command of this id is running".to_owned(),
            }
        } else if self.running.contains_key(&id) {
            "a command of this id is running already".to_owned()
        } else if self.running.len() >= COMMANDS_MAX {
            format!("{COMMANDS_MAX} commands are running already; no more are taken at once")
        } else {
            let cancelled = CancellationToken::new();
            self.running.insert(id.clone(), cancelled.clone());
            let command = Command {
                control: self.control.clone(),
                caller: self.caller.clone(),
                sandbox: self.sandbox.clone(),
                id,
                messages: self.messages.clone(),
                cancelled,
            };
            self.tasks.spawn(command.run(request));
            return Ok(());
        };
        Err((id, error))
    }
}

/// One command.
struct Command {
    control: Control,
    caller: Caller,
    sandbox: String,
    id: String,
    messages: mpsc::Sender<Value>,
    cancelled: CancellationToken,
}

impl Command {
    async fn run(self, request: ExecRequest) -> String {
        let last = match self.follow(request).await {
            Ok(Ok(exit)) => json!({ "id": self.id, "exit": exit.status.shell_code() }),
            Ok(Err(error)) | Err(error) => {
                let mut told = told(&error);
                told["id"] = self.id.clone().into();
                told
            }
        };
        // A client that is gone needs no ending.
        let _ = self.messages.send(last).await;
        self.id
    }

    /// How it ended: the inner error is a deadline that passed.
    async fn follow(&self, request: ExecRequest) -> Result<Result<Exit, ControlError>, ControlError> {
        // A key may have been revoked since the connection was opened.
        self.control.authenticate_again(&self.caller).await?;
        let (mut process, timeout) = self.control.exec_attended(&self.caller, &self.sandbox, request).await?;
        let mut killed = false;
        let mut decoders = [Utf8Decoder::default(), Utf8Decoder::default()];
        loop {
            let event = tokio::select! {
                event = process.next() => event?,
                () = self.cancelled.cancelled(), if !killed => {
                    killed = true;
                    process.kill().await?;
                    continue;
                }
            };
            match event {
                ProcessEvent::Output { channel, data, .. } => {
                    let text = decoders[place(channel)].push(&data);
                    self.write(channel, text).await;
                }
                ProcessEvent::Gap { .. } => {}
                ProcessEvent::Exited(exit) => {
                    for channel in [Channel::Stdout, Channel::Stderr] {
                        let text = decoders[place(channel)].finish();
                        self.write(channel, text).await;
                    }
                    return Ok(exec_failure(&exit, timeout).map_or(Ok(exit), Err));
                }
            }
        }
    }

    /// Passes output on.
    async fn write(&self, channel: Channel, text: String) {
        if text.is_empty() {
            return;
        }
        let stream = ["stdout", "stderr"][place(channel)];
        let message = json!({ "id": self.id, "stream": stream, "data": text });
        let _ = self.messages.send(message).await;
    }
}

const fn place(channel: Channel) -> usize {
    match channel {
        Channel::Stdout => 0,
        Channel::Stderr => 1,
    }
}
