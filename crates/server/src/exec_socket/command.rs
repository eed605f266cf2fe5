//! One command of a connection: its output on the way to the client, its input and signals on the way from it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::exec::ExecRequest;
use contract::process::SignalName;
use control::{Caller, Control, ControlError, InputSource, PartialOutput, exec_failure};
use guest_link::client::{ProcessEvent, ProcessInput};
use guest_link::message::{Channel, Exit};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::socket::told;
use crate::utf8::Utf8Decoder;

/// Pieces of input, and signals, that wait for a command; more are refused.
const ORDERS_MAX: usize = 16;

/// How a command is run.
pub(super) struct Manner {
    /// Output as bytes in base64 instead of text.
    pub(super) binary: bool,
    /// The client writes to it.
    pub(super) input: InputSource,
}

/// Input for a command.
pub(super) enum Input {
    Bytes(Vec<u8>),
    End,
}

/// What the connection keeps of a command.
pub(super) struct Reins {
    pub(super) cancelled: CancellationToken,
    pub(super) inputs: mpsc::Sender<Input>,
    pub(super) signals: mpsc::Sender<SignalName>,
}

/// One command.
pub(super) struct Command {
    pub(super) control: Control,
    pub(super) caller: Caller,
    pub(super) sandbox: String,
    pub(super) id: String,
    pub(super) messages: mpsc::Sender<Value>,
    cancelled: CancellationToken,
    inputs: mpsc::Receiver<Input>,
    signals: mpsc::Receiver<SignalName>,
}

/// Where a command of this name will be, and what steers it.
pub(super) fn harness(
    control: Control,
    caller: Caller,
    sandbox: String,
    id: String,
    messages: mpsc::Sender<Value>,
) -> (Command, Reins) {
    let cancelled = CancellationToken::new();
    let (inputs, from_client) = mpsc::channel(ORDERS_MAX);
    let (signals, signalled) = mpsc::channel(ORDERS_MAX);
    let reins = Reins { cancelled: cancelled.clone(), inputs, signals };
    let inputs = from_client;
    (Command { control, caller, sandbox, id, messages, cancelled, inputs, signals: signalled }, reins)
}

impl Command {
    pub(super) async fn run(mut self, request: ExecRequest, manner: Manner) -> String {
        let last = match self.follow(request, manner).await {
            Ok(Ok((exit, None))) => json!({ "id": self.id, "exit": exit.status.shell_code() }),
            Ok(Ok((exit, Some(hint)))) => {
                json!({ "id": self.id, "exit": exit.status.shell_code(), "hint": hint })
            }
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

    /// How it ended, and what may help where it failed: the inner error is a deadline that passed.
    async fn follow(
        &mut self,
        request: ExecRequest,
        manner: Manner,
    ) -> Result<Result<(Exit, Option<String>), ControlError>, ControlError> {
        // A key may have been revoked since the connection was opened.
        self.control.authenticate_again(&self.caller).await?;
        let (mut process, timeout) =
            self.control.exec_attended(&self.caller, &self.sandbox, request, manner.input).await?;
        let output = Output { id: &self.id, messages: &self.messages, binary: manner.binary };
        let writing = write(&self.id, &self.messages, &mut self.inputs, process.take_input());
        tokio::pin!(writing);
        let (mut written, mut killed) = (false, false);
        let mut decoders = [Utf8Decoder::default(), Utf8Decoder::default()];
        // Needed only where the time may be up.
        let mut collected = timeout.map(|_| PartialOutput::default());
        loop {
            let event = tokio::select! {
                event = process.next() => event?,
                () = &mut writing, if !written => {
                    written = true;
                    continue;
                }
                Some(signal) = self.signals.recv() => {
                    // One that has ended meanwhile needs no signal; its end is on its way.
                    let _ = process.signal(signal).await;
                    continue;
                }
                () = self.cancelled.cancelled(), if !killed => {
                    killed = true;
                    process.kill().await?;
                    continue;
                }
            };
            if let (ProcessEvent::Output { channel, data, .. }, Some(collected)) = (&event, &mut collected) {
                collected.push(*channel, data);
            }
            match event {
                ProcessEvent::Output { channel, data, .. } if manner.binary => {
                    output.bytes(channel, &data).await
                }
                ProcessEvent::Output { channel, data, .. } => {
                    output.text(channel, decoders[place(channel)].push(&data)).await;
                }
                ProcessEvent::Gap { .. } => {}
                ProcessEvent::Exited(exit) => {
                    for channel in [Channel::Stdout, Channel::Stderr] {
                        output.text(channel, decoders[place(channel)].finish()).await;
                    }
                    let hint = process.network_hint(exit.status.shell_code());
                    let late = exec_failure(&exit, timeout)
                        .map(|error| error.partial(collected.unwrap_or_default().finish()));
                    return Ok(late.map_or(Ok((exit, hint)), Err));
                }
            }
        }
    }
}

/// Passes input on, telling how much of it the guest has taken.
async fn write(
    id: &str,
    messages: &mpsc::Sender<Value>,
    inputs: &mut mpsc::Receiver<Input>,
    input: Option<ProcessInput>,
) {
    let Some(input) = input else { return };
    while let Some(next) = inputs.recv().await {
        let Input::Bytes(bytes) = next else { break };
        let taken = input.write(&bytes).await.unwrap_or(false);
        let message = match taken {
            true => json!({ "id": id, "taken": bytes.len() }),
            false => json!({ "id": id, "taken": 0 }),
        };
        if messages.send(message).await.is_err() || !taken {
            return;
        }
    }
    input.close();
}

/// The way to the client.
struct Output<'a> {
    id: &'a str,
    messages: &'a mpsc::Sender<Value>,
    binary: bool,
}

impl Output<'_> {
    async fn bytes(&self, channel: Channel, bytes: &[u8]) {
        let message = json!({ "id": self.id, "stream": name(channel), "base64": STANDARD.encode(bytes) });
        let _ = self.messages.send(message).await;
    }

    async fn text(&self, channel: Channel, text: String) {
        if text.is_empty() || self.binary {
            return;
        }
        let _ = self.messages.send(json!({ "id": self.id, "stream": name(channel), "data": text })).await;
    }
}

const fn name(channel: Channel) -> &'static str {
    ["stdout", "stderr"][place(channel)]
}

const fn place(channel: Channel) -> usize {
    match channel {
        Channel::Stdout => 0,
        Channel::Stderr => 1,
    }
}
