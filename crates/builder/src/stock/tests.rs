//! Images and tarballs become disks once, and go when nobody needs them.

use std::process::Command;

use image::Authorities;
use oci::tar::{Entry, Kind, Writer};
use oci::{Compression, Descriptor, ImageConfig, Platform, RunConfig};
use tokio_util::sync::CancellationToken;

use super::unpack::Making;
use super::*;
use crate::log::Journal;

fn quiet(_: &str) {}

struct Room {
    directory: tempfile::TempDir,
    stock: Stock,
    authorities: Authorities,
    cancelled: CancellationToken,
    journal: Journal<'static>,
}

impl Room {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = BuilderSettings { layers_bytes_max: 0, ..BuilderSettings::default() };
        let stock = Stock::open(directory.path().join("builds"), settings).unwrap();
        let authorities = Authorities::none();
        Self {
            directory,
            stock,
            authorities,
            cancelled: CancellationToken::new(),
            journal: Journal::new(&quiet),
        }
    }

    fn making(&self) -> Making<'_> {
        let size = DiskSize::from_bytes(256 << 20).unwrap();
        Making {
            owner: "somebody",
            size,
            authorities: &self.authorities,
            journal: &self.journal,
            cancelled: &self.cancelled,
        }
    }

    fn image(&self, layout: &Layout) -> Descriptor {
        let layer = layout.write_layer(Compression::Gzip, |out| {
            let mut writer = Writer::new(out);
            let mut entry = Entry::new(Kind::File, b"usr/bin/tool", 0o755);
            entry.size = 4;
            writer.add_file(&entry, &b"tool"[..])?;
            writer.finish().map(drop)
        });
        let config = RunConfig { env: vec!["A=b".into()], ..RunConfig::default() };
        let config = ImageConfig {
            architecture: "amd64".into(),
            os: "linux".into(),
            config,
            ..ImageConfig::default()
        };
        layout.write_image("test", config, &[layer.unwrap()]).unwrap()
    }
}

fn inspect(disk: &Path, question: &str) -> String {
    let output = Command::new("/sbin/debugfs").args(["-R", question]).arg(disk).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn an_image_in_a_file_becomes_a_disk_once() {
    let room = Room::new();
    let layout = Layout::open(&room.directory.path().join("layout")).unwrap();
    let descriptor = room.image(&layout);
    let archive = room.directory.path().join("image.tar");
    let image = oci::Image::load(&layout, &descriptor, &Platform::linux_amd64()).unwrap();
    layout.write_archive(&image, None, std::fs::File::create(&archive).unwrap()).unwrap();
    let mut disks = Vec::new();
    for path in [layout.root(), &archive] {
        let image = room.stock.import(path, &room.cancelled).await.unwrap();
        assert_eq!(image.config.platform(), Platform::linux_amd64());
        let layer = room.stock.image_disk(&image, room.making()).await.unwrap();
        assert_eq!(inspect(&layer.disk(), "cat /usr/bin/tool"), "tool");
        assert!(inspect(&layer.disk(), "stat /proc").contains("Type: directory"));
        disks.push(layer);
    }
    assert_eq!(disks[0].disk(), disks[1].disk());
    assert_eq!(room.stock.collect().await.unwrap().layers, 0);
    disks.clear();
    let collected = room.stock.collect().await.unwrap();
    assert_eq!((collected.layers, collected.kept_bytes), (1, 0));
    let blobs = std::fs::read_dir(room.stock.layout.root().join("blobs/sha256")).unwrap().count();
    assert_eq!(blobs, 0);
    assert_eq!(std::fs::read_dir(room.stock.directory().join("layers")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_tarball_becomes_a_disk_once() {
    let room = Room::new();
    let path = room.directory.path().join("rootfs.tar");
    let mut writer = Writer::new(std::fs::File::create(&path).unwrap());
    writer.add(&Entry::new(Kind::Directory, b"srv", 0o750)).unwrap();
    writer.add(&Entry::new(Kind::CharDevice, b"dev/null", 0o666)).unwrap();
    writer.finish().unwrap();
    let first = room.stock.tarball_disk(&path, room.making()).await.unwrap();
    assert!(inspect(&first.disk(), "stat /srv").contains("Mode:  0750"));
    let again = room.stock.tarball_disk(&path, room.making()).await.unwrap();
    assert_eq!(first.disk(), again.disk());
    let scratch = room.stock.scratch_disk(room.making()).await.unwrap();
    assert!(inspect(&scratch.disk(), "stat /etc/machine-id").contains("Size: 0"));
}

#[tokio::test]
async fn errors_name_what_is_wrong_and_no_path_of_the_host() {
    let room = Room::new();
    let path = room.directory.path().join("file");
    std::fs::write(
        &path,
        "this is neither an image nor a root file system, however long it may be".repeat(20),
    )
    .unwrap();
    let empty = room.directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for error in [
        room.stock.import(&path, &room.cancelled).await.unwrap_err(),
        room.stock.import(&empty, &room.cancelled).await.unwrap_err(),
        room.stock.tarball_disk(&path, room.making()).await.map(drop).unwrap_err(),
        room.stock.tarball_disk(&empty, room.making()).await.map(drop).unwrap_err(),
        room.stock.pull("no-registry/image", &room.journal).await.unwrap_err(),
        room.stock.pull("127.0.0.1:1/image", &room.journal).await.unwrap_err(),
    ] {
        assert!(error.is_users_fault(), "{error:?}");
        assert!(!error.to_string().contains("/tmp"), "{error}");
    }
    room.cancelled.cancel();
    let tarball = room.stock.tarball_disk(&path, room.making()).await.map(drop);
    assert!(matches!(tarball, Err(BuildError::Cancelled)), "{tarball:?}");
}
