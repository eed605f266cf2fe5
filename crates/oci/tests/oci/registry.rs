//! Pulling from a real registry: open, behind a password, behind tokens, and over TLS.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use oci::media_type::{DOCKER_CONFIG, DOCKER_INDEX, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
use oci::{
    Client, Credentials, Digest, Image, ImageError, Layout, Login, Naming, PlainHttp, Platform, Policy,
    Progress, PullError, PullSettings, Reference, RegistryHost, ShortNames,
};
use serde_json::{Value, json};

use crate::debian::{Door, Keys, Registry};
use crate::files::{IMAGE_NAMES, image, names};
use crate::server::{Reply, Server};

struct Place {
    folder: tempfile::TempDir,
    layout: Layout,
    image: Image,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(&folder.path().join("made")).unwrap();
        let named = image(&layout, "made");
        let image = Image::load(&layout, &named, &Platform::linux_amd64()).unwrap();
        Self { folder, layout, image }
    }

    /// An empty layout.
    fn empty(&self, name: &str) -> Layout {
        Layout::open(&self.folder.path().join(name)).unwrap()
    }

    /// A registry that has the image, filled while its door was open.
    async fn registry(&self, door: &Door<'_>) -> Option<Registry> {
        let open = Registry::start(self.folder.path(), &Door::Open)?;
        open.push("team/app", "1", &self.layout, &self.image).await;
        if matches!(door, Door::Open) {
            return Some(open);
        }
        drop(open);
        Registry::start(self.folder.path(), door)
    }
}

fn name(registry: &Registry, rest: &str) -> Reference {
    Reference::parse(&format!("{}/{rest}", registry.host), &Naming::default()).unwrap()
}

fn client(settings: PullSettings, credentials: Credentials) -> Client {
    Client::new(settings, credentials).unwrap()
}

fn login(host: &str, password: &str) -> Credentials {
    let auth = STANDARD.encode(format!("tester:{password}"));
    let file = json!({"auths": {host: {"auth": auth}}}).to_string();
    Credentials::from_docker_config(file.as_bytes()).unwrap()
}

#[track_caller]
fn check(layout: &Layout, image: &Image) {
    let root = tempfile::tempdir().unwrap();
    image.unpack(layout, root.path(), Policy::default()).unwrap();
    assert_eq!(names(root.path()), IMAGE_NAMES);
}

#[tokio::test]
async fn images_come_by_tag_by_digest_and_only_once() {
    let place = Place::new();
    let Some(registry) = place.registry(&Door::Open).await else { return };
    let client = client(PullSettings::default(), Credentials::none());
    let layout = place.empty("pulled");
    let seen = Mutex::new(Vec::new());
    let report = |progress| seen.lock().unwrap().push(progress);
    let by_tag = name(&registry, "team/app:1");
    let pulled = client.pull(&by_tag, &layout, &report).await.unwrap();
    assert_eq!((pulled.found, pulled.image.descriptor.digest), (place.image.descriptor.digest, pulled.found));
    assert_eq!(client.resolve(&by_tag).await.unwrap(), pulled.found);
    check(&layout, &pulled.image);
    let done = |wanted: fn(&Progress) -> bool| seen.lock().unwrap().drain(..).filter(wanted).count();
    assert_eq!(done(|progress| matches!(progress, Progress::BlobDone { .. })), 3);
    let by_digest = name(&registry, &format!("team/app@{}", pulled.found));
    client.pull(&by_digest, &layout, &report).await.unwrap();
    assert_eq!(done(|progress| matches!(progress, Progress::BlobThere { .. })), 3);
    // What was pulled has its full name, and survives a sweep.
    layout.sweep().unwrap();
    let found = layout.find(&by_tag.to_string()).unwrap().unwrap();
    check(&layout, &Image::load(&layout, &found, &Platform::linux_amd64()).unwrap());
    for wrong in ["team/app:2", "team/none:1", &format!("team/app@{}", Digest::of(b"none"))] {
        let error = client.pull(&name(&registry, wrong), &layout, &report).await.unwrap_err();
        assert!(matches!(error, PullError::NotFound { .. }), "{wrong}: {error:?}");
    }
}

#[tokio::test]
async fn a_registry_may_live_elsewhere_than_its_name_says() {
    let place = Place::new();
    let Some(registry) = place.registry(&Door::Password).await else { return };
    let named = RegistryHost::parse("hub.example").unwrap();
    let endpoint = RegistryHost::parse(&registry.host).unwrap();
    let endpoints = [(named.clone(), endpoint)].into();
    let short_names = Some(ShortNames { registry: named, namespace: Some("team".into()) });
    let naming = Naming { short_names, ..Naming::default() };
    let client =
        client(PullSettings { endpoints, ..PullSettings::default() }, login("hub.example", "pass:word"));
    let layout = place.empty("pulled");
    let pulled = client.pull(&Reference::parse("app:1", &naming).unwrap(), &layout, &|_| ()).await.unwrap();
    check(&layout, &pulled.image);
    assert!(layout.find("hub.example/team/app:1").unwrap().is_some());
}

