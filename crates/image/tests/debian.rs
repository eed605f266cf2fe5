//! Real kernels and root file systems from this host's package sources. Needs root, a Debian and its tools; takes a
//! few minutes. Builds run one after the other: they would only slow each other down.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use image::{
    Digest, ImageError, ImageStore, KernelSource, PackageName, Reuse, Silent, Step, ToolError, template,
};
use tokio::sync::Mutex as AsyncMutex;

static ONE_AT_A_TIME: AsyncMutex<()> = AsyncMutex::const_new(());
/// Set for the process that the kill test starts: the store it shall build in.
const CHILD_STORE: &str = "PANDASTACK_TEST_CHILD_STORE";

fn names_in(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn until(what: &str, limit: Duration, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether any process works with a file below `folder`, by its arguments.
fn processes_on(folder: &Path) -> bool {
    let wanted = folder.to_str().unwrap().as_bytes();
    let own = std::process::id().to_string();
    fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|entry| {
        let is_process =
            entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok() && name != own);
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        is_process && line.windows(wanted.len()).any(|part| part == wanted)
    })
}

fn mounts_below(folder: &Path) -> bool {
    fs::read_to_string("/proc/self/mounts").unwrap().contains(folder.to_str().unwrap())
}

fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// A file of an ext4 image, without mounting it.
fn read_in(image: &Path, path: &str) -> String {
    let output =
        Command::new("/usr/sbin/debugfs").arg("-R").arg(format!("cat {path}")).arg(image).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn list_in(image: &Path, path: &str) -> String {
    run("/usr/sbin/debugfs", &["-R", &format!("ls -p {path}"), image.to_str().unwrap()]).1
}

/// Everything in an ext4 image by its path: mode with kind, owner, group, and content, target or device. Times are of no account.
fn tree_in(image: &Path) -> BTreeMap<PathBuf, (u32, u32, u32, String)> {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let dump = format!("rdump / {}", dir.path().display());
    let (done, said) = run("/usr/sbin/debugfs", &["-R", &dump, image.to_str().unwrap()]);
    assert!(done, "{said}");
    let (mut found, mut open) = (BTreeMap::new(), vec![dir.path().to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let what = if about.is_dir() {
                open.push(path.clone());
                String::new()
            } else if about.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if about.is_file() {
                Digest::of_file(&path).unwrap().to_string()
            } else {
                about.rdev().to_string()
            };
            let inside = path.strip_prefix(dir.path()).unwrap().to_owned();
            found.insert(inside, (about.mode(), about.uid(), about.gid(), what));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_is_made_from_packages_and_found_again() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path()).await.unwrap();
    let steps = Mutex::new(Vec::new());
    let progress = |step: Step| steps.lock().unwrap().push(step);

    let timer = Instant::now();
    let kernel = store.kernel(&KernelSource::default(), &progress).await.unwrap();
    eprintln!("kernel {} in {:?}", kernel.release, timer.elapsed());
    assert!(kernel.release.ends_with("-cloud-amd64"), "{}", kernel.release);
    assert!(fs::metadata(&kernel.path).unwrap().len() > 20_000_000);
    let modules = kernel.modules.clone().unwrap();
    assert!(modules.join("modules.builtin").is_file());

    let timer = Instant::now();
    let initramfs = store.initramfs(&kernel, &progress).await.unwrap();
    let archive = fs::read(&initramfs.path).unwrap();
    eprintln!("initramfs of {} bytes in {:?}", archive.len(), timer.elapsed());
    let archive = String::from_utf8_lossy(&archive).into_owned();
    check_load_order(&archive, &fs::read_to_string(modules.join("modules.builtin")).unwrap());

    let timer = Instant::now();
    let spec = template::minimal().rootfs;
    let rootfs = store.rootfs(&spec, Reuse::IfPresent, &progress).await.unwrap();
    eprintln!("root file system in {:?}", timer.elapsed());
    check_rootfs(&rootfs);
    let fractions: Vec<f32> = steps.lock().unwrap().iter().filter_map(|step| step.fraction).collect();
    assert!(fractions.len() > 50, "a person sees too little: {} steps", fractions.len());
    assert_eq!(store.verify().await.unwrap(), []);
    assert!(names_in(&dir.path().join("staging")).is_empty());
    assert!(!mounts_below(dir.path()));

    let timer = Instant::now();
    let again = ImageStore::open(dir.path()).await.unwrap();
    assert_eq!(again.kernel(&KernelSource::default(), &Silent).await.unwrap(), kernel);
    assert_eq!(again.initramfs(&kernel, &Silent).await.unwrap(), initramfs);
    assert_eq!(again.rootfs(&spec, Reuse::IfPresent, &Silent).await.unwrap(), rootfs);
    eprintln!("all found again in {:?}", timer.elapsed());

    // A rebuild downloads no package again, replaces the image only when it is complete, and has the same files.
    let first = tree_in(&rootfs.path);
    assert!(first.len() > 1000 && first.keys().any(|path| path == Path::new("usr/bin/python3")));
    steps.lock().unwrap().clear();
    let rebuilt = store.rootfs(&spec, Reuse::Rebuild, &progress).await.unwrap();
    assert_eq!(rebuilt.path, rootfs.path);
    assert_eq!(rebuilt.manifest.packages, rootfs.manifest.packages);
    let second = tree_in(&rebuilt.path);
    let differing: Vec<_> = first
        .keys()
        .chain(second.keys())
        .filter(|path| first.get(*path) != second.get(*path))
        .map(|path| (path, first.get(path), second.get(path)))
        .collect();
    assert!(differing.is_empty(), "{differing:?}");
    let downloads =
        |step: &&Step| step.message.starts_with("downloading ") && !step.message.contains("packages");
    let steps = steps.into_inner().unwrap();
    let downloaded: Vec<_> = steps.iter().filter(downloads).collect();
    assert!(downloaded.is_empty(), "{downloaded:?}");
    assert!(names_in(&dir.path().join("staging")).is_empty());
}

/// Every module is loaded after those that it says it needs, and what every guest needs is loaded or built in. Which modules
/// need each other, and which are built in, is the kernel's choice and changes with its version.
fn check_load_order(archive: &str, builtin: &str) {
    let in_kernel = |name: &str| {
        let file = format!("/{name}.ko");
        builtin.lines().any(|line| line.replace('-', "_").ends_with(&file))
    };
    let order: Vec<&str> = archive
        .lines()
        .filter_map(|line| line.rsplit_once("/modules/")?.1.strip_suffix(".ko"))
        .filter(|name| !name.contains(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_'))
        .collect();
    for needed in ["virtio_mmio", "virtio_blk", "virtio_net", "virtio_console", "ext4"] {
        assert!(order.contains(&needed) || in_kernel(needed), "{needed} in {order:?}");
    }
    let mut dependencies = 0;
    for (place, name) in order.iter().enumerate() {
        let entry =
            archive.find(&format!("modules/{name}.ko\0")).unwrap_or_else(|| panic!("no file of {name}"));
        let said =
            archive[entry..].split_once("\0depends=").unwrap_or_else(|| panic!("{name} names no needs")).1;
        let needs = said.split_once('\0').unwrap().0;
        for need in needs.split(',').filter(|need| !need.is_empty()).map(|need| need.replace('-', "_")) {
            let before = order[..place].contains(&need.as_str());
            assert!(before || in_kernel(&need), "{name} needs {need}: {order:?}");
            dependencies += 1;
        }
    }
    assert!(dependencies > 0, "no module needs another, which this test is about: {order:?}");
}

fn check_rootfs(rootfs: &image::Rootfs) {
    use std::os::unix::fs::MetadataExt;
    let image = rootfs.path.as_path();
    let file = fs::metadata(image).unwrap();
    assert_eq!(file.len(), rootfs.size);
    assert!(file.blocks() * 512 < 400_000_000, "not sparse: {} bytes", file.blocks() * 512);
    eprintln!("image takes {} MB", file.blocks() * 512 / 1_000_000);
    let (sound, report) = run("/usr/sbin/e2fsck", &["-f", "-n", image.to_str().unwrap()]);
    assert!(sound, "{report}");
    let installed = |name: &str| rootfs.manifest.packages.iter().any(|package| package.name == name);
    assert!(installed("python3") && installed("apt") && installed("dpkg"));

    assert_eq!(read_in(image, "/etc/hostname"), "sandbox\n");
    assert_eq!(read_in(image, "/etc/machine-id"), "");
    assert!(read_in(image, "/etc/passwd").contains("user:x:1000:1000::/home/user:/bin/bash\n"));
    assert!(read_in(image, "/etc/shadow").contains("user:*:"));
    assert!(read_in(image, "/etc/apt/sources.list").starts_with("deb "));
    let root = list_in(image, "/");
    for folder in ["workspace", "etc", "usr", "bin"] {
        assert!(root.contains(&format!("/{folder}/")), "{folder} is missing: {root}");
    }
    let manuals = list_in(image, "/usr/share/man");
    assert!(!manuals.contains("man1"), "{manuals}");
    assert!(list_in(image, "/usr/share/doc/dpkg").contains("/copyright/"));
    let settings = list_in(image, "/etc/apt/apt.conf.d");
    assert!(!settings.contains("mmdebstrap"), "{settings}");
    assert!(!list_in(image, "/var/cache/apt/archives").contains(".deb"));
    assert!(!list_in(image, "/var/lib/apt/lists").contains("Packages"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_nobody_waits_for_ends_without_a_trace() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path()).await.unwrap();
    let (send, mut installing) = tokio::sync::mpsc::unbounded_channel();
    let builder = tokio::spawn(async move {
        let progress = move |step: Step| {
            if step.message.starts_with("unpacking ") {
                let _ = send.send(());
            }
        };
        store.rootfs(&template::minimal().rootfs, Reuse::IfPresent, &progress).await
    });
    installing.recv().await.unwrap();
    builder.abort();
    assert!(builder.await.unwrap_err().is_cancelled());
    let staging = dir.path().join("staging");
    until("nothing is left", Duration::from_secs(30), || {
        names_in(&staging).is_empty() && !processes_on(&staging)
    })
    .await;
    assert!(names_in(&dir.path().join("rootfs")).is_empty());
    assert!(!names_in(&dir.path().join("packages")).is_empty(), "the next try need not download them again");
}

/// Not a test: the process that the next test kills.
#[tokio::test]
#[ignore = "started by another test"]
async fn builder_to_be_killed() {
    let Some(dir) = std::env::var_os(CHILD_STORE) else { return };
    let store = ImageStore::open(PathBuf::from(dir)).await.unwrap();
    store.rootfs(&template::minimal().rootfs, Reuse::IfPresent, &Silent).await.unwrap();
}

/// Shows how long the template that users start with takes, and what it weighs.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "installs many packages; run it by name to measure"]
async fn the_base_template_is_built() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path()).await.unwrap();
    let timer = Instant::now();
    let last = Mutex::new(String::new());
    let progress = |step: Step| {
        let mut last = last.lock().unwrap();
        if *last != step.message {
            eprintln!(
                "{:6.1} s {:4.2} {}",
                timer.elapsed().as_secs_f32(),
                step.fraction.unwrap_or(-1.0),
                step.message
            );
            *last = step.message;
        }
    };
    let rootfs = store.rootfs(&template::base().rootfs, Reuse::IfPresent, &progress).await.unwrap();
    eprintln!("base in {:?}, {} packages", timer.elapsed(), rootfs.manifest.packages.len());
    let image = rootfs.path.as_path();
    let stored = fs::metadata(image).map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512).unwrap();
    eprintln!("image takes {} MB", stored / 1_000_000);
    assert!(stored < 600_000_000);
    let keys = list_in(image, "/etc/ssh");
    assert!(keys.contains("sshd_config") && !keys.contains("ssh_host_"), "{keys}");
    assert!(!list_in(image, "/usr/lib/python3.11").contains("EXTERNALLY-MANAGED"));
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_killed_builder_the_next_one_finds_a_clean_store() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "builder_to_be_killed", "--ignored"])
        .env(CHILD_STORE, dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = KillOnDrop(child);
    let staging = dir.path().join("staging");
    // Something is installed already: the tree holds a shell.
    until("the build is under way", Duration::from_secs(120), || {
        staging.is_dir()
            && names_in(&staging).iter().any(|name| staging.join(name).join("root/usr/bin/dash").exists())
    })
    .await;
    child.0.kill().unwrap();
    child.0.wait().unwrap();

    // What the builder had started may outlive it for a moment, and keeps the lock for that time.
    until("its programs have ended", Duration::from_secs(120), || !processes_on(&staging)).await;
    ImageStore::open(dir.path()).await.unwrap();
    assert!(names_in(&staging).is_empty());
    assert!(names_in(&dir.path().join("rootfs")).is_empty());
    assert!(!mounts_below(dir.path()));
}

struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(mib: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={mib}m");
        let (mounted, report) =
            run("mount", &["-t", "tmpfs", "-o", &options, "pandastack-test", dir.path().to_str().unwrap()]);
        assert!(mounted, "{report}");
        Self(dir)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["-l", self.0.path().to_str().unwrap()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_said_plainly_and_freed_again() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let disk = SmallDisk::new(120);
    let store = ImageStore::open(disk.0.path().join("store")).await.unwrap();
    let error = store.kernel(&KernelSource::default(), &Silent).await.unwrap_err();
    assert!(matches!(error, ImageError::DiskFull { .. }), "{error:?}");
    let error = store.rootfs(&template::minimal().rootfs, Reuse::IfPresent, &Silent).await.unwrap_err();
    assert!(matches!(error, ImageError::DiskFull { .. }), "{error:?}");
    for folder in ["staging", "rootfs", "kernels", "packages"] {
        assert!(names_in(&disk.0.path().join("store").join(folder)).is_empty(), "{folder}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_installed_is_named() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path()).await.unwrap();
    let mut spec = template::minimal().rootfs;
    spec.packages.push(PackageName::parse("no-such-package-anywhere").unwrap());
    let error = store.rootfs(&spec, Reuse::IfPresent, &Silent).await.unwrap_err();
    let ImageError::Tool(ToolError::Failed { tail, .. }) = &error else { panic!("{error:?}") };
    assert!(tail.contains("no-such-package-anywhere"), "{tail}");

    let unknown = KernelSource::Debian { package: "linux-image-of-nobody".to_owned() };
    let error = store.kernel(&unknown, &Silent).await.unwrap_err();
    assert!(matches!(error, ImageError::KernelPackageUnknown { .. }), "{error:?}");
    assert!(names_in(&dir.path().join("staging")).is_empty());
}

/// Kernels of newer releases are packed differently; this one is fetched only where the host has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_kernel_can_be_named_too() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let mut listing = String::new();
    let mut child = Command::new("apt-cache")
        .args(["pkgnames", "linux-image-6.12"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_to_string(&mut listing).unwrap();
    child.wait().unwrap();
    let Some(package) = listing.lines().filter(|name| name.ends_with("-cloud-amd64")).max() else {
        eprintln!("SKIPPED: this host's package sources have no kernel 6.12");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path()).await.unwrap();
    let source = KernelSource::Debian { package: package.to_owned() };
    let kernel = store.kernel(&source, &Silent).await.unwrap();
    assert!(kernel.release.starts_with("6.12"), "{}", kernel.release);
    store.initramfs(&kernel, &Silent).await.unwrap();
}
