//! An archive in a bucket, with a way to it that can fail.

use std::time::Duration;

use anyhow::Result;
use node::ArchiveConfig;
use storage::blobs::{BlobKey, Blobs, BlobsConfig, Listed, Patience};
use tests::frail_store::FrailStore;
use tests::s3_server::{self, BUCKET, S3Server};
use tests::wait;

/// How often a store is tried, and how long a try may be without an answer: long enough for an honest one on a busy host.
const TRIES: u32 = 4;
const IDLE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(200);
/// The same where there will be none.
const TRIES_IN_TROUBLE: u32 = 2;
const IDLE_IN_TROUBLE: Duration = Duration::from_secs(8);

pub(super) struct Bucket {
    pub(super) server: S3Server,
    pub(super) way: FrailStore,
}

impl Bucket {
    pub(super) async fn start() -> Result<Self> {
        let server = S3Server::start().await?;
        let way = FrailStore::start(server.address()).await?;
        Ok(Self { server, way })
    }

    pub(super) fn address(&self) -> String {
        format!("s3://{BUCKET}")
    }

    /// The variables that lead there, by the way that can fail.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        s3_server::environment(self.way.address())
    }

    pub(super) fn tries(&self) -> usize {
        TRIES as usize
    }

    /// An archive there, of which as little as possible is kept on the host.
    pub(super) fn config(&self) -> Result<ArchiveConfig> {
        self.config_of(TRIES, IDLE)
    }

    /// The same, with less patience.
    pub(super) fn impatient_config(&self) -> Result<ArchiveConfig> {
        self.config_of(TRIES_IN_TROUBLE, IDLE_IN_TROUBLE)
    }

    fn config_of(&self, tries: u32, idle: Duration) -> Result<ArchiveConfig> {
        let mut blobs = BlobsConfig::new(self.address().parse()?);
        blobs.environment = self.environment();
        let idle_timeout = wait::scaled(idle);
        blobs.patience = Patience { tries, idle_timeout, pause: PAUSE, ..Patience::default() };
        Ok(ArchiveConfig { blobs, local_bytes_max: Some(0), cache_bytes_max: 1 << 30 })
    }

    /// What is there, without going by the way that can fail.
    pub(super) async fn list(&self) -> Result<Vec<Listed>> {
        let mut config = BlobsConfig::new(self.address().parse()?);
        config.environment = s3_server::environment(self.server.address());
        Ok(Blobs::open(&config)?.list(&BlobKey::parse("snapshots")?).await?)
    }
}
