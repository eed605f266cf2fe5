//! Pools on real loop devices: made, found again, killed between any two steps, refused when they are not ours.

use std::process::Command;

use super::*;
use crate::kill_point;
use crate::test_pool::{TestDir, config};

const VARIABLE: &str = "STORAGE_TEST_POOL";

fn write(pool: &Pool, name: &str, bytes: &[u8]) {
    std::fs::write(pool.path().join(name), bytes).unwrap();
}

fn read(pool: &Pool, name: &str) -> Vec<u8> {
    std::fs::read(pool.path().join(name)).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_pool_is_made_kept_and_closed() {
    let directory = TestDir::new();
    let pool = directory.open();
    assert_eq!(*pool.reflink(), Reflink::Yes);
    write(&pool, "file", b"kept");
    assert_eq!(directory.loop_devices().len(), 1);
    drop(pool);
    assert!(directory.is_mounted(), "dropping a pool leaves it to the VMs");

    let again = directory.open();
    assert_eq!(read(&again, "file"), b"kept");
    assert_eq!(directory.loop_devices().len(), 1);
    again.close().unwrap();
    assert!(!directory.is_mounted());
    directory.wait_until_detached();
    assert_eq!(names(&directory.path()), ["lock", "pool", "pool.img"]);

    let reopened = directory.open();
    assert_eq!(read(&reopened, "file"), b"kept");
    reopened.close().unwrap();
    directory.wait_until_detached();
}

#[test]
fn a_directory_that_can_share_is_used_as_it_is() {
    let outer = TestDir::new();
    let pool = outer.open();
    let data = pool.path().join("data");
    let inner = Pool::open(&DataDir::lock(&data).unwrap(), &PoolConfig::default()).unwrap();
    assert_eq!(*inner.reflink(), Reflink::Yes);
    assert_eq!(names(&data), ["lock", "pool"]);
    inner.close().unwrap();
    assert!(data.join("pool").exists());
}

#[test]
fn a_process_killed_while_opening_leaves_nothing_in_the_way() {
    let mut borders = 0;
    loop {
        let directory = TestDir::new();
        let path = directory.path();
        let killed =
            kill_point::run_killed_at(borders + 1, "pool::tests::open_and_close", &[(VARIABLE, &path)]);
        let pool = directory.open();
        assert_eq!(*pool.reflink(), Reflink::Yes, "after border {}", borders + 1);
        write(&pool, "file", b"works");
        assert_eq!(directory.loop_devices().len(), 1, "after border {}", borders + 1);
        pool.close().unwrap();
        directory.wait_until_detached();
        assert_eq!(names(&path), ["lock", "pool", "pool.img"], "after border {}", borders + 1);
        if !killed {
            break;
        }
        borders += 1;
    }
    assert!(borders >= 12, "only {borders} borders were tried");
}

#[test]
#[ignore = "the process that is killed by the test above"]
fn open_and_close() {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let data_dir = DataDir::lock(Path::new(&path)).unwrap();
    kill_point::arm();
    Pool::open(&data_dir, &config()).unwrap().close().unwrap();
}

#[test]
fn a_pool_that_another_mount_namespace_holds_can_be_opened_again() {
    let directory = TestDir::new();
    let pool = directory.open();
    write(&pool, "file", b"kept");
    let mut holder = std::process::Command::new("/usr/bin/unshare")
        .args(["--mount", "--propagation", "private", "/bin/sh", "-c", "echo ready; exec cat"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let ready = rustix::io::read(holder.stdout.as_ref().unwrap(), &mut [0; 1]).unwrap();
    let closed = pool.close();
    let again = directory.try_open().map(|pool| read(&pool, "file"));
    let devices = directory.loop_devices();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!((ready, closed.unwrap(), again.unwrap()), (1, Closed::HereOnly, b"kept".to_vec()));
    assert_eq!(devices.len(), 1, "one image is never attached twice");
    directory.open().close().unwrap();
    directory.wait_until_detached();
}

#[test]
fn a_crashed_image_recovers() {
    let crashed = TestDir::new();
    let pool = crashed.open();
    std::fs::create_dir(pool.path().join("directory")).unwrap();
    let file = File::create_new(pool.path().join("directory/file")).unwrap();
    rustix::io::write(&file, b"synced").unwrap();
    file.sync_all().unwrap();
    drop(file);
    // The image of a mounted file system, as a power cut leaves it: its log is dirty.
    let recovered = TestDir::new();
    std::fs::copy(crashed.path().join("pool.img"), recovered.path().join("pool.img")).unwrap();
    pool.close().unwrap();

    let pool = recovered.open();
    assert_eq!(read(&pool, "directory/file"), b"synced");
    pool.close().unwrap();
}

#[test]
fn a_foreign_image_at_the_pool_is_refused() {
    let other = TestDir::new();
    other.open().close().unwrap();
    let directory = TestDir::new();
    let place = directory.path().join("pool");
    std::fs::create_dir(&place).unwrap();
    Image::of(&other.path()).mount(&place).unwrap();
    match directory.try_open() {
        Err(PoolError::ForeignMount { backing, .. }) => assert_eq!(backing, other.path().join("pool.img")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_disk_mounted_at_the_pool_is_used_unless_it_hides_an_image() {
    let directory = TestDir::new();
    let place = directory.path().join("pool");
    std::fs::create_dir(&place).unwrap();
    rustix::mount::mount("tmpfs", &place, "tmpfs", rustix::mount::MountFlags::empty(), c"size=1m").unwrap();
    let pool = directory.open();
    assert_eq!(*pool.reflink(), Reflink::No(Obstacle::Mounted));
    pool.close().unwrap();
    std::fs::write(directory.path().join("pool.img"), b"precious").unwrap();
    assert!(matches!(directory.try_open(), Err(PoolError::ForeignMount { .. })));
}

#[test]
fn an_image_attached_by_somebody_else_is_not_attached_twice() {
    let directory = TestDir::new();
    directory.open().close().unwrap();
    let image = OpenOptions::new().read(true).write(true).open(directory.path().join("pool.img")).unwrap();
    let device = loop_device::LoopDevice::attach(&image).unwrap();
    let pool = directory.open();
    assert_eq!(directory.loop_devices().len(), 1);
    drop(device);
    assert_eq!(directory.loop_devices().len(), 1);
    pool.close().unwrap();
    directory.wait_until_detached();
}

#[test]
fn a_ruined_image_is_an_error_and_stays() {
    let directory = TestDir::new();
    std::fs::write(directory.path().join("pool.img"), vec![b'x'; 1 << 20]).unwrap();
    match directory.try_open() {
        Err(PoolError::Unusable { source: ImageError::Mount(_), .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(directory.path().join("pool.img")).unwrap().len(), 1 << 20);
    directory.wait_until_detached();
    assert!(!directory.is_mounted());
}

#[test]
fn a_pool_in_use_does_not_close() {
    let directory = TestDir::new();
    let pool = directory.open();
    let file = File::create_new(pool.path().join("open")).unwrap();
    let error = pool.close().unwrap_err();
    assert!(matches!(error, PoolError::Close { source: ImageError::InUse, .. }), "{error:?}");
    assert!(directory.is_mounted());
    drop(file);
    directory.open().close().unwrap();
}

#[test]
fn a_pool_that_is_held_for_a_moment_closes() {
    let directory = TestDir::new();
    let pool = directory.open();
    let file = File::create_new(pool.path().join("open")).unwrap();
    let mut holder = Command::new("sleep").arg("0.3").stdin(file).spawn().unwrap();
    pool.close().unwrap();
    assert!(!directory.is_mounted());
    holder.wait().unwrap();
}

#[test]
fn trimming_gives_back_what_was_deleted() {
    use std::os::unix::fs::MetadataExt;
    let directory = TestDir::new();
    let pool = directory.open();
    let occupied = || std::fs::metadata(directory.path().join("pool.img")).unwrap().blocks() * 512;
    write(&pool, "large", &vec![7; 64 << 20]);
    File::open(pool.path()).map(|file| rustix::fs::syncfs(&file)).unwrap().unwrap();
    let full = occupied();
    assert!(full > 64 << 20, "{full}");
    std::fs::remove_file(pool.path().join("large")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while occupied() > full - (60 << 20) {
        assert!(Instant::now() < deadline, "{} of {full} bytes stay occupied", occupied());
        pool.trim().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    pool.close().unwrap();
}

#[test]
fn a_plain_directory_with_files_stays_one() {
    let directory = TestDir::new();
    std::fs::create_dir(directory.path().join("pool")).unwrap();
    std::fs::write(directory.path().join("pool/file"), b"kept").unwrap();
    let pool = directory.open();
    if *pool.reflink() == Reflink::Yes {
        eprintln!("SKIPPED: temporary files are on a file system with reflinks");
        return;
    }
    assert_eq!(*pool.reflink(), Reflink::No(Obstacle::MadeWithout));
    assert_eq!(read(&pool, "file"), b"kept");
    pool.close().unwrap();
}

#[test]
fn sizes_have_bounds() {
    let directory = TestDir::new();
    let lock = DataDir::lock(&directory.path()).unwrap();
    let config = PoolConfig { size: PoolSize::Bytes(IMAGE_BYTES_MIN - 1) };
    assert!(matches!(Pool::open(&lock, &config), Err(PoolError::TooSmall { .. })));
    let config = PoolConfig { size: PoolSize::Bytes(IMAGE_BYTES_MIN) };
    let pool = Pool::open(&lock, &config).unwrap();
    pool.require_free(1 << 20).unwrap();
    let free = pool.free_bytes().unwrap();
    assert!(free < IMAGE_BYTES_MIN, "{free}");
    match pool.require_free(1 << 40) {
        Err(PoolError::NoSpace { free: reported, required }) => {
            assert_eq!(reported, free);
            assert!(required > 1 << 40);
        }
        other => panic!("{other:?}"),
    }
    pool.close().unwrap();

    let small = tempfile::tempdir().unwrap();
    let place = small.path().canonicalize().unwrap();
    rustix::mount::mount("tmpfs", &place, "tmpfs", rustix::mount::MountFlags::empty(), c"size=64m").unwrap();
    let lock = DataDir::lock(&place).unwrap();
    let opened = Pool::open(&lock, &PoolConfig::default());
    drop(lock);
    rustix::mount::unmount(&place, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(matches!(opened, Err(PoolError::NoSpace { .. })), "{opened:?}");
}
