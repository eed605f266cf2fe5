//! A real pool for a test: an XFS image in a temporary directory, gone with the value even when the test fails.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::lock::DataDir;
use crate::pool::{Pool, PoolConfig, PoolSize, Reflink};

/// A temporary data directory; what is mounted in it is unmounted at the end.
pub(crate) struct TestDir {
    directory: tempfile::TempDir,
}

impl TestDir {
    pub(crate) fn new() -> TestDir {
        TestDir { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    pub(crate) fn open(&self) -> Pool {
        self.try_open().unwrap()
    }

    pub(crate) fn try_open(&self) -> Result<Pool, crate::pool::PoolError> {
        let lock = DataDir::lock(&self.path()).unwrap();
        Pool::open(&lock, &config())
    }

    /// Names of the loop devices that have a file of this directory.
    pub(crate) fn loop_devices(&self) -> Vec<String> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir("/sys/block").unwrap() {
            let path = entry.unwrap().path();
            let Ok(backing) = std::fs::read_to_string(path.join("loop/backing_file")) else { continue };
            if Path::new(&backing).starts_with(self.path()) {
                names.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
        names
    }

    /// Waits until no loop device has a file of this directory. Processes of other programs on this machine that began a
    /// mount namespace meanwhile may hold on to one for a while.
    pub(crate) fn wait_until_detached(&self) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !self.loop_devices().is_empty() {
            assert!(std::time::Instant::now() < deadline, "{:?} stays attached", self.loop_devices());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let here = std::fs::metadata(self.path()).unwrap();
        std::fs::metadata(self.path().join("pool")).is_ok_and(|pool| pool.dev() != here.dev())
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let pool = self.path().join("pool");
        while self.is_mounted() {
            if rustix::mount::unmount(&pool, rustix::mount::UnmountFlags::DETACH).is_err() {
                break;
            }
        }
    }
}

pub(crate) fn config() -> PoolConfig {
    PoolConfig { size: PoolSize::Bytes(512 << 20) }
}

/// An open pool in a [`TestDir`].
pub(crate) struct TestPool {
    pool: Pool,
    _directory: TestDir,
}

impl TestPool {
    pub(crate) fn new() -> TestPool {
        let directory = TestDir::new();
        let pool = directory.open();
        assert_eq!(*pool.reflink(), Reflink::Yes);
        TestPool { pool, _directory: directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.pool.path()
    }

    /// Makes a file so large that only about `bytes` are left.
    pub(crate) fn fill_leaving(&self, bytes: u64) {
        let file = std::fs::File::create_new(self.path().join("filler")).unwrap();
        let mut filled = 0;
        for step in [16 << 20, 1 << 20] {
            while rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), filled, step).is_ok() {
                filled += step;
            }
        }
        file.set_len(filled - bytes).unwrap();
    }
}
