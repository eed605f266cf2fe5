//! What guests see of requests.

use axum::http::Request;

use super::*;

const KEY: &str = "pds_0123456789abcdef";

fn keyed() -> Destination {
    let prefix = "/v1/sandboxes/abc/proxy/8000".to_owned();
    Destination { port: 8000, passage: ProxyRoute::Keyed { prefix } }
}

fn signed() -> Destination {
    Destination {
        port: 8000,
        passage: ProxyRoute::Signed { prefix: "/v1/p/to.ken".to_owned(), limited: true },
    }
}

fn hosted() -> Destination {
    Destination { port: 8000, passage: ProxyRoute::Host }
}

fn check_target(destination: &Destination, given: &str, expected: &str) {
    let target = target(destination, &given.parse().unwrap()).unwrap();
    assert_eq!(target.to_string(), expected, "{given}");
}

fn seen(destination: &Destination, given: &[(&str, &str)]) -> HeaderMap {
    let mut request = Request::builder().uri("/");
    for (name, value) in given {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let proxy = Proxy { peer: Some(IpAddr::from([192, 0, 2, 7])), scheme: "https", protocol: None };
    headers(destination, &parts, &proxy)
}

fn check_header(destination: &Destination, name: &str, value: &str, expected: Option<&str>) {
    let seen = seen(destination, &[("host", "api.test:80"), (name, value)]);
    assert_eq!(seen.get(name).map(|value| value.to_str().unwrap()), expected, "{name}: {value}");
}

#[test]
fn prefixes_and_keys_are_cut_from_addresses() {
    let of = |rest: &str| format!("/v1/sandboxes/abc/proxy/8000{rest}");
    check_target(&keyed(), &of(""), "/");
    check_target(&keyed(), &of("/"), "/");
    check_target(&keyed(), &of("//a/%2F/..?b=%20&c"), "//a/%2F/..?b=%20&c");
    check_target(&keyed(), &of(&format!("/a?x=1&access_token={KEY}&y=2")), "/a?x=1&y=2");
    check_target(&keyed(), &of("/?access_token=other"), "/");
    check_target(&signed(), "/v1/p/to.ken/a?b", "/a?b");
    check_target(&hosted(), &format!("/v1/p/x?access_token={KEY}"), "/v1/p/x");
    check_target(&hosted(), "/?access_token=own&a=b", "/?access_token=own&a=b");
    check_target(&hosted(), "http://8000-abc.localhost/x", "/x");
}

#[test]
fn nothing_of_the_platform_reaches_a_guest() {
    for destination in [keyed(), signed(), hosted()] {
        for name in [
            "x-request-id",
            "x-pandastack-org",
            "x-pandastack-anything",
            "x-stub-user",
            "x-fcs-workspace",
            "x-forwarded-port",
            "x-forwarded-prefix",
            "forwarded",
            "x-real-ip",
            "te",
            "keep-alive",
            "proxy-connection",
            "proxy-authorization",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "expect",
        ] {
            check_header(&destination, name, "x", None);
        }
        check_header(&destination, "authorization", &format!("Bearer {KEY}"), None);
        check_header(&destination, "x-forwarded-for", "1.2.3.4", Some("192.0.2.7"));
        check_header(&destination, "x-forwarded-proto", "gopher", Some("https"));
        check_header(&destination, "x-forwarded-host", "evil.test", Some("api.test:80"));
        check_header(&destination, "connection", "keep-alive", Some("close"));
        check_header(&destination, "cookie", "session=own", Some("session=own"));
        check_header(&destination, "x-other", "kept", Some("kept"));
        let named = seen(&destination, &[("connection", "x-one, close"), ("x-one", "1"), ("x-two", "2")]);
        assert!(!named.contains_key("x-one") && named.contains_key("x-two"));
        let both = seen(&destination, &[("transfer-encoding", "chunked"), ("content-length", "5")]);
        assert!(!both.contains_key("content-length"));
    }
    check_header(&keyed(), "authorization", "Bearer own", None);
    check_header(&hosted(), "authorization", "Bearer own", Some("Bearer own"));
    check_header(&keyed(), "host", "api.test:80", Some("localhost:8000"));
    check_header(&hosted(), "host", "api.test:80", Some("api.test:80"));
}

#[test]
fn pages_and_origins_tell_no_secrets() {
    let page = "http://api.test:80/v1/p/to.ken/a?b";
    check_header(&signed(), "referer", page, Some("http://localhost:8000/a?b"));
    check_header(&signed(), "referer", "http://api.test:80/v1/p/other/a", None);
    check_header(&signed(), "referer", "http://elsewhere.test/v1/p/to.ken/", None);
    check_header(&hosted(), "referer", page, None);
    check_header(&hosted(), "referer", "http://a.test/?access_token=pds_1", None);
    check_header(&hosted(), "referer", "http://a.test/b", Some("http://a.test/b"));
    let of_proxy = "http://api.test:80/v1/sandboxes/abc/proxy/8000/x?access_token=pds_1";
    check_header(&keyed(), "referer", of_proxy, Some("http://localhost:8000/x"));
    check_header(&signed(), "origin", "http://api.test:80", Some("http://localhost:8000"));
    check_header(&signed(), "origin", "http://evil.test", Some("http://evil.test"));
    check_header(&hosted(), "origin", "http://api.test:80", Some("http://api.test:80"));
}

#[test]
fn limited_links_change_to_websockets_only() {
    let wanted = |destination: &Destination, protocol: &str| {
        let request =
            Request::builder().header("connection", "keep-alive, Upgrade").header("upgrade", protocol);
        destination.protocol_wanted(&request.body(axum::body::Body::empty()).unwrap()).is_some()
    };
    assert!(wanted(&signed(), "WebSocket"));
    assert!(!wanted(&signed(), "h2c"));
    assert!(wanted(&hosted(), "anything"));
    let silent = Request::builder().header("upgrade", "websocket").body(axum::body::Body::empty()).unwrap();
    assert!(hosted().protocol_wanted(&silent).is_none());
}
