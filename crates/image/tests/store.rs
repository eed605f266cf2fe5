//! The store as its users see it: complete or absent, one builder at a time, honest about damage. Uses kernels of the
//! operator, which need no network and are made in milliseconds.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use image::{ImageError, ImageStore, KernelFileError, KernelSource, Silent, Step};

/// The smallest file that passes for an uncompressed kernel.
fn kernel_file(folder: &Path, release: &str) -> PathBuf {
    let mut content = vec![0; 64];
    content[..6].copy_from_slice(b"\x7fELF\x02\x01");
    content[18..20].copy_from_slice(&62u16.to_le_bytes());
    content.extend(format!("Linux version {release} (builder)").into_bytes());
    let path = folder.join(format!("vmlinux-{release}"));
    fs::write(&path, content).unwrap();
    path
}

fn names_in(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_builders_of_one_key_build_once() {
    let dir = tempfile::tempdir().unwrap();
    let source = KernelSource::File { vmlinux: kernel_file(dir.path(), "6.1.0-test"), modules: None };
    let steps = Mutex::new(Vec::new());
    let progress = |step: Step| steps.lock().unwrap().push(step.message);
    // Each opens the store itself, as other processes would.
    let builders = (0..8).map(|_| async {
        let store = ImageStore::open(dir.path().join("store")).await.unwrap();
        store.kernel(&source, &progress).await.unwrap()
    });
    let kernels = futures_join(builders).await;
    assert!(kernels.iter().all(|kernel| kernel == &kernels[0]));
    assert_eq!(kernels[0].release, "6.1.0-test");
    assert!(kernels[0].path.is_file());
    let copied = steps.lock().unwrap().iter().filter(|message| *message == "copying the kernel").count();
    assert_eq!(copied, 1);
    assert!(names_in(&dir.path().join("store/staging")).is_empty());
}

/// Polls all futures together.
async fn futures_join<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in &mut pending {
            if output.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *output = Some(value);
            }
        }
        if pending.iter().all(|(_, output)| output.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    pending.into_iter().filter_map(|(_, output)| output).collect()
}

#[tokio::test]
async fn a_failed_build_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path().join("store")).await.unwrap();
    let file = dir.path().join("not-a-kernel");
    fs::write(&file, "text").unwrap();
    let source = KernelSource::File { vmlinux: file, modules: None };
    let error = store.kernel(&source, &Silent).await.unwrap_err();
    assert!(matches!(error, ImageError::KernelFile(KernelFileError::NotAKernel)), "{error:?}");
    let absent = KernelSource::File { vmlinux: dir.path().join("absent"), modules: None };
    assert!(matches!(store.kernel(&absent, &Silent).await, Err(ImageError::Io { .. })));
    for folder in ["kernels", "staging"] {
        assert!(names_in(&dir.path().join("store").join(folder)).is_empty(), "{folder}");
    }
}

#[tokio::test]
async fn an_initramfs_without_modules_is_made_once_and_mended_when_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path().join("store")).await.unwrap();
    let source = KernelSource::File { vmlinux: kernel_file(dir.path(), "6.12.0"), modules: None };
    let kernel = store.kernel(&source, &Silent).await.unwrap();
    let first = store.initramfs(&kernel, &Silent).await.unwrap();
    let content = fs::read(&first.path).unwrap();
    assert!(content.len() > image::guest_binary().len());

    let second = store.initramfs(&kernel, &Silent).await.unwrap();
    assert_eq!(first, second);
    fs::File::options().write(true).open(&first.path).unwrap().set_len(100).unwrap();
    let mended = store.initramfs(&kernel, &Silent).await.unwrap();
    assert_eq!(mended, first);
    assert_eq!(fs::read(&mended.path).unwrap(), content);
    assert!(names_in(&dir.path().join("store/staging")).is_empty());
}

#[tokio::test]
async fn verify_finds_a_flipped_bit() {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path().join("store")).await.unwrap();
    let modules = dir.path().join("modules");
    fs::create_dir_all(modules.join("kernel")).unwrap();
    fs::write(modules.join("kernel/x.ko"), "module").unwrap();
    let source = KernelSource::File { vmlinux: kernel_file(dir.path(), "6.1.1"), modules: Some(modules) };
    let kernel = store.kernel(&source, &Silent).await.unwrap();
    assert_eq!(store.verify().await.unwrap(), []);

    let entry = kernel.path.parent().unwrap().to_owned();
    let file = fs::File::options().write(true).open(&kernel.path).unwrap();
    file.write_all_at(&[1], 30).unwrap();
    fs::write(entry.join("modules/kernel/x.ko"), "modulf").unwrap();
    let damages = store.verify().await.unwrap();
    let files: Vec<_> = damages.iter().map(|damage| (damage.entry.as_path(), damage.file.as_str())).collect();
    assert_eq!(files, [(entry.as_path(), "vmlinux"), (entry.as_path(), "modules")]);

    fs::write(entry.join("manifest.json"), "{").unwrap();
    assert_eq!(store.verify().await.unwrap()[0].file, "manifest.json");
    let mended = store.kernel(&source, &Silent).await.unwrap();
    assert_eq!(mended, kernel);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn what_a_dead_builder_left_is_swept_and_a_live_one_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    ImageStore::open(&root).await.unwrap();
    for name in ["kernels-dead", "rootfs-live"] {
        fs::create_dir_all(root.join("staging").join(name).join("deep/folder")).unwrap();
    }
    let archives = root.join("staging/kernels-dead/root/var/cache/apt/archives");
    fs::create_dir_all(&archives).unwrap();
    fs::write(archives.join("git_1_amd64.deb"), "package").unwrap();
    let lock = fs::File::create(root.join("locks/rootfs-live")).unwrap();
    lock.lock().unwrap();

    ImageStore::open(&root).await.unwrap();
    assert_eq!(names_in(&root.join("staging")), ["rootfs-live"]);
    assert_eq!(names_in(&root.join("packages")), ["git_1_amd64.deb"]);
    drop(lock);
    ImageStore::open(&root).await.unwrap();
    assert!(names_in(&root.join("staging")).is_empty());
}

#[tokio::test]
async fn another_kernel_is_another_entry() {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path().join("store")).await.unwrap();
    let mut entries = Vec::new();
    for release in ["6.1.0", "6.1.1"] {
        let source = KernelSource::File { vmlinux: kernel_file(dir.path(), release), modules: None };
        entries.push(store.kernel(&source, &Silent).await.unwrap());
    }
    assert_ne!(entries[0].path, entries[1].path);
    assert_ne!(entries[0].digest, entries[1].digest);
}
