//! Pulling from servers that fail, cheat, stall and send elsewhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oci::media_type::OCI_MANIFEST;
use oci::{
    Client, Compression, Credentials, Descriptor, Image, Layout, Login, Naming, Platform, Progress,
    PullError, PullSettings, Pulled, Reference,
};

use crate::files::{config, file, write_archive};
use crate::server::{Asked, Reply, Server};

mod refusing;

const LAYER_BYTES: usize = 3 << 20;

/// An image with one layer that does not compress, as a server would have it.
#[derive(Clone)]
struct Served {
    manifest: Vec<u8>,
    blobs: HashMap<String, Vec<u8>>,
    layer: Descriptor,
}

impl Served {
    fn new() -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(folder.path()).unwrap();
        let noise: String =
            (0..LAYER_BYTES / 8).map(|n| format!("{:08x}", (n as u32).wrapping_mul(2_654_435_761))).collect();
        let entries = [file("noise", &noise)];
        let layer = layout.write_layer(Compression::None, |out| write_archive(&entries, out)).unwrap();
        let named = layout.write_image("x", config(), std::slice::from_ref(&layer)).unwrap();
        let image = Image::load(&layout, &named, &Platform::linux_amd64()).unwrap();
        let read = |blob: &Descriptor| layout.read_blob(blob, 1 << 30).unwrap();
        let blobs =
            [&image.manifest.config, &layer.descriptor].map(|blob| (blob.digest.to_string(), read(blob)));
        Arc::new(Self { manifest: read(&image.descriptor), blobs: blobs.into(), layer: layer.descriptor })
    }

    /// Answers as a good server would.
    fn answer(&self, asked: &Asked) -> Reply {
        if asked.path.contains("/manifests/") {
            return Reply::ok(self.manifest.clone()).with("content-type", OCI_MANIFEST);
        }
        let digest = asked.path.rsplit('/').next().unwrap_or_default();
        self.blobs.get(digest).map_or(Reply::status(404), |blob| Reply::part(asked, blob))
    }

    fn is_layer(&self, asked: &Asked) -> bool {
        asked.path.contains(&self.layer.digest.to_string())
    }
}

fn settings() -> PullSettings {
    PullSettings {
        idle_timeout: Duration::from_millis(400),
        retry_delay: Duration::from_millis(1),
        attempts_max: 3,
        ..PullSettings::default()
    }
}

struct Puller {
    folder: tempfile::TempDir,
    layout: Layout,
    settings: PullSettings,
    credentials: Credentials,
}

impl Puller {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(folder.path()).unwrap();
        Self { folder, layout, settings: settings(), credentials: Credentials::none() }
    }

    async fn pull(&self, host: &str) -> Result<Pulled, PullError> {
        let client = Client::new(self.settings.clone(), self.credentials.clone()).unwrap();
        let name = Reference::parse(&format!("{host}/a/b:1"), &Naming::default()).unwrap();
        client.pull(&name, &self.layout, &|_| ()).await
    }

    /// Names of blobs, and bytes of what is not whole.
    fn kept(&self) -> (usize, u64) {
        let list = |path: &str| std::fs::read_dir(self.folder.path().join(path)).unwrap();
        let bytes = list(".staging").map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        (list("blobs/sha256").count(), bytes)
    }
}

#[tokio::test]
async fn cut_blobs_are_gone_on_with() {
    let served = Served::new();
    let inner = served.clone();
    let server = Server::start(move |asked| {
        let cut = inner.is_layer(asked).then_some(1 << 20);
        Reply { cut, ..inner.answer(asked) }
    })
    .await;
    let puller = Puller::new();
    puller.pull(&server.host).await.unwrap();
    let starts: Vec<usize> =
        server.asked().iter().filter(|asked| served.is_layer(asked)).map(Asked::begins_at).collect();
    assert!(starts.len() >= 3 && starts.is_sorted() && starts[1] > 0, "{starts:?}");
    assert_eq!(puller.kept(), (3, 0));
}

#[tokio::test]
async fn a_server_that_cannot_begin_in_the_middle_begins_anew() {
    let served = Served::new();
    let (inner, count) = (served.clone(), AtomicUsize::new(0));
    let server = Server::start(move |asked| {
        let mut plain = asked.clone();
        plain.headers.remove("range");
        let first = inner.is_layer(asked) && count.fetch_add(1, Ordering::Relaxed) == 0;
        Reply { cut: first.then_some(1 << 20), ..inner.answer(&plain) }
    })
    .await;
    let puller = Puller::new();
    puller.pull(&server.host).await.unwrap();
    assert_eq!(puller.kept(), (3, 0));
}

