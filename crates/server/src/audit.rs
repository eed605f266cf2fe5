//! Which requests are written into the audit log: all that could have changed something, opened WebSockets among them.

use axum::http::{Method, StatusCode};
use control::{Caller, Control};

use crate::request_id;

/// Longest path that is written down.
const PATH_BYTES_MAX: usize = 512;

/// Writes a request down if it could have changed something.
pub(crate) async fn note(
    control: &Control,
    caller: &Caller,
    method: &Method,
    path: &str,
    status: StatusCode,
) {
    let looks = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if looks && status != StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    let cut = path.char_indices().take_while(|(at, _)| *at < PATH_BYTES_MAX).last();
    let path = &path[..cut.map_or(0, |(at, character)| at + character.len_utf8())];
    control.audit(caller, &request_id::current(), method.as_str(), path, status.as_u16()).await;
}
