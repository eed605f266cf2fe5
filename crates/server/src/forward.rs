//! Passes a request on to a program in a guest, and its answer back, without holding either.
//!
//! ```text
//! client ─► head as the guest may see it ─► hyper over the guest link ─► head as the client may see it ─► client
//! ```
//!
//! One connection into the guest for each request. Everything belongs to the answer's body: a client that goes away drops it, and
//! with it the connection and the sandbox's being in use. What the guest sends is hostile: its head is bounded in size and time,
//! and nothing it says concerns more than its own answer.

mod answer_head;
mod destination;
mod guest_body;
mod request_head;
mod upgrade;
mod upload;

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use control::{Control, ControlError, InUse, Kind};
use guest_link::client::Connection;
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

pub(crate) use self::destination::{Destination, ProxyRoute};
use self::guest_body::GuestBody;
pub(crate) use self::request_head::{SIGNED_PREFIX, authority};
use self::upload::Upload;
use crate::arrival::ClientConnection;

/// Largest head of an answer; a guest that sends more is answered for with 502.
const HEAD_BYTES_MAX: usize = 128 * 1024;
/// Most headers of an answer.
const HEADERS_MAX: usize = 256;
/// How long a guest may take to begin its answer, unless the server was told otherwise.
pub(crate) const GUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// What answers that are under way get when the server stops.
const CLOSING_GRACE: Duration = Duration::from_secs(10);

/// Why a request cannot be passed on at all; asked before a sandbox is woken for it.
pub(crate) fn check(request: &Request) -> Result<(), ControlError> {
    if request.method() == Method::CONNECT {
        return Err(ControlError::new(Kind::Method, "CONNECT is not passed on to sandboxes"));
    }
    Ok(())
}

/// Passes a request on over a connection into the guest.
pub(crate) async fn forward(
    control: &Control,
    destination: &Destination,
    (sandbox, connection): (InUse, Connection),
    mut request: Request,
) -> Result<Response, ControlError> {
    let arrival = ClientConnection::of(request.extensions());
    let protocol = destination.protocol_wanted(&request);
    let client = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let (upload, progress) = Upload::new(body);
    let mut passed = Request::new(upload);
    *passed.method_mut() = parts.method.clone();
    *passed.uri_mut() = request_head::target(destination, &parts.uri)?;
    let proxy = request_head::Proxy {
        peer: arrival.as_ref().map(|arrival| arrival.peer),
        scheme: scheme(control),
        protocol,
    };
    *passed.headers_mut() = request_head::headers(destination, &parts, &proxy);

    let mut builder = Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let (mut sender, link) = builder.handshake(TokioIo::new(connection)).await.map_err(told)?;
    let closing = control.closing().clone();
    let watched = arrival.clone();
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        let cut = async {
            closing.cancelled().await;
            tokio::time::sleep(CLOSING_GRACE).await;
        };
        let gone = async {
            match watched {
                Some(arrival) => arrival.gone().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // How it ended is also told to whoever waits for the answer or reads its body.
            _ = link.with_upgrades() => {}
            () = cut => {}
            () = gone => {}
        }
    });

    let patience = arrival.as_ref().map_or(GUEST_TIMEOUT, |arrival| arrival.guest_patience);
    let answer = progress.watch(patience, sender.send_request(passed)).await;
    let Some(answer) = answer else {
        let message = format!("upstream: the program in the sandbox did not answer within {patience:?}");
        return Err(ControlError::new(Kind::Timeout, message));
    };
    let mut answer = answer.map_err(told)?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else {
            let message = "upstream: the program in the sandbox changed to a protocol nobody asked for";
            return Err(ControlError::new(Kind::Upstream, message));
        };
        let guest = hyper::upgrade::on(&mut answer);
        let place = arrival.map(|arrival| arrival.place);
        control.attend(async move {
            upgrade::carry(client, guest).await;
            drop((driver, sandbox, place));
        });
        let (mut head, _) = answer.into_parts();
        answer_head::change(destination, &mut head, answer_head::Kind::Upgraded);
        return Ok(Response::from_parts(head, Body::empty()));
    }
    let (mut head, body) = answer.into_parts();
    answer_head::change(destination, &mut head, answer_head::Kind::Whole);
    Ok(Response::from_parts(head, Body::new(GuestBody::new(body, driver, sandbox))))
}

/// How clients reach this server, as far as it knows.
fn scheme(control: &Control) -> &'static str {
    let public = control.config().public_url.as_deref().unwrap_or_default();
    if public.starts_with("https:") { "https" } else { "http" }
}

/// What a caller is told when the exchange failed. None of it is the guest's own words.
fn told(error: hyper::Error) -> ControlError {
    let what = if error.is_parse_too_large() {
        "the head of its answer is too large"
    } else if error.is_parse() {
        "its answer is not HTTP"
    } else if error.is_incomplete_message() {
        "it closed the connection before it answered"
    } else if error.is_user() || error.is_body_write_aborted() {
        "the exchange was cut short"
    } else {
        "the connection to it was lost"
    };
    ControlError::new(Kind::Upstream, format!("upstream: the program in the sandbox failed: {what}"))
        .because(error)
}
