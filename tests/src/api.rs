//! The whole service in this process, reached as clients reach it: through HTTP on a port of its own.
//!
//! [`Api`] is a server over a data directory with the suites' template in it. [`serve_process`] runs the real program instead, to
//! be killed.

pub mod client;
pub mod event_stream;
pub mod serve_process;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use control::{Control, ControlConfig};
use node::Node;
use serde_json::{Value, json};
use server::ServerConfig;
use store::SqliteStore;
use tokio::net::TcpListener;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::client::{Answer, Client};
use crate::census::Census;
use crate::lab::{ClosedLab, Lab, LabSettings, in_turn, runtime};
use crate::{engine, wait};

/// The template every sandbox of these suites is made from.
pub const TEMPLATE: &str = "minimal";
/// The first tenant's key.
pub const KEY: &str = "pds_0123456789abcdef0123456789abcdef";
/// How long removing things may take.
const TIDY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the template may take until it is found again.
const TEMPLATE_TIMEOUT: Duration = Duration::from_secs(120);

static SHARED: OnceCell<Api> = OnceCell::const_new();

/// What an API server of a test is made of.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Data directory and node.
    pub lab: LabSettings,
    /// Services.
    pub control: ControlConfig,
    /// Connections.
    pub server: ServerConfig,
}

impl ApiSettings {
    /// The usual ones, without a limit on the rate of requests.
    pub fn new(name: &'static str) -> Self {
        let control = ControlConfig {
            rate_burst: 1e9,
            rate_per_second: 1e9,
            reap_every: Duration::from_millis(100),
            cpus_max: 4,
            memory_mib_max: 2048,
            ..ControlConfig::default()
        };
        Self { lab: LabSettings::new(name), control, server: ServerConfig::default() }
    }
}

/// A server that runs in this process, and a client of it.
pub struct Api {
    closed: ClosedLab,
    settings: ApiSettings,
    running: Running,
    client: Client,
    /// What was there before the test.
    census: Census,
}

struct Running {
    control: Control,
    node: Node,
    stop: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
    address: SocketAddr,
}

impl Running {
    async fn start(closed: &mut ClosedLab, settings: &ApiSettings) -> Result<Self> {
        let engine = engine::engine()?;
        let node = Node::open(closed.config().clone(), move |_| Ok(engine)).await.context("open the node")?;
        let database = closed.data_dir().join("control.db");
        let store = tokio::task::block_in_place(|| SqliteStore::open(&database)).context("open the store")?;
        let control = Control::open(settings.control.clone(), Arc::new(store), node.clone()).await?;
        control.bootstrap(Some(KEY)).await.context("make the first key")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let serving = tokio::spawn({
            let (control, config, stop) = (control.clone(), settings.server.clone(), stop.clone());
            async move { server::serve(listener, &control, &config, stop).await }
        });
        Ok(Self { control, node, stop, serving, address })
    }

    /// Stops as `pandastack serve` does when it is told to.
    async fn stop(self) -> Result<()> {
        self.control.closing().cancel();
        self.stop.cancel();
        self.serving.await?.context("serve")?;
        self.control.close().await;
        Ok(())
    }
}

impl Api {
    /// A server with the usual settings.
    pub async fn start(name: &'static str) -> Result<Self> {
        Self::start_with(ApiSettings::new(name)).await
    }

    /// A server. When this returns its template is ready.
    pub async fn start_with(settings: ApiSettings) -> Result<Self> {
        let closed = Lab::prepare(settings.lab.clone()).await?;
        Self::start_in(closed, settings).await
    }

    /// A server over a data directory that was prepared. When this returns the suites' template is ready.
    pub async fn start_in(mut closed: ClosedLab, settings: ApiSettings) -> Result<Self> {
        let running = Running::start(&mut closed, &settings).await?;
        let client = Client::new(running.address, Some(KEY));
        wait::until_async("the template is ready", TEMPLATE_TIMEOUT, async || {
            let template = client.get(&format!("/v1/templates/{TEMPLATE}")).await?;
            Ok(template.json()?["status"] == "ready")
        })
        .await?;
        let census = Census::take(closed.data_dir())?;
        Ok(Self { closed, settings, running, client, census })
    }

    /// Its client, with the first tenant's key. Whatever `Client` can do, the server can be asked directly too.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The services behind it, for what only operators can do.
    pub fn control(&self) -> &Control {
        &self.running.control
    }

