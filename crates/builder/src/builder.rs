//! A builder: a node, and what it keeps between builds.

use std::path::Path;
use std::sync::Arc;

use dockerfile::ImageConfig;
use domain::MachineShape;
use image::DiskSize;
use node::Node;
use storage::durable::sync_directory;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config;
use crate::error::BuildError;
use crate::layers::Layer;
use crate::log::{BuildLog, Journal};
use crate::recipe::{Recipe, Wanted};
use crate::request::{BuildRequest, BuiltDisk, Collected, Source};
use crate::settings::BuilderSettings;
use crate::staging::Staging;
use crate::stock::{Making, Stock};

const DISK: &str = "disk.ext4";

/// Builds templates. Cheap to clone; a node has one.
#[derive(Clone)]
pub struct Builder {
    inner: Arc<Inner>,
}

struct Inner {
    node: Node,
    stock: Stock,
    shape: MachineShape,
    /// What goes on after builds were answered.
    tasks: TaskTracker,
}

/// When it goes, a build is over: what was kept for it may be more than is allowed.
struct Afterwards(Builder);

impl Drop for Afterwards {
    fn drop(&mut self) {
        // Without a runtime nobody is left to do it; the next build will.
        let Ok(runtime) = Handle::try_current() else { return };
        let builder = self.0.clone();
        self.0.inner.tasks.spawn_on(
            async move {
                if let Err(error) = builder.collect().await {
                    tracing::warn!(%error, "old layers could not be removed");
                }
            },
            &runtime,
        );
    }
}

/// A layer that is what was asked for.
pub(crate) struct Made {
    pub(crate) layer: Layer,
    pub(crate) config: ImageConfig,
    pub(crate) starts: bool,
}

impl Builder {
    /// Opens what earlier builds kept. Blocks for a moment.
    ///
    /// # Errors
    /// When the node's directory of builds cannot be used, or no machine can be as large as the settings say.
    pub fn new(node: Node, settings: BuilderSettings) -> Result<Self, BuildError> {
        let shape = MachineShape::new(settings.vcpus, settings.memory_mib).map_err(|error| {
            BuildError::Source { problem: format!("build machines cannot be so: {error}") }
        })?;
        let stock = Stock::open(node.builds_directory(), settings)?;
        Ok(Self { inner: Arc::new(Inner { node, stock, shape, tasks: TaskTracker::new() }) })
    }

    /// Makes a template's disk in the request's destination: complete or absent whatever happens. Dropping the future ends the build.
    ///
    /// # Errors
    /// See [`BuildError`]; [`BuildError::Cancelled`] soon after `cancelled` is.
    pub async fn build(
        &self,
        request: &BuildRequest,
        log: &dyn BuildLog,
        cancelled: &CancellationToken,
    ) -> Result<BuiltDisk, BuildError> {
        let inner = &*self.inner;
        let size = DiskSize::from_bytes(u64::from(request.disk_mib) << 20).map_err(BuildError::Size)?;
        check_destination(&request.destination, inner.stock.directory())?;
        // Blocking work that goes on without its future is told to end.
        let cancelled = cancelled.child_token();
        let _over = cancelled.clone().drop_guard();
        let journal = Journal::new(log);
        // Goes after everything the build uses, however the build ends.
        let _afterwards = Afterwards(self.clone());
        let _in_use = inner.stock.in_use().await;
        let authorities = inner.node.authorities().await.map_err(BuildError::node)?;
        let making = Making {
            owner: &request.owner,
            size,
            authorities: &authorities,
            journal: &journal,
            cancelled: &cancelled,
        };
        let made = tokio::select! {
            biased;
            () = cancelled.cancelled() => Err(BuildError::Cancelled),
            made = inner.make(&request.source, making) => made,
        };
        // From here on it is too late to cancel.
        inner.publish(made?, &request.destination, &journal).await
    }

    /// Removes the layers that nobody used for longest until the rest is within the bound, and content of images of which no layer is
    /// left. What a build in progress uses stays. Every build does this after its end, and nobody waits for it.
    ///
    /// # Errors
    /// When the host refuses something; some may have been removed.
    pub async fn collect(&self) -> Result<Collected, BuildError> {
        self.inner.stock.collect().await
    }

    /// Waits for what goes on after builds were answered. No build may be begun any more.
    pub async fn close(&self) {
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

impl Inner {
    async fn make(&self, source: &Source, making: Making<'_>) -> Result<Made, BuildError> {
        let stock = &self.stock;
        let image = match source {
            Source::Dockerfile { text, context, args, target } => {
                let recipe = Recipe { node: &self.node, stock, shape: self.shape, making };
                let wanted = Wanted { text, context, args: args.clone(), target: target.clone() };
                return recipe.follow(wanted).await;
            }
            Source::Tarball { path } => {
                let layer = stock.tarball_disk(path, making).await?;
                return Ok(Made { layer, config: ImageConfig::default(), starts: false });
            }
            Source::Image { reference } => stock.pull(reference, making.journal).await?,
            Source::Archive { path } => stock.import(path, making.cancelled).await?,
        };
        let layer = stock.image_disk(&image, making).await?;
        Ok(Made { layer, config: config::of_image(&image.config), starts: false })
    }

    /// Puts a clone of a layer where the request wants it, at once.
    async fn publish(
        &self,
        made: Made,
        destination: &Path,
        journal: &Journal<'_>,
    ) -> Result<BuiltDisk, BuildError> {
        let part = journal.begin("keep the template's disk");
        let Made { layer, config, starts } = made;
        let (staging, to) = (self.stock.staging()?, destination.to_owned());
        let published = staging.blocking(move |folder| publish(&layer, folder, &to)).await;
        match published {
            Ok((digest, bytes)) => {
                part.say(&digest);
                part.done();
                Ok(BuiltDisk { disk: destination.join(DISK), digest, bytes, config, starts })
            }
            Err(error) => {
                part.failed(&error);
                Err(error)
            }
        }
    }
}

fn publish(layer: &Layer, folder: &Path, destination: &Path) -> Result<(String, u64), BuildError> {
    use std::os::unix::fs::MetadataExt;
    let failed = BuildError::host("keep the template's disk");
    let digest = layer.digest().map_err(failed)?;
    let inner = Staging::make(folder)?;
    let (disk, _) =
        storage::clone_file(&layer.disk(), &inner.path().join(DISK)).map_err(BuildError::clone)?;
    disk.sync_all().map_err(failed)?;
    let bytes = disk.metadata().map_err(failed)?.blocks() * 512;
    sync_directory(inner.path()).map_err(failed)?;
    let parent = destination.parent().unwrap_or(folder);
    std::fs::create_dir_all(parent).map_err(failed)?;
    let free = rustix::fs::RenameFlags::NOREPLACE;
    let cwd = rustix::fs::CWD;
    rustix::fs::renameat_with(cwd, inner.path(), cwd, destination, free)
        .map_err(|errno| failed(errno.into()))?;
    sync_directory(parent).map_err(failed)?;
    Ok((digest, bytes))
}

fn check_destination(destination: &Path, directory: &Path) -> Result<(), BuildError> {
    let failed = |why| Err(BuildError::host("use the destination")(std::io::Error::other(why)));
    let plain = destination.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    if !plain || !destination.starts_with(directory) {
        return failed("it is outside of the directory of builds");
    }
    match std::fs::symlink_metadata(destination) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        _ => failed("it is there already"),
    }
}
