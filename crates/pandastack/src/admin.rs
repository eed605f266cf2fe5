//! The operator's way to a server: a socket in the data directory that root alone may use.
//!
//! One line of JSON asks, one line answers. Without a server the same is done to the database itself, under the data directory's lock.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use control::{Control, OperatorRequest, Tenant};
use serde::{Deserialize, Serialize};
use storage::{DataDir, LockError};
use store::{Quota, SqliteStore, Store};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::command::serve::DATABASE;

const SOCKET: &str = "admin.sock";
/// Longest request; longer ones are cut and refused.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Longest answer: some hundred thousand tenants.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Tenants(Vec<Tenant>),
    Refused { message: String, hint: Option<String> },
}

/// The socket of a running server. It goes when this is dropped.
pub(crate) struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl AdminSocket {
    /// Makes it. The caller has the data directory, so one that is there is of a server that has ended.
    pub(crate) fn open(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(SOCKET);
        let (_directory, short) = short_path(data_dir)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Nobody but root can enter the data directory, also before the mode is set.
        let listener = UnixListener::bind(&short)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path })
    }

    /// Answers one request after the other until the server stops.
    pub(crate) async fn serve(self, control: &Control, stop: CancellationToken) {
        loop {
            let stream = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted.map(|(stream, _)| stream),
            };
            let answered = match stream {
                Ok(stream) => timeout(TIMEOUT, answer(stream, control)).await.unwrap_or(Ok(())),
                Err(error) => Err(error),
            };
            if let Err(error) = answered {
                tracing::debug!(%error, "an operator's request broke off");
            }
        }
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

async fn answer(mut stream: UnixStream, control: &Control) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new((&mut stream).take(REQUEST_BYTES_MAX)).read_line(&mut line).await?;
    let refused = |message: String, hint| Answer::Refused { message, hint };
    let answer = match serde_json::from_str::<OperatorRequest>(&line) {
        Err(error) => refused(format!("the request is malformed: {error}"), None),
        Ok(request) => match control.operate(request).await {
            Ok(tenants) => Answer::Tenants(tenants),
            Err(error) => refused(error.message.clone(), error.hint.clone()),
        },
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    stream.write_all(&bytes).await?;
    stream.shutdown().await
}

/// A path of the socket that fits an address of one, however long that of the data directory is. Good while the directory is open.
fn short_path(data_dir: &Path) -> io::Result<(File, PathBuf)> {
    let directory = File::open(data_dir)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()));
    Ok((directory, path))
}

/// Asks the server of a data directory, or where none runs does it to the database.
pub(crate) async fn ask(
    data_dir: &Path,
    usual: &Quota,
    request: OperatorRequest,
) -> anyhow::Result<Vec<Tenant>> {
    let connected = match short_path(data_dir) {
        Ok((_directory, path)) => UnixStream::connect(path).await,
        Err(error) => Err(error),
    };
    match connected {
        Ok(stream) => ask_server(stream, &request).await,
        Err(_) => ask_database(data_dir, usual, request).await,
    }
}

async fn ask_server(mut stream: UnixStream, request: &OperatorRequest) -> anyhow::Result<Vec<Tenant>> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    let exchange = async {
        stream.write_all(&line).await?;
        let mut bytes = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).await?;
        io::Result::Ok(bytes)
    };
    let bytes = timeout(TIMEOUT, exchange).await.context("the server does not answer")?;
    let bytes = bytes.context("ask the server")?;
    match serde_json::from_slice(&bytes).context("understand the server's answer")? {
        Answer::Tenants(tenants) => Ok(tenants),
        Answer::Refused { message, hint } => bail!(crate::output::Hinted { message, hint }),
    }
}

async fn ask_database(
    data_dir: &Path,
    usual: &Quota,
    request: OperatorRequest,
) -> anyhow::Result<Vec<Tenant>> {
    let database = data_dir.join(DATABASE);
    if !database.exists() {
        bail!(crate::output::Hinted {
            message: format!("no server has run with the data directory {} yet", data_dir.display()),
            hint: Some("name another one with --data-dir, or start it: pandastack serve".to_owned()),
        });
    }
    let _lock = match DataDir::lock(data_dir) {
        Err(error @ LockError::DataDirInUse { .. }) => {
            return Err(error)
                .context("the server that has the data directory does not take operators' requests");
        }
        lock => lock.context("take the data directory")?,
    };
    let store = tokio::task::block_in_place(|| SqliteStore::open(&database)).context("open the database")?;
    let outcome = control::operate(&store, usual, request).await;
    store.close().await;
    outcome.map_err(|error| {
        anyhow::Error::new(crate::output::Hinted { message: error.message.clone(), hint: error.hint.clone() })
    })
}