    /// The machines behind it.
    pub fn node(&self) -> &Node {
        &self.running.node
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// Its data directory, whose name must never be seen in an answer.
    pub fn data_dir(&self) -> &std::path::Path {
        self.closed.data_dir()
    }

    /// A client of another tenant.
    pub async fn second_tenant(&self) -> Result<Client> {
        let tenant = self.control().add_tenant("somebody else").await?;
        let key = self.control().add_key(&tenant, "theirs").await?;
        Ok(self.client.with_key(&key))
    }

    /// Stops the server as an operator would and starts it again on the same data; on another port.
    pub async fn restart(self) -> Result<Self> {
        let Self { mut closed, settings, running, census, .. } = self;
        running.stop().await?;
        let running = Running::start(&mut closed, &settings).await?;
        let client = Client::new(running.address, Some(KEY));
        Ok(Self { closed, settings, running, client, census })
    }

    /// Deletes what the first tenant has, makes sure that nothing is left on the host, and removes the data directory.
    pub async fn finish(self) -> Result<()> {
        self.client.delete_everything().await?;
        let census = || -> Result<Census> {
            let mut census = Census::take(self.closed.data_dir())?;
            let ready = self.running.node.network().stats().ready as usize;
            census.namespaces = census.namespaces.saturating_sub(ready);
            Ok(census)
        };
        let outcome =
            wait::until_async("nothing is left over", TIDY_TIMEOUT, async || Ok(census()? == self.census))
                .await;
        outcome.with_context(|| format!("expected {:?}, found {:?}", self.census, census()))?;
        self.running.stop().await?;
        self.closed.remove()
    }
}

impl std::ops::Deref for Api {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Runs a test against the server that all tests of this process share. Other tests have sandboxes there too.
pub fn in_api(test: impl AsyncFnOnce(&'static Api) -> Result<()>) -> Result<()> {
    runtime().block_on(async {
        let api = SHARED.get_or_try_init(|| Api::start("api")).await?;
        in_turn(test(api)).await
    })
}

impl Client {
    /// Makes a sandbox of the suites' template; its id.
    pub async fn create(&self) -> Result<String> {
        self.create_with(json!({})).await
    }

    /// Makes a sandbox; its id. The template is the suites' unless `request` names one.
    pub async fn create_with(&self, mut request: Value) -> Result<String> {
        if request.get("template").is_none() && request.get("from_snapshot").is_none() {
            request["template"] = TEMPLATE.into();
        }
        let made = self.post("/v1/sandboxes", request).await?.expect(201)?.json()?;
        Ok(made["id"].as_str().context("a sandbox without id")?.to_owned())
    }

    /// What a shell line in a sandbox writes; an exit code other than 0 is an error.
    pub async fn shell(&self, id: &str, line: &str) -> Result<String> {
        let answer = self.exec(id, json!({ "cmd": line })).await?;
        ensure!(answer["exit_code"] == 0, "`{line}`: {answer}");
        Ok(answer["stdout"].as_str().context("no stdout")?.trim_end().to_owned())
    }

    /// Runs a command to its end.
    pub async fn exec(&self, id: &str, request: Value) -> Result<Value> {
        self.post(&format!("/v1/sandboxes/{id}/exec"), request).await?.expect(200)?.json()
    }

    /// What a sandbox is doing.
    pub async fn status(&self, id: &str) -> Result<String> {
        let sandbox = self.get(&format!("/v1/sandboxes/{id}")).await?.expect(200)?.json()?;
        Ok(sandbox["status"].as_str().context("no status")?.to_owned())
    }

    /// Deletes a sandbox.
    pub async fn remove(&self, id: &str) -> Result<()> {
        self.delete(&format!("/v1/sandboxes/{id}")).await?.expect(204).map(drop)
    }

    /// Deletes all sandboxes, snapshots, volumes and templates of the key's tenant, and ends its builds.
    pub async fn delete_everything(&self) -> Result<()> {
        let gone = |answer: Answer| {
            ensure!(matches!(answer.status, 204 | 404), "{answer:?}");
            Ok(())
        };
        for sandbox in list(&self.get("/v1/sandboxes").await?.expect(200)?.json()?, "id")? {
            gone(self.delete(&format!("/v1/sandboxes/{sandbox}")).await?)?;
        }
        for snapshot in list(&self.get("/v1/snapshots").await?.expect(200)?.json()?["snapshots"], "id")? {
            gone(self.delete(&format!("/v1/snapshots/{snapshot}")).await?)?;
        }
        for build in list(&self.get("/v1/templates/builds").await?.expect(200)?.json()?, "id")? {
            gone(self.delete(&format!("/v1/templates/builds/{build}")).await?)?;
        }
        let templates = self.get("/v1/templates").await?.expect(200)?.json()?;
        for template in templates.as_array().into_iter().flatten().filter(|one| one["is_global"] == false) {
            let name = template["name"].as_str().context("a template without a name")?;
            gone(self.delete(&format!("/v1/templates/{name}")).await?)?;
        }
        for volume in list(&self.get("/v1/volumes").await?.expect(200)?.json()?, "name")? {
            gone(self.delete(&format!("/v1/volumes/{volume}")).await?)?;
        }
        Ok(())
    }
}

/// One field of each object in a list.
pub fn list(values: &Value, field: &str) -> Result<Vec<String>> {
    let values = values.as_array().with_context(|| format!("not a list: {values}"))?;
    let fields = values.iter().map(|value| value[field].as_str().map(str::to_owned));
    fields.collect::<Option<_>>().with_context(|| format!("a {field} is missing"))
}
