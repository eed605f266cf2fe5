//! What clients see of answers.

use axum::http::Response;

use super::*;
use crate::forward::ProxyRoute;

fn signed() -> Destination {
    Destination {
        port: 8000,
        passage: ProxyRoute::Signed { prefix: "/v1/p/to.ken".to_owned(), limited: false },
    }
}

fn hosted() -> Destination {
    Destination { port: 8000, passage: ProxyRoute::Host }
}

fn check(destination: &Destination, name: &str, value: &str, expected: Option<&str>) {
    let response = Response::builder().version(Version::HTTP_10).header(name, value).body(()).unwrap();
    let (mut head, ()) = response.into_parts();
    change(destination, &mut head, Kind::Whole);
    assert_eq!(head.headers.get(name).map(|value| value.to_str().unwrap()), expected, "{name}: {value}");
    assert_eq!(head.version, Version::HTTP_11);
}

#[test]
fn redirects_lead_below_the_path() {
    for (given, expected) in [
        ("/a/?b", "/v1/p/to.ken/a/?b"),
        ("http://localhost:8000", "/v1/p/to.ken/"),
        ("http://localhost:8000?a", "/v1/p/to.ken/?a"),
        ("http://localhost:8000/a", "/v1/p/to.ken/a"),
        ("http://localhost:80001/a", "http://localhost:80001/a"),
        ("//elsewhere.test/", "//elsewhere.test/"),
        ("https://elsewhere.test/", "https://elsewhere.test/"),
        ("relative", "relative"),
    ] {
        check(&signed(), "location", given, Some(expected));
        check(&hosted(), "location", given, Some(given));
    }
}

#[test]
fn cookies_stay_with_their_guest() {
    check(&hosted(), "set-cookie", "a=b; Domain=localhost; Path=/; Secure", Some("a=b; Path=/; Secure"));
    check(&signed(), "set-cookie", "a=b; path=/x; domain=.test", Some("a=b; Path=/v1/p/to.ken/x"));
    check(&signed(), "set-cookie", "a=b;HttpOnly", Some("a=b; HttpOnly"));
    check(&signed(), "set-cookie", "path=/; domain", Some("path=/"));
}

#[test]
fn a_guest_speaks_for_no_host_but_its_own() {
    for name in OF_THE_HOST {
        check(&signed(), name, "x", None);
        check(&hosted(), name, "x", Some("x"));
    }
    for destination in [signed(), hosted()] {
        for name in ["alt-svc", "connection", "keep-alive", "upgrade", "transfer-encoding", "trailer"] {
            check(&destination, name, "x", None);
        }
        check(&destination, "access-control-allow-origin", "https://a.test", Some("https://a.test"));
    }
}