#[tokio::test]
async fn half_a_blob_is_gone_on_with_by_the_real_thing() {
    let place = Place::new();
    let Some(registry) = place.registry(&Door::Open).await else { return };
    let layout = place.empty("pulled");
    let layer = &place.image.manifest.layers[0];
    let whole = place.layout.read_blob(layer, 1 << 30).unwrap();
    let partial = layout.root().join(".staging").join(format!("{}.partial", layer.digest.hex()));
    std::fs::write(&partial, &whole[..whole.len() / 2]).unwrap();
    let client = client(PullSettings::default(), Credentials::none());
    let pulled = client.pull(&name(&registry, "team/app:1"), &layout, &|_| ()).await.unwrap();
    check(&layout, &pulled.image);
}

#[tokio::test]
async fn pulls_at_once_share_a_layout() {
    let place = Place::new();
    let Some(registry) = place.registry(&Door::Open).await else { return };
    let layout = place.empty("pulled");
    let done = Arc::new(Mutex::new(0));
    let mut pulls = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (layout, done, name) = (layout.clone(), done.clone(), name(&registry, "team/app:1"));
        pulls.spawn(async move {
            let client = client(PullSettings::default(), Credentials::none());
            let report = |progress| {
                if matches!(progress, Progress::BlobDone { .. }) {
                    *done.lock().unwrap() += 1;
                }
            };
            client.pull(&name, &layout, &report).await.unwrap().image
        });
    }
    while let Some(image) = pulls.join_next().await {
        check(&layout, &image.unwrap());
    }
    assert_eq!(*done.lock().unwrap(), 3, "each blob is fetched once");
}

#[tokio::test]
async fn the_right_machine_is_taken_from_an_index() {
    let place = Place::new();
    let Some(registry) = place.registry(&Door::Open).await else { return };
    let client = client(PullSettings::default(), Credentials::none());
    // The same image as Docker writes it, and one for another machine.
    let mut manifest: Value = serde_json::to_value(&place.image.manifest).unwrap();
    manifest["mediaType"] = json!(DOCKER_MANIFEST);
    manifest["config"]["mediaType"] = json!(DOCKER_CONFIG);
    let docker = manifest.to_string();
    registry.push_manifest("team/app", "docker", DOCKER_MANIFEST, docker.as_bytes()).await;
    let mut other = place.image.config.clone();
    other.architecture = "arm64".into();
    let layers = place.image.manifest.layers.iter().zip(&place.image.config.rootfs.diff_ids);
    let layers: Vec<_> =
        layers.map(|(layer, id)| oci::Layer { descriptor: layer.clone(), diff_id: *id }).collect();
    let other = place.layout.write_image("other", other, &layers).unwrap();
    let other = {
        let machine = Platform { architecture: "arm64".into(), ..Platform::linux_amd64() };
        Image::load(&place.layout, &other, &machine).unwrap()
    };
    registry.push("team/app", "arm", &place.layout, &other).await;
    let entry = |kind: &str, content: &[u8], architecture: &str| {
        json!({"mediaType": kind, "digest": Digest::of(content), "size": content.len(),
            "platform": {"os": "linux", "architecture": architecture}})
    };
    let arm = place.layout.read_blob(&other.descriptor, 1 << 20).unwrap();
    let own = place.layout.read_blob(&place.image.descriptor, 1 << 20).unwrap();
    for (kind, ours, content) in
        [(OCI_INDEX, OCI_MANIFEST, own.as_slice()), (DOCKER_INDEX, DOCKER_MANIFEST, docker.as_bytes())]
    {
        let index = json!({"schemaVersion": 2, "mediaType": kind,
            "manifests": [entry(OCI_MANIFEST, &arm, "arm64"), entry(ours, content, "amd64")]});
        registry.push_manifest("team/app", "all", kind, index.to_string().as_bytes()).await;
        let layout = place.empty(&Digest::of(kind.as_bytes()).hex());
        let pulled = client.pull(&name(&registry, "team/app:all"), &layout, &|_| ()).await.unwrap();
        assert_eq!(pulled.found, Digest::of(index.to_string().as_bytes()));
        assert_eq!(pulled.image.descriptor.digest, Digest::of(content));
        check(&layout, &pulled.image);
    }
    let error =
        client.pull(&name(&registry, "team/app:arm"), &place.empty("arm"), &|_| ()).await.unwrap_err();
    assert!(matches!(error, PullError::Image(ImageError::OtherPlatform { .. })), "{error:?}");
}