#[tokio::test]
async fn what_is_not_what_it_should_be_is_not_kept() {
    let served = Served::new();
    for cheat in 0..4 {
        let inner = served.clone();
        let server = Server::start(move |asked| {
            let mut reply = inner.answer(asked);
            match (cheat, inner.is_layer(asked)) {
                (0, true) => reply.body[0] ^= 1,
                (1, true) => reply.body.push(0),
                (2, true) => {
                    reply.body.extend_from_slice(&[0; 100]);
                    reply.unsized_body = true;
                }
                (3, false) if asked.path.contains("/manifests/") => {
                    reply = reply.with("docker-content-digest", inner.layer.digest.to_string());
                }
                _ => {}
            }
            reply
        })
        .await;
        let puller = Puller::new();
        let error = puller.pull(&server.host).await.unwrap_err();
        assert!(matches!(error, PullError::Different { .. }), "{cheat}: {error:?}");
        assert!(!puller.layout.has(&served.layer) && puller.kept().1 == 0, "{cheat}");
        assert_eq!(puller.layout.images().unwrap(), []);
    }
}

#[tokio::test]
async fn wrong_pieces_from_earlier_are_thrown_away() {
    let served = Served::new();
    let inner = served.clone();
    let server = Server::start(move |asked| inner.answer(asked)).await;
    let puller = Puller::new();
    let partial =
        puller.folder.path().join(".staging").join(format!("{}.partial", served.layer.digest.hex()));
    for earlier in [vec![1; 5000], vec![1; LAYER_BYTES * 2], vec![1; served.layer.size as usize]] {
        std::fs::write(&partial, earlier).unwrap();
        puller.pull(&server.host).await.unwrap();
        assert_eq!(puller.kept(), (3, 0));
        let blob = puller.folder.path().join("blobs/sha256").join(served.layer.digest.hex());
        std::fs::remove_file(blob).unwrap();
    }
}

#[tokio::test]
async fn credentials_stay_with_their_server() {
    let served = Served::new();
    let inner = served.clone();
    let other = Server::start(move |asked| inner.answer(asked)).await;
    let (inner, elsewhere) = (served.clone(), other.host.clone());
    let server = Server::start(move |asked| match asked.header("authorization") {
        None => Reply::status(401).with("www-authenticate", "Basic realm=\"x\""),
        Some(_) if asked.path.ends_with("/moved") => {
            inner.answer(&Asked { path: asked.path.replace("/moved", ""), ..asked.clone() })
        }
        Some(_) if inner.is_layer(asked) => {
            Reply::status(307).with("location", format!("http://{elsewhere}{}", asked.path))
        }
        // On the same server they go along.
        Some(_) => Reply::status(302).with("location", format!("{}/moved", asked.path)),
    })
    .await;
    let mut puller = Puller::new();
    puller.credentials.add(&server.host, Login::Password { user: "u".into(), password: "p".into() });
    puller.pull(&server.host).await.unwrap();
    let there = other.asked();
    assert!(
        !there.is_empty() && there.iter().all(|asked| asked.header("authorization").is_none()),
        "{there:?}"
    );
    // And other registries never see them.
    let error = Puller { credentials: puller.credentials.clone(), ..Puller::new() }.pull(&other.host).await;
    assert!(error.is_ok() && other.asked().iter().all(|asked| asked.header("authorization").is_none()));
}

#[tokio::test]
async fn a_dropped_pull_leaves_a_piece_for_the_next() {
    let served = Served::new();
    let (inner, first) = (served.clone(), AtomicUsize::new(0));
    let server = Server::start(move |asked| {
        let stall = (inner.is_layer(asked) && first.fetch_add(1, Ordering::Relaxed) == 0).then_some(2 << 20);
        Reply { stall, ..inner.answer(asked) }
    })
    .await;
    let mut puller = Puller::new();
    puller.settings.idle_timeout = Duration::from_secs(60);
    let client = Client::new(puller.settings.clone(), Credentials::none()).unwrap();
    let name = Reference::parse(&format!("{}/a/b:1", server.host), &Naming::default()).unwrap();
    let (told, mut advanced) = tokio::sync::mpsc::unbounded_channel();
    let report = move |progress| {
        if let Progress::Blob { bytes, .. } = progress
            && bytes > 1 << 20
        {
            let _ = told.send(bytes);
        }
    };
    tokio::select! {
        pulled = client.pull(&name, &puller.layout, &report) => panic!("{pulled:?}"),
        _ = advanced.recv() => {}
    }
    // The last piece may still have been on its way to the disk.
    assert!(puller.kept().1 > 1 << 19);
    puller.pull(&server.host).await.unwrap();
    assert_eq!(puller.kept(), (3, 0));
    let last = server.asked().into_iter().rfind(|asked| served.is_layer(asked)).unwrap();
    assert!(last.begins_at() > 1 << 19, "{last:?}");
}
