//! Servers that refuse, fail, stall or have too much, and token servers where none should be.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oci::media_type::OCI_INDEX;
use oci::{Login, PullError, PullLimit};

use super::{Puller, Served};
use crate::server::{Reply, Server};

#[tokio::test]
async fn redirects_end_and_tokens_come_from_safe_places() {
    let around = Server::start(|asked| Reply::status(302).with("location", asked.path.clone())).await;
    let error = Puller::new().pull(&around.host).await.unwrap_err();
    assert!(matches!(error, PullError::Protocol { .. }), "{error:?}");
    assert!(around.asked().len() <= 6);
    for (realm, what) in [("http://token.example/x", "plain"), ("nonsense", "none")] {
        let challenge = format!("Bearer realm=\"{realm}\"");
        let server =
            Server::start(move |_| Reply::status(401).with("www-authenticate", challenge.clone())).await;
        let error = Puller::new().pull(&server.host).await.unwrap_err();
        assert!(
            matches!(error, PullError::Redirect { .. } | PullError::Protocol { .. }),
            "{what}: {error:?}"
        );
    }
}

#[tokio::test]
async fn identity_tokens_are_exchanged() {
    let served = Served::new();
    let token = Server::start(|asked| match asked.body.contains("refresh_token=it%2Fs") {
        true => Reply::ok(r#"{"access_token": "good"}"#),
        false => Reply::status(401),
    })
    .await;
    let (inner, realm) = (served.clone(), format!("http://{}/token", token.host));
    let server = Server::start(move |asked| match asked.header("authorization") {
        Some("Bearer good") => inner.answer(asked),
        _ => Reply::status(401).with("www-authenticate", format!("Bearer realm=\"{realm}\",service=\"s\"")),
    })
    .await;
    let mut puller = Puller::new();
    assert!(matches!(puller.pull(&server.host).await, Err(PullError::Denied { .. })));
    puller.credentials.add(&server.host, Login::IdentityToken("it/s".into()));
    puller.pull(&server.host).await.unwrap();
    assert!(token.asked().last().unwrap().body.contains("scope=repository%3Aa%2Fb%3Apull&service=s"));
}

#[tokio::test]
async fn failures_that_pass_are_tried_again_and_others_are_not() {
    let served = Served::new();
    for (status, count, requests) in [(503, 2, 3), (429, 1, 2), (500, 99, 3), (403, 99, 1), (418, 99, 1)] {
        let (inner, left) = (served.clone(), AtomicUsize::new(count));
        let server = Server::start(move |asked| {
            let failing =
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
            if failing { Reply::status(status) } else { inner.answer(asked) }
        })
        .await;
        let pulled = Puller::new().pull(&server.host).await;
        assert_eq!(pulled.is_ok(), count < 3, "{status}: {pulled:?}");
        let manifests = server.asked().iter().filter(|asked| asked.path.contains("/manifests/")).count();
        assert_eq!(manifests, requests, "{status}");
    }
    // Nobody there at all.
    let gone = Server::start(|_| Reply::status(500)).await.host.clone();
    assert!(matches!(
        Puller::new().pull(&gone).await,
        Err(PullError::Unreachable { .. } | PullError::Status { .. })
    ));
}

#[tokio::test]
async fn slow_servers_are_given_up() {
    let served = Served::new();
    for stalls_at in [None, Some(1000)] {
        let inner = served.clone();
        let server = Server::start(move |asked| match stalls_at {
            None => Reply { unsized_body: true, stall: Some(0), ..Reply::ok("x") },
            Some(at) => Reply { stall: inner.is_layer(asked).then_some(at), ..inner.answer(asked) },
        })
        .await;
        let error = Puller::new().pull(&server.host).await.unwrap_err();
        assert!(matches!(error, PullError::Slow { .. }), "{stalls_at:?}: {error:?}");
    }
    // A server that always sends a little runs into the end of the whole.
    let inner = served.clone();
    let server =
        Server::start(move |asked| Reply { cut: inner.is_layer(asked).then_some(1), ..inner.answer(asked) })
            .await;
    let mut puller = Puller::new();
    (puller.settings.attempts_max, puller.settings.pull_timeout) = (u32::MAX, Duration::from_millis(500));
    assert!(matches!(puller.pull(&server.host).await, Err(PullError::TimedOut)));
}

#[tokio::test]
async fn too_much_is_refused_before_it_is_fetched() {
    let served = Served::new();
    let inner = served.clone();
    let server = Server::start(move |asked| inner.answer(asked)).await;
    let mut puller = Puller::new();
    puller.settings.image_bytes_max = 1 << 20;
    let error = puller.pull(&server.host).await.unwrap_err();
    assert!(matches!(error, PullError::Limit(PullLimit::Image { .. })), "{error:?}");
    assert_eq!(server.asked().len(), 1);
    let large = Server::start(|_| Reply { unsized_body: true, ..Reply::ok(vec![b' '; 5 << 20]) }).await;
    let error = Puller::new().pull(&large.host).await.unwrap_err();
    assert!(matches!(error, PullError::Limit(PullLimit::Small { .. })), "{error:?}");
    // An index that leads to itself by a digest cannot be made; one by another name is not followed: digests are checked.
    let index = serde_json::json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [
        {"mediaType": OCI_INDEX, "digest": served.layer.digest, "size": 1, "platform": {"os": "linux", "architecture": "amd64"}}]});
    let looping = Server::start(move |_| Reply::ok(index.to_string()).with("content-type", OCI_INDEX)).await;
    let error = Puller::new().pull(&looping.host).await.unwrap_err();
    assert!(matches!(error, PullError::Different { .. }), "{error:?}");
}