#[tokio::test]
async fn a_password_opens_the_door() {
    let place = Place::new();
    let Some(registry) = place.registry(&Door::Password).await else { return };
    let layout = place.empty("pulled");
    for (credentials, fine) in [
        (Credentials::none(), false),
        (login(&registry.host, "wrong"), false),
        (login("elsewhere.example", "pass:word"), false),
        (login(&registry.host, "pass:word"), true),
    ] {
        let pulled = client(PullSettings::default(), credentials)
            .pull(&name(&registry, "team/app:1"), &layout, &|_| ())
            .await;
        match (pulled, fine) {
            (Ok(pulled), true) => check(&layout, &pulled.image),
            (Err(PullError::Denied { .. }), false) => {}
            (other, _) => panic!("{other:?}"),
        }
    }
}

/// A token as the registry wants it: signed by a key whose certificate it trusts.
fn token(keys: &Keys, scope: &str) -> String {
    let mut parts = scope.split(':').skip(1);
    let (repository, actions) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let head = json!({"typ": "JWT", "alg": "RS256", "x5c": [STANDARD.encode(keys.read("leaf.der"))]});
    let claims = json!({"iss": "tester", "sub": "tester", "aud": "test", "exp": now + 300, "nbf": now - 10, "iat": now,
        "jti": "1", "access": [{"type": "repository", "name": repository, "actions": actions.split(',').collect::<Vec<_>>()}]});
    let text = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(keys.sign(text.as_bytes())))
}

#[tokio::test]
async fn a_token_opens_the_door() {
    let place = Place::new();
    let keys = Arc::new(Keys::new(place.folder.path()));
    let right = format!("Basic {}", STANDARD.encode("tester:pass:word"));
    let (signing, expected) = (keys.clone(), right.clone());
    let server = Server::start(move |asked| {
        let query = asked.path.split_once('?').map_or("", |(_, query)| query);
        let scope = query.split('&').find_map(|pair| pair.strip_prefix("scope=")).unwrap_or_default();
        let scope = scope.replace("%3A", ":").replace("%2F", "/").replace("%2C", ",");
        match asked.header("authorization") {
            Some(given) if given == expected => {
                Reply::ok(json!({"token": token(&signing, &scope)}).to_string())
            }
            _ => Reply { body: br#"{"errors":[{"message":"who are you?"}]}"#.to_vec(), ..Reply::status(401) },
        }
    })
    .await;
    let realm = format!("http://{}/token", server.host);
    let Some(registry) = place.registry(&Door::Token { realm: &realm, keys: &keys }).await else { return };
    let layout = place.empty("pulled");
    let wanted = name(&registry, "team/app:1");
    let error = client(PullSettings::default(), Credentials::none())
        .pull(&wanted, &layout, &|_| ())
        .await
        .unwrap_err();
    assert!(matches!(&error, PullError::Denied { message, .. } if message == "who are you?"), "{error:?}");
    let mut credentials = Credentials::none();
    credentials.add(&registry.host, Login::Password { user: "tester".into(), password: "pass:word".into() });
    let pulled = client(PullSettings::default(), credentials).pull(&wanted, &layout, &|_| ()).await.unwrap();
    check(&layout, &pulled.image);
    // One token was enough for everything.
    assert_eq!(
        server.asked().iter().filter(|asked| asked.header("authorization") == Some(right.as_str())).count(),
        1
    );
}

#[tokio::test]
async fn tls_needs_a_certificate_that_is_trusted() {
    let place = Place::new();
    let keys = Keys::new(place.folder.path());
    let Some(registry) = place.registry(&Door::Tls { keys: &keys }).await else { return };
    let layout = place.empty("pulled");
    let wanted = name(&registry, "team/app:1");
    let settings = PullSettings { plain_http: PlainHttp::Never, attempts_max: 1, ..PullSettings::default() };
    let error =
        client(settings.clone(), Credentials::none()).pull(&wanted, &layout, &|_| ()).await.unwrap_err();
    assert!(matches!(error, PullError::Unreachable { .. }), "{error:?}");
    let settings = PullSettings { certificates: vec![keys.read("ca.der")], ..settings };
    let pulled = client(settings, Credentials::none()).pull(&wanted, &layout, &|_| ()).await.unwrap();
    check(&layout, &pulled.image);
}
